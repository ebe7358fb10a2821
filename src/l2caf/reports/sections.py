"""The sections that the reports share: scores, differences, threshold curve, histogram, telling images."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from ..evaluation.scores import MEASURES
from ..methods.table import METHODS
from ..rendering.figures import COLORS, figure, plain
from .page import shown, svg, table
from .tiles import Tile, embedded


def measures_of(results: Mapping[str, Any]) -> list[str]:
    """The measures that were taken, in their usual order."""
    first = next(iter(results["methods"].values()))
    return [measure for measure in MEASURES if measure in first]


def scores(results: Mapping[str, Any], note: str) -> str:
    """Every measure of every method, the best of each in bold, and a note below."""
    measures = measures_of(results)
    best = {m: max(found[m]["value"] for found in results["methods"].values()) for m in measures}
    head = ["", *(MEASURES[measure] for measure in measures)]
    rows = []
    for name, found in results["methods"].items():
        cells = [
            f"<td{' class=best' if found[m]['value'] == best[m] else ''}>{escape(shown(found[m]))}</td>"
            for m in measures
        ]
        rows.append(f"<tr><td>{escape(METHODS[name].title)}</td>{''.join(cells)}</tr>")
    return f"{table(head, rows)}<p class=note>{escape(note)}</p>"


def note_on_scores(results: Mapping[str, Any]) -> str:
    """What the numbers of the scores are."""
    return (
        f"Per cent of {results['images']} images, with 95 % intervals; boxes at {100 * results['threshold']:.0f} % of "
        "the maximum unless the measure chooses its own threshold."
    )


def differences(results: Mapping[str, Any]) -> str:
    """Every two methods on the same images."""
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for row in results["differences"]:
        marked = " class=best" if row["told_apart"] else ""
        words = f"{row['value']:+.1f} ({row['low']:+.1f} to {row['high']:+.1f})"
        rows.setdefault((row["ours"], row["theirs"]), {})[row["measure"]] = f"<td{marked}>{words}</td>"
    if not rows:
        return "<p class=note>Only one method was measured.</p>"
    measures = list(next(iter(rows.values())))
    lines = [
        f"<tr><td>{escape(METHODS[ours].title)} − {escape(METHODS[theirs].title)}</td>{''.join(cells.values())}</tr>"
        for (ours, theirs), cells in rows.items()
    ]
    note = "Points, with 95 % intervals of the paired difference; bold where the interval leaves nought out."
    return table(["", *(MEASURES[measure] for measure in measures)], lines) + f"<p class=note>{note}</p>"


def curve(results: Mapping[str, Any]) -> str:
    """Located images against the threshold."""
    made = figure(7.5, 3.6)
    axes = made.add_subplot()
    for (name, scores), color in zip(results["methods"].items(), COLORS, strict=False):
        shares = [100 * share for share in results["thresholds"]]
        axes.plot(shares, scores["curve"], marker="o", markersize=3.5, color=color, label=METHODS[name].title)
    axes.set_xlabel("threshold, % of the maximum")
    axes.set_ylabel("boxes with IoU ≥ 0.5, %")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=9)
    plain(axes)
    return svg(made)


def histogram(results: Mapping[str, Any]) -> str:
    """How much of the pictures the boxes cover."""
    made = figure(7.5, 2.8)
    axes = made.add_subplot()
    edges = results["foreground"]["edges"]
    shares = [100 * share for share in results["foreground"]["share_of_images"]]
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


def telling_images(results: Mapping[str, Any], gallery: Mapping[str, list[Tile]]) -> list[str]:
    """The images on which methods do best, worst, and disagree."""
    methods = list(results["methods"])
    parts = []
    for heading, found in gallery.items():
        parts.append(f"<h2>{escape(heading[0].upper() + heading[1:])}</h2>")
        parts.append(
            f"<p class=note>By the IoU of {escape(METHODS[methods[0]].title)} at "
            f"{100 * results['threshold']:.0f} % of the maximum. <span class=green>Green</span>: ground truth. "
            "<span class=blue>Blue</span>: the box of the map.</p>"
            if heading in ("best", "worst")
            else "<p class=note>The largest distance between the IoUs of two methods.</p>"
        )
        parts += [_tile(tile, methods) for tile in found]
    return parts


def _tile(tile: Tile, methods: Sequence[str]) -> str:
    columns = math.ceil(len(methods) / math.ceil(len(methods) / 5))
    figures = "".join(
        f"<figure><img alt='{escape(METHODS[name].title, quote=True)}' src='{embedded(picture)}'>"
        f"<figcaption>{escape(METHODS[name].title)}: IoU {iou:.2f}</figcaption></figure>"
        for name, picture, iou in zip(methods, tile.pictures, tile.ious, strict=True)
    )
    grid = f"grid-template-columns: repeat({columns}, minmax(0, 200px))"
    return f"<div class=name>{escape(tile.name)}</div><div class=tile style='{grid}'>{figures}</div>"
