"""A whole evaluation: measure every image, sum up, and leave rows, `results.json` and `report.html` in a folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..datasets.dataset import Dataset
from ..evaluation.localization import Trial
from ..evaluation.protocol import THRESHOLD, Watch, evaluate
from ..evaluation.protocol import Trial as AnyTrial
from ..evaluation.retrieval import Gallery, RetrievalTrial, retrieval_tables, summarise_retrieval
from ..evaluation.scores import Table, summarise, tables_of
from ..files import write_whole
from ..reports.localization import write_report
from ..reports.neighbours import strips
from ..reports.retrieval import write_retrieval_report
from ..reports.tiles import Tile, sections, tiles

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
    _write(out / RESULTS, results)
    title = f"{names.network} on {names.dataset}: where do its maps lie?"
    shown = {
        "network": names.network,
        "data": names.dataset,
        "view": names.view,
        "images": str(results["images"]),
    }
    write_report(out / REPORT, results, _gallery(tables, dataset, trial), title=title, settings=shown)
    return results


def run_retrieval(
    dataset: Dataset,
    trial: RetrievalTrial,
    out: Path,
    *,
    names: Names,
    part: str = "all",
    paper: Sequence[Mapping[str, Any]] = (),
    size: int = 16,
    workers: int = 2,
    watch: Watch | None = None,
) -> dict[str, Any]:
    """The same by the retrieval protocol; `paper` are the paper's rows to stand beside ours."""
    settings = {"protocol": "retrieval", "dataset": names.dataset, "part": part, "network": names.network}
    settings |= {"identity": trial.model.identity, "view": names.view}
    file = evaluate(dataset, trial, out, settings=settings, size=size, workers=workers, watch=watch)
    rows = list(file.rows())
    gallery = Gallery.of(rows, normalized=trial.model.normalized)
    tables = retrieval_tables(rows, gallery, trial.methods)
    results = {**settings, **summarise_retrieval(gallery, tables, trial.thresholds, threshold=THRESHOLD)}
    results["bad"] = {row["image"]: row["error"] for row in rows if "error" in row}
    results["published"] = list(paper)
    _write(out / RESULTS, results)
    shown = {
        "network": names.network,
        "data": f"{names.dataset} ({part})",
        "view": names.view,
        "compared": "by cosine" if trial.model.normalized else "by distance",
    }
    title = f"{names.network} on {names.dataset}: what does it retrieve, and where does it look?"
    telling = _gallery(tables, dataset, trial) if tables else {}
    nearest = strips(gallery, dataset, trial)
    write_retrieval_report(out / REPORT, results, telling, nearest, title=title, settings=shown)
    return results


def _gallery(tables: dict[str, Table], dataset: Dataset, trial: AnyTrial) -> dict[str, list[Tile]]:
    chosen = sections(tables, trial.thresholds.index(THRESHOLD))
    return {title: tiles(images, dataset, trial, tables) for title, images in chosen.items()}


def _write(path: Path, results: Mapping[str, Any]) -> None:
    with write_whole(path) as temporary:
        temporary.write_text(json.dumps(results, indent=1) + "\n")
