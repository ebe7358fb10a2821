"""The report of an evaluation of localisation: one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..evaluation.localization import LocalizationResult
from ..evaluation.published import localisation_rows
from .page import shown, table, unread, write_page
from .sections import compared_in_full, note_on_scores, scores, telling_images
from .thresholds import at_own_thresholds
from .tiles import Tile


def write_report(
    path: Path,
    result: LocalizationResult,
    gallery: Mapping[str, list[Tile]],
    *,
    title: str,
    settings: Mapping[str, str],
) -> Path:
    """Write the page: scores, differences, the threshold curve, the histogram, and telling images."""
    parts = [
        unread(result.bad),
        "<h2>Scores</h2>",
        scores(result.comparison, _note(result)),
        _published(result),
        *([] if result.own is None else at_own_thresholds(result.comparison, result.own)),
        *compared_in_full(result.comparison),
        *telling_images(result.comparison, gallery),
    ]
    return write_page(path, parts, title=title, settings=settings)


def _note(result: LocalizationResult) -> str:
    classified = result.classification.items()
    classification = ", ".join(f"{key.replace('top', 'top-')} {shown(value)}" for key, value in classified)
    note = note_on_scores(result.comparison)
    return f"{note} Classification: {classification}." if classification else note


def _published(result: LocalizationResult) -> str:
    paper = localisation_rows(result.published)
    if not paper:
        return ""
    rows = [[f"{row.method}, {row.backbone}", str(row.cls_top1), str(row.loc_top1), str(row.loc_top5)] for row in paper]
    note = "As printed in the paper, on all 50,000 validation images: other networks, so only an orientation."
    return (
        table(["in the paper", "classification top-1", "localisation top-1", "localisation top-5"], rows)
        + f"<p class=note>{note}</p>"
    )
