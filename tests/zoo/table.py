"""The table of what each network gets, and whether the promise is kept."""

from __future__ import annotations

from collections import Counter
from math import isnan

from .judge import Judged, Verdict

MOST_REFUSED = 0.05  # of the networks that have a right default layer
FAULTS = (Verdict.WRONG, Verdict.CRASHED, Verdict.UNCLEAR)
REFUSALS = (Verdict.REFUSED_WRONGLY, Verdict.OTHER_LAYER, Verdict.UNDECIDED)


def faults(rows: list[Judged]) -> list[Judged]:
    """What must not be there."""
    return [row for row in rows if row.verdict in FAULTS]


def refusals(rows: list[Judged]) -> list[Judged]:
    """Networks whose right default layer was not taken, whatever was said or taken instead."""
    return [row for row in rows if row.network.right and row.verdict in REFUSALS]


def is_kept(rows: list[Judged]) -> bool:
    """None silently wrong, and at most 5 % of the right layers refused."""
    return not faults(rows) and len(refusals(rows)) <= MOST_REFUSED * sum(bool(row.network.right) for row in rows)


def table(rows: list[Judged]) -> str:
    """The page of the documentation."""
    counts = Counter(row.verdict for row in rows)
    sources = Counter(row.network.source for row in rows)
    with_map = sum(bool(row.network.right) for row in rows)
    refused = refusals(rows)
    lines = [
        "# The zoo: what each network gets",
        "",
        "`make zoo` builds these networks with random weights from a seed, small, without a download, explains each"
        " with nothing said, and judges what comes out from outside. A layer must be read as somebody who knows the"
        " architecture reads it; where patches of the input are changed, the cells of the map that lie there must"
        " answer (*near*: 1 in their place, 0 anywhere); and the loss must be that of a plain"
        " forward hook that multiplies the layer's output by the filter, with no uniform, random or neighbouring"
        " filter better than an `exact` one. How, and what is right for each: `tests/zoo/`.",
        "",
        f"{len(rows)} networks ({', '.join(f'{count} {source}' for source, count in sources.items())};"
        f" {sum(row.network.held_out for row in rows)} of them not among those that the verification was made on): "
        + ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict])
        + ".",
        "",
        f"Right default layers that are not taken: {len(refused)} of {with_map}"
        + (": " + ", ".join(row.network.name for row in refused) if refused else "")
        + ".",
        "",
        "*another layer*: a true map, but an earlier or later layer than the right one. Seconds are of the first call"
        " on one busy core. A star marks networks that the verification was made on.",
        "",
        "| network | from | input | default layer | grid | outcome | near | seconds | verdict | |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [_line(row) for row in rows]
    return "\n".join(lines) + "\n"


def _line(row: Judged) -> str:
    grid = "×".join(map(str, row.grid))
    seen = "" if row.answer is None or isnan(row.answer.nearness) else f"{row.answer.nearness:.2f}"
    remark = "; ".join(part for part in (row.network.why, row.note) if part).replace("|", "\\|")
    mark = "" if row.network.held_out else " *"
    cells = (
        row.network.name + mark, row.network.source, row.input, f"`{row.layer}`" if row.layer else "", grid,
        row.outcome, seen, f"{row.seconds:.1f}", row.verdict, remark,
    )  # fmt: skip
    return "| " + " | ".join(cells) + " |"
