"""From rows to scores: every measure of every method with its interval, and the methods against one another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..runs.rows import Row
from .box_accuracy import V1_NEEDED, V2_NEEDED, box_accuracy, box_accuracy_interval
from .intervals import Interval, mean_interval, paired_difference
from .metrics import classified, foreground_histogram, localised, located

BEYOND_HALF = float(np.nextafter(0.5, 1))  # retrieval asks for an IoU above one half, classification for at least that
MEASURES = {
    "loc": "LOC",
    "loc_top1": "localisation top-1",
    "loc_top5": "localisation top-5",
    "gt_known": "GT-known",
    "max_box_acc": "MaxBoxAcc",
    "max_box_acc_v2": "MaxBoxAccV2",
    "pointing": "pointing game",
}


@dataclass(frozen=True)
class Table:
    """The rows of one method as arrays, images in one order for all methods."""

    images: list[str]
    labels: list[int | None]
    top: NDArray[np.int64]
    iou: NDArray[np.float64]
    best_iou: NDArray[np.float64]
    pointed: NDArray[np.bool_]
    foreground: NDArray[np.float64]

    @property
    def labelled(self) -> bool:
        return all(label is not None for label in self.labels)

    def hits(self, measure: str, threshold: int) -> NDArray[np.bool_]:
        """Tell for each image whether it counts under a measure that is a mean over images."""
        if measure == "gt_known":
            return located(self.iou[:, threshold])
        if measure == "pointing":
            return self.pointed
        if measure == "loc":  # of retrieval, where `top` are the labels of the neighbours, nearest first
            return localised(self.top, np.array(self.labels), self.iou[:, threshold], needed=BEYOND_HALF)
        top = {"loc_top1": 1, "loc_top5": min(5, self.top.shape[1])}[measure]
        return localised(self.top, np.array(self.labels), self.iou[:, threshold], top=top)


def tables_of(rows: Iterable[Row], methods: Sequence[str]) -> tuple[dict[str, Table], dict[str, str]]:
    """Sort rows into one table a method, and name the files that could not be read with the reason."""
    bad: dict[str, str] = {}
    sorted_rows: dict[str, dict[str, Row]] = {method: {} for method in methods}
    for row in rows:
        if "error" in row:
            bad[row["image"]] = row["error"]
        elif "iou" in row:
            sorted_rows[row["method"]][row["image"]] = row
    images = sorted(sorted_rows[methods[0]])
    if not images:
        raise InputError("No image with a box could be read, so there is nothing to measure.")
    return {method: _table([found[image] for image in images]) for method, found in sorted_rows.items()}, bad


def _table(rows: list[Row]) -> Table:
    return Table(
        images=[row["image"] for row in rows],
        labels=[row["label"] for row in rows],
        top=np.array([row["top"] for row in rows]),
        iou=np.array([row["iou"] for row in rows]),
        best_iou=np.array([row["best_iou"] for row in rows]),
        pointed=np.array([row["pointed"] for row in rows]),
        foreground=np.array([row["foreground"] for row in rows]),
    )


def summarise(tables: dict[str, Table], thresholds: Sequence[float], *, threshold: float) -> dict[str, Any]:
    """Return all scores, in per cent with 95 % intervals, as plain data."""
    place = list(thresholds).index(threshold)
    first = next(iter(tables.values()))
    results: dict[str, Any] = {
        "images": len(first.images),
        "threshold": threshold,
        "thresholds": list(thresholds),
        "classification": _classification(first),
        **compared(tables, place, measures=_means(first)),
    }
    return results


def compared(tables: dict[str, Table], place: int, *, measures: Sequence[str]) -> dict[str, Any]:
    """The scores of every method, the difference of every two, and how much of the images the objects cover."""
    counts, edges = foreground_histogram(next(iter(tables.values())).foreground)
    return {
        "methods": {name: _scores(table, place, measures) for name, table in tables.items()},
        "differences": _differences(tables, place, measures),
        "foreground": {"share_of_images": counts.tolist(), "edges": edges.tolist()},
    }


def _classification(table: Table) -> dict[str, Any]:
    if not table.labelled:
        return {}
    labels = np.array(table.labels)
    return {
        f"top{top}": percent(mean_interval(classified(table.top, labels, top=top)))
        for top in (1, 5)
        if top <= table.top.shape[1]
    }


def _means(table: Table) -> list[str]:
    return ["loc_top1", "loc_top5", "gt_known", "pointing"] if table.labelled else ["gt_known", "pointing"]


def _scores(table: Table, place: int, measures: Sequence[str]) -> dict[str, Any]:
    scores = {measure: percent(mean_interval(table.hits(measure, place))) for measure in measures}
    scores["max_box_acc"] = percent(box_accuracy_interval(table.iou, needed=V1_NEEDED))
    scores["max_box_acc_v2"] = percent(box_accuracy_interval(table.best_iou, needed=V2_NEEDED))
    scores["curve"] = (100 * box_accuracy(table.iou, needed=V1_NEEDED).curves[0]).round(4).tolist()
    return scores


def _differences(tables: dict[str, Table], place: int, measures: Sequence[str]) -> list[dict[str, Any]]:
    """Compare every two methods on the same images."""
    names = list(tables)
    found = []
    for number, ours in enumerate(names):
        for theirs in names[number + 1 :]:
            for measure in measures:
                difference = paired_difference(tables[ours].hits(measure, place), tables[theirs].hits(measure, place))
                row = {"ours": ours, "theirs": theirs, "measure": measure, **percent(difference)}
                found.append({**row, "told_apart": difference.excludes_zero})
    return found


def percent(interval: Interval) -> dict[str, float]:
    """A share as plain data, in per cent."""
    return {
        "value": round(100 * interval.value, 4),
        "low": round(100 * interval.low, 4),
        "high": round(100 * interval.high, 4),
    }
