"""The report of the retrieval protocol, and the paper's rows beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from ..evaluation.published import published
from ..methods.table import METHODS
from .neighbours import Strip, as_html
from .page import shown, table, unread, write_page
from .sections import curve, differences, histogram, note_on_scores, scores, telling_images
from .tiles import Tile

RETRIEVAL_MEASURES = {"r1": "R@1", "r2": "R@2", "r4": "R@4", "r8": "R@8", "nmi": "NMI"}
_LOSSES = {"triplet": "triplet", "npair": "n-pair"}


def write_retrieval_report(
    path: Path,
    results: Mapping[str, Any],
    gallery: Mapping[str, list[Tile]],
    retrieved: Sequence[Strip] = (),
    *,
    title: str,
    settings: Mapping[str, str],
) -> Path:
    """Write the page: retrieval, localisation, the paper, differences, curve, histogram, and telling images."""
    parts = [unread(results), "<h2>Retrieval</h2>", _retrieval(results), *_retrieved(results, retrieved)]
    if results["methods"]:
        loc = (
            f"{note_on_scores(results)} LOC counts an image when its nearest neighbour has its class and the IoU is"
            " above one half."
        )
        parts += [
            "<h2>Localisation</h2>",
            scores(results, loc),
            _published(results),
            "<h2>One method against another, on the same images</h2>",
            differences(results),
            "<h2>Localisation against the threshold</h2>",
            curve(results),
            "<h2>How much of the picture the objects cover</h2>",
            histogram(results),
        ]
    parts += telling_images(results, gallery)
    return write_page(path, parts, title=title, settings=settings)


def published_rows(dataset: str | None, loss: str | None = None) -> list[dict[str, Any]]:
    """The paper's rows for cub or cars: method, backbone, loss, NMI and R@1 and LOC in per cent, margin in points.

    >>> published_rows("cub", "triplet")[2]["loc"]
    29.63
    """
    if dataset not in ("cub", "cars"):
        return []
    return [
        {
            "method": row["method"],
            "backbone": row["backbone"],
            "loss": row["loss"],
            "r1": row[f"{dataset}_r1"],
            "nmi": round(100 * row[f"{dataset}_nmi"], 1),
            "loc": row[f"{dataset}_loc"],
            "margin": row[f"{dataset}_margin"],
        }
        for row in published()["table3_retrieval"]["rows"]
        if loss not in _LOSSES or row["loss"] == _LOSSES[loss]
    ]


def _retrieval(results: Mapping[str, Any]) -> str:
    found = results["retrieval"]
    cells = "".join(f"<td>{escape(shown(found[measure]))}</td>" for measure in RETRIEVAL_MEASURES)
    note = (
        f"{results['images']} images of {results['classes']} classes, each sought among all others; NMI with as many"
        " clusters of k-means as there are classes. Per cent, with 95 % intervals."
    )
    head = ["", *RETRIEVAL_MEASURES.values()]
    return table(head, [f"<tr><td>this network</td>{cells}</tr>"]) + f"<p class=note>{escape(note)}</p>"


def _retrieved(results: Mapping[str, Any], found: Sequence[Strip]) -> list[str]:
    if not found:
        return []
    method = next(iter(results["methods"]), None)
    words = f"Maps: {METHODS[method].title}. " if method else ""
    note = f"<p class=note>{escape(words)}Queries whose nearest neighbour is of another class (red) come first.</p>"
    return ["<h2>Nearest neighbours</h2>", note, *(as_html(strip) for strip in found)]


def _published(results: Mapping[str, Any]) -> str:
    rows = [
        "<tr>"
        + "".join(
            f"<td>{escape(str(cell))}</td>"
            for cell in (
                f"{row['method']}, {row['backbone']}, {row['loss']}",
                row["r1"],
                row["nmi"],
                row["loc"],
                f"{row['margin']:+.2f}",
            )
        )
        + "</tr>"
        for row in results["published"]
    ]
    if not rows:
        return ""
    note = "As printed in the paper, on all test classes: other networks, so only an orientation."
    return table(["in the paper", "R@1", "NMI", "LOC", "margin to Grad-CAM"], rows) + f"<p class=note>{note}</p>"
