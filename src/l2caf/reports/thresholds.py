"""The methods at the fixed threshold and at those that held-out pictures chose, side by side."""

from __future__ import annotations

from html import escape

from ..evaluation.intervals import Interval
from ..evaluation.own_thresholds import OwnThresholds
from ..evaluation.scores import MEASURES, ScoreComparison
from ..methods.table import METHODS
from .page import Cell, shown, table


def at_own_thresholds(compared: ScoreComparison, own: OwnThresholds) -> list[str]:
    """A heading, the table of both thresholds, and the methods against one another at their own."""
    rows = [
        [f"{METHODS.title(row.ours)} − {METHODS.title(row.theirs)}"] for row in own.differences[:: len(own.measures)]
    ]
    lines: list[list[str | Cell]] = [[*names] for names in rows]
    for number, row in enumerate(own.differences):
        lines[number // len(own.measures)].append(Cell(signed(row.points), best=row.told_apart))
    against = table(["each at its own threshold", *(MEASURES[m] for m in own.measures)], lines) if lines else ""
    return [
        "<h2>Thresholds that held-out pictures chose</h2>",
        table(head_of(compared, own), rows_of(compared, own)),
        against,
        f"<p class=note>{escape(chosen_by(own))}</p>",
    ]


def head_of(compared: ScoreComparison, own: OwnThresholds) -> list[str]:
    """The heads of the table of both thresholds."""
    fixed = f"at {100 * compared.threshold:.0f} %"
    each = [word for m in own.measures for word in (f"{MEASURES[m]} {fixed}", "at its own", "difference")]
    return ["", "threshold", *each]


def rows_of(compared: ScoreComparison, own: OwnThresholds) -> list[list[str]]:
    """Its rows: a method, its own threshold, and every measure at both."""
    rows = []
    for name, found in own.methods.items():
        fixed = compared.methods[name].measures
        cells = [
            word for m in own.measures for word in (shown(fixed[m]), shown(found.measures[m]), signed(found.gains[m]))
        ]
        rows.append([METHODS.title(name), f"{100 * found.threshold:.0f} %", *cells])
    return rows


def chosen_by(own: OwnThresholds) -> str:
    """What the thresholds are, in words."""
    return (
        f"Each method's threshold has the highest GT-known on {own.pictures} held-out pictures: {own.chosen_on}."
        " Differences are paired, in points."
    )


def signed(points: Interval) -> str:
    """A difference with its interval, as a person reads it."""
    return f"{points.value:+.1f} ({points.low:+.1f} to {points.high:+.1f})"
