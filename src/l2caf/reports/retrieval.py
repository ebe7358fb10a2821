"""The report of the retrieval protocol: one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from ..evaluation.retrieval import RETRIEVAL_MEASURES, RetrievalResult
from ..methods.table import METHODS
from .neighbours import Strip, as_html
from .page import shown, table, unread, write_page
from .sections import compared_in_full, note_on_scores, scores, telling_images
from .tiles import Tile


def write_retrieval_report(
    path: Path,
    result: RetrievalResult,
    gallery: Mapping[str, list[Tile]],
    retrieved: Sequence[Strip] = (),
    *,
    title: str,
    settings: Mapping[str, str],
) -> Path:
    """Write the page: retrieval, localisation, the paper, differences, curve, histogram, and telling images."""
    parts = [unread(result.bad), "<h2>Retrieval</h2>", _retrieval(result), *_retrieved(result, retrieved)]
    if result.comparison.methods:
        loc = (
            f"{note_on_scores(result.comparison)} LOC counts an image when its nearest neighbour has its class and the"
            " IoU is above one half."
        )
        parts += [
            "<h2>Localisation</h2>",
            scores(result.comparison, loc),
            _published(result),
            *compared_in_full(result.comparison),
        ]
    parts += telling_images(result.comparison, gallery)
    return write_page(path, parts, title=title, settings=settings)


def _retrieval(result: RetrievalResult) -> str:
    cells = [shown(result.retrieval[measure]) for measure in RETRIEVAL_MEASURES]
    note = (
        f"{result.comparison.images} images of {result.classes} classes, each sought among all others; NMI with as many"
        " clusters of k-means as there are classes. Per cent, with 95 % intervals."
    )
    return table(["", *RETRIEVAL_MEASURES.values()], [["this network", *cells]]) + f"<p class=note>{escape(note)}</p>"


def _retrieved(result: RetrievalResult, found: Sequence[Strip]) -> list[str]:
    if not found:
        return []
    method = next(iter(result.comparison.methods), None)
    words = f"Maps: {METHODS.title(method)}. " if method else ""
    note = f"<p class=note>{escape(words)}Queries whose nearest neighbour is of another class (red) come first.</p>"
    return ["<h2>Nearest neighbours</h2>", note, *(as_html(strip) for strip in found)]


def _published(result: RetrievalResult) -> str:
    rows = [
        [
            f"{row.method}, {row.backbone}, {row.loss}",
            str(row.r1),
            str(row.nmi),
            str(row.loc),
            f"{row.margin:+.2f}",
        ]
        for row in result.published
    ]
    if not rows:
        return ""
    note = "As printed in the paper, on all test classes: other networks, so only an orientation."
    return table(["in the paper", "R@1", "NMI", "LOC", "margin to Grad-CAM"], rows) + f"<p class=note>{note}</p>"
