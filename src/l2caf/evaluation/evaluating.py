"""A whole evaluation: measure every image, sum up, and leave rows, `results.json` and `report.html` in a folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..datasets.dataset import Dataset
from ..rendering.files import write_whole
from .gallery import sections, tiles
from .report import write_report
from .summary import summarise, tables_of
from .wsol import THRESHOLD, Trial, Watch, evaluate

RESULTS, REPORT = "results.json", "report.html"


@dataclass(frozen=True)
class Names:
    """What the parts of an evaluation are called, for its files and headings."""

    dataset: str
    network: str
    view: str
    published: str | None = None  # the paper's table that fits, if one does


def run_evaluation(
    dataset: Dataset,
    trial: Trial,
    out: Path,
    *,
    names: Names,
    size: int = 16,
    workers: int = 2,
    watch: Watch | None = None,
) -> dict[str, Any]:
    """Measure, sum up and report; return the results as plain data."""
    settings = {"dataset": names.dataset, "network": names.network, "view": names.view}
    file = evaluate(dataset, trial, out, settings=settings, size=size, workers=workers, watch=watch)
    tables, bad = tables_of(file.rows(), trial.methods)
    results = {**settings, **summarise(tables, trial.thresholds, threshold=THRESHOLD), "bad": bad}
    results["published"] = names.published
    with write_whole(out / RESULTS) as temporary:
        temporary.write_text(json.dumps(results, indent=1) + "\n")
    place = trial.thresholds.index(THRESHOLD)
    chosen = sections(tables, place)
    gallery = {title: tiles(images, dataset, trial, tables) for title, images in chosen.items()}
    title = f"{names.network} on {names.dataset}: where do its maps lie?"
    shown = {
        "network": names.network,
        "data": names.dataset,
        "view": names.view,
        "images": str(results["images"]),
    }
    write_report(out / REPORT, results, gallery, title=title, settings=shown)
    return results
