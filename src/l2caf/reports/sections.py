"""The sections that the reports share: scores, differences, threshold curve, histogram, telling images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import cycle

from ..evaluation.scores import MEASURES, Foreground, ScoreComparison
from ..methods.table import METHODS
from ..rendering.figures import COLORS, LOOKS, figure, plain
from .page import Cell, shown, svg, table
from .tiles import Tile, embedded


def scores(compared: ScoreComparison, note: str) -> str:
    """Every measure of every method, the best of each in bold, and a note below."""
    measures = compared.measures
    best = {m: max(found.measures[m].value for found in compared.methods.values()) for m in measures}
    head = ["", *(MEASURES[measure] for measure in measures)]
    rows = []
    for name, found in compared.methods.items():
        cells = [Cell(shown(found.measures[m]), best=found.measures[m].value == best[m]) for m in measures]
        rows.append([Cell(METHODS.title(name)), *cells])
    return f"{table(head, rows)}<p class=note>{escape(note)}</p>"


def note_on_scores(compared: ScoreComparison) -> str:
    """What the numbers of the scores are."""
    return (
        f"Per cent of {compared.images} images, with 95 % intervals; boxes at {100 * compared.threshold:.0f} % of "
        "the maximum unless the measure chooses its own threshold."
    )


def differences(compared: ScoreComparison) -> str:
    """Every two methods on the same images."""
    rows: dict[tuple[str, str], dict[str, Cell]] = {}
    for row in compared.differences:
        words = f"{row.points.value:+.1f} ({row.points.low:+.1f} to {row.points.high:+.1f})"
        rows.setdefault((row.ours, row.theirs), {})[row.measure] = Cell(words, best=row.told_apart)
    if not rows:
        return "<p class=note>Only one method was measured.</p>"
    measures = list(next(iter(rows.values())))
    lines = [
        [Cell(f"{METHODS.title(ours)} − {METHODS.title(theirs)}"), *cells.values()]
        for (ours, theirs), cells in rows.items()
    ]
    note = "Points, with 95 % intervals of the paired difference; bold where the interval leaves zero out."
    return table(["", *(MEASURES[measure] for measure in measures)], lines) + f"<p class=note>{note}</p>"


def curve(compared: ScoreComparison) -> str:
    """Located images against the threshold; methods with the very same curve share one line and its label."""
    together: dict[tuple[float, ...], list[str]] = {}
    for name, found in compared.methods.items():
        together.setdefault(tuple(found.curve), []).append(METHODS.title(name))
    made = figure(5.6, 3.2 + 0.22 * len(together))
    axes = made.add_subplot()
    shares = [100 * share for share in compared.thresholds]
    for number, ((values, titles), look) in enumerate(zip(together.items(), cycle(LOOKS), strict=False)):
        # The later a line is drawn the thinner it is, so that what lies under it shows at its sides.
        width = max(1.2, 4.2 - 0.8 * number)
        label = " = ".join(titles)
        axes.plot(
            shares,
            values,
            color=look.color,
            linestyle=look.line,
            marker=look.marker,
            linewidth=width,
            markersize=max(4.0, 8.5 - number),
            markerfacecolor="white",
            label=label,
        )
    axes.set_xlabel("threshold, % of the maximum")
    axes.set_ylabel("boxes with IoU ≥ 0.5, %")
    axes.set_ylim(bottom=0)
    made.legend(loc="outside lower left", frameon=False, fontsize=9, handlelength=4)
    plain(axes)
    return svg(made)


def histogram(covered: Foreground | None) -> str:
    """How much of the pictures the boxes cover."""
    if covered is None:
        return ""
    made = figure(5.6, 2.6)
    axes = made.add_subplot()
    edges = covered.edges
    shares = [100 * share for share in covered.share_of_images]
    axes.bar(
        [100 * edge for edge in edges[:-1]],
        shares,
        width=100 * (edges[1] - edges[0]) * 0.92,
        align="edge",
        color=COLORS[0],
    )
    axes.set_xlabel("share of the picture inside the boxes, %")
    axes.set_ylabel("images, %")
    plain(axes)
    return svg(made)


def compared_in_full(compared: ScoreComparison) -> list[str]:
    """What every page tells after its scores: differences, the threshold curve, and the size of the objects."""
    return [
        "<h2>One method against another, on the same images</h2>",
        differences(compared),
        "<h2>Localisation against the threshold</h2>",
        curve(compared),
        "<h2>How much of the picture the objects cover</h2>",
        histogram(compared.foreground),
    ]


def telling_images(compared: ScoreComparison, gallery: Mapping[str, list[Tile]]) -> list[str]:
    """The images on which methods do best, worst, and disagree."""
    methods = list(compared.methods)
    parts = []
    for heading, found in gallery.items():
        parts.append(f"<h2>{escape(heading[0].upper() + heading[1:])}</h2>")
        parts.append(
            f"<p class=note>By the IoU of {escape(METHODS.title(methods[0]))} at "
            f"{100 * compared.threshold:.0f} % of the maximum. <span class=truth>White</span>: ground truth. "
            "<span class=found>Pink</span>: the box of the map.</p>"
            if heading in ("best", "worst")
            else "<p class=note>The largest distance between the IoUs of two methods.</p>"
        )
        parts += [_tile(tile, methods) for tile in found]
    return parts


def _tile(tile: Tile, methods: Sequence[str]) -> str:
    figures = "".join(
        f"<figure><img alt='{escape(METHODS.title(name), quote=True)}' src='{embedded(picture)}'>"
        f"<figcaption>{escape(METHODS.title(name))}: IoU&nbsp;{iou:.2f}</figcaption></figure>"
        for name, picture, iou in zip(methods, tile.pictures, tile.ious, strict=True)
    )
    return f"<div class=name>{escape(tile.name)}</div>{_classes(tile)}<div class=tile>{figures}</div>"


def _classes(tile: Tile) -> str:
    """What the image shows and what the network took it for, in red where these are not the same."""
    parts = [f"class: {escape(tile.truth)}"] if tile.truth else []
    if tile.predicted:
        marked = " class=wrong" if tile.right is False else ""
        parts.append(f"seen as: <span{marked}>{escape(tile.predicted)}</span>")
    return f"<small>{' · '.join(parts)}</small>" if parts else ""
