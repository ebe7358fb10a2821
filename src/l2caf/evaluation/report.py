"""The report of an evaluation: one HTML file that needs nothing else."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from ..rendering.files import write_whole
from .contestants import TITLES
from .figures import COLORS, figure, plain
from .gallery import Tile, embedded
from .summary import MEASURES, published

_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; max-width: 1240px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; } p.note, small { color: #5f6368; }
.wide { overflow-x: auto; } table { border-collapse: collapse; margin: .6rem 0; }
th, td { padding: .35rem .8rem .35rem 0; text-align: right; border-bottom: 1px solid #e8eaed; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } td.best { font-weight: 650; }
figure { display: inline-block; margin: 0 1rem 1rem 0; vertical-align: top; } svg { max-width: 100%; height: auto; }
.tile { display: grid; gap: .5rem; margin: .8rem 0 1.4rem; }
.tile img { width: 100%; display: block; border-radius: 4px; }
.tile figcaption { font-size: 13px; } .tile figure { margin: 0; } .name { font-weight: 600; overflow-wrap: anywhere; }
.green { color: #00a344; } .blue { color: #2979ff; }
"""


def write_report(
    path: Path,
    results: Mapping[str, Any],
    gallery: Mapping[str, list[Tile]],
    *,
    title: str,
    settings: Mapping[str, str],
) -> Path:
    """Write the page: scores, differences, the threshold curve, the histogram, and telling images."""
    methods = list(results["methods"])
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p class=note>{escape(' · '.join(f'{key} {value}' for key, value in settings.items()))}</p>",
        _bad(results),
        "<h2>Scores</h2>",
        _scores(results),
        _published(results),
        "<h2>One method against another, on the same images</h2>",
        _differences(results),
        "<h2>Localisation against the threshold</h2>",
        _curve(results),
        "<h2>How much of the picture the objects cover</h2>",
        _histogram(results),
    ]
    for heading, found in gallery.items():
        parts.append(f"<h2>{escape(heading[0].upper() + heading[1:])}</h2>")
        parts.append(
            f"<p class=note>By the IoU of {escape(TITLES[methods[0]])} at "
            f"{100 * results['threshold']:.0f} % of the maximum. <span class=green>Green</span>: ground truth. "
            "<span class=blue>Blue</span>: the box of the map.</p>"
            if heading in ("best", "worst")
            else "<p class=note>The largest distance between the IoUs of two methods.</p>"
        )
        parts += [_tile(tile, methods) for tile in found]
    page = (
        f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{escape(title)}</title><style>{_STYLE}</style><body>{''.join(parts)}</body></html>\n"
    )
    with write_whole(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return path


def shown(score: Mapping[str, float]) -> str:
    """A score with its interval, as a person reads it."""
    return f"{score['value']:.1f} ({score['low']:.1f} to {score['high']:.1f})"


def measures_of(results: Mapping[str, Any]) -> list[str]:
    """The measures that were taken, in their usual order."""
    first = next(iter(results["methods"].values()))
    return [measure for measure in MEASURES if measure in first]


def _bad(results: Mapping[str, Any]) -> str:
    bad = results.get("bad", {})
    if not bad:
        return ""
    items = "".join(f"<li>{escape(name)}: {escape(reason)}</li>" for name, reason in bad.items())
    return f"<details><summary>{len(bad)} files could not be read</summary><ul>{items}</ul></details>"


def _scores(results: Mapping[str, Any]) -> str:
    measures = measures_of(results)
    best = {m: max(scores[m]["value"] for scores in results["methods"].values()) for m in measures}
    head = ["", *(MEASURES[measure] for measure in measures)]
    rows = []
    for name, scores in results["methods"].items():
        cells = [
            f"<td{' class=best' if scores[m]['value'] == best[m] else ''}>{escape(shown(scores[m]))}</td>"
            for m in measures
        ]
        rows.append(f"<tr><td>{escape(TITLES[name])}</td>{''.join(cells)}</tr>")
    classified = results["classification"].items()
    classification = ", ".join(f"{key.replace('top', 'top-')} {shown(value)}" for key, value in classified)
    note = (
        f"Per cent of {results['images']} images, with 95 % intervals; boxes at {100 * results['threshold']:.0f} % of "
        "the maximum unless the measure chooses its own threshold."
    )
    if classification:
        note += f" Classification: {classification}."
    return f"{_table(head, rows)}<p class=note>{escape(note)}</p>"


def _published(results: Mapping[str, Any]) -> str:
    if results.get("published") != "table1_imagenet_standard":
        return ""
    rows = [
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in cells) + "</tr>"
        for cells in (
            (f"{row['method']}, {row['backbone']}", row["cls_top1"], row["loc_top1"], row["loc_top5"])
            for row in published("table1_imagenet_standard")
        )
    ]
    note = "As printed in the paper, on all 50,000 validation images: other networks, so only an orientation."
    return _table(["", "classification top-1", "localisation top-1", "top-5"], rows) + f"<p class=note>{note}</p>"


def _differences(results: Mapping[str, Any]) -> str:
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for row in results["differences"]:
        marked = " class=best" if row["told_apart"] else ""
        words = f"{row['value']:+.1f} ({row['low']:+.1f} to {row['high']:+.1f})"
        rows.setdefault((row["ours"], row["theirs"]), {})[row["measure"]] = f"<td{marked}>{words}</td>"
    if not rows:
        return "<p class=note>Only one method was measured.</p>"
    measures = list(next(iter(rows.values())))
    lines = [
        f"<tr><td>{escape(TITLES[ours])} − {escape(TITLES[theirs])}</td>{''.join(cells.values())}</tr>"
        for (ours, theirs), cells in rows.items()
    ]
    note = "Points, with 95 % intervals of the paired difference; bold where the interval leaves nought out."
    return _table(["", *(MEASURES[measure] for measure in measures)], lines) + f"<p class=note>{note}</p>"


def _table(head: Sequence[str], rows: Iterable[str]) -> str:
    cells = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    return f"<div class=wide><table><tr>{cells}</tr>{''.join(rows)}</table></div>"


def _curve(results: Mapping[str, Any]) -> str:
    made = figure(7.5, 3.6)
    axes = made.add_subplot()
    for (name, scores), color in zip(results["methods"].items(), COLORS, strict=False):
        shares = [100 * share for share in results["thresholds"]]
        axes.plot(shares, scores["curve"], marker="o", markersize=3.5, color=color, label=TITLES[name])
    axes.set_xlabel("threshold, % of the maximum")
    axes.set_ylabel("boxes with IoU ≥ 0.5, %")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=9)
    plain(axes)
    return _svg(made)


def _histogram(results: Mapping[str, Any]) -> str:
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
    return _svg(made)


def _svg(made: Any) -> str:
    stream = io.StringIO()
    made.savefig(stream, format="svg", metadata={"Date": None})
    text = stream.getvalue()
    return f"<figure>{text[text.index('<svg') :]}</figure>"


def _tile(tile: Tile, methods: Sequence[str]) -> str:
    columns = math.ceil(len(methods) / math.ceil(len(methods) / 5))
    figures = "".join(
        f"<figure><img alt='{escape(TITLES[name], quote=True)}' src='{embedded(picture)}'>"
        f"<figcaption>{escape(TITLES[name])}: IoU {iou:.2f}</figcaption></figure>"
        for name, picture, iou in zip(methods, tile.pictures, tile.ious, strict=True)
    )
    grid = f"grid-template-columns: repeat({columns}, minmax(0, 200px))"
    return f"<div class=name>{escape(tile.name)}</div><div class=tile style='{grid}'>{figures}</div>"
