"""From rows to scores: every measure of every method with its interval, and the methods against one another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from .box_accuracy import V1_NEEDED, V2_NEEDED, box_accuracy, box_accuracy_interval
from .intervals import Interval, mean_interval, paired_difference
from .measurements import MapOverlap, Mapped
from .metrics import foreground_histogram, localised, located

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
class MethodTable:
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


@dataclass(frozen=True)
class MethodScores:
    """One method: its measures by key, and the share of boxes with IoU >= 0.5 at each threshold; in per cent."""

    measures: Mapping[str, Interval]
    curve: tuple[float, ...]

    def as_dict(self) -> dict[str, Any]:
        return {**{key: score.as_dict() for key, score in self.measures.items()}, "curve": list(self.curve)}


@dataclass(frozen=True)
class Difference:
    """One measure of one method less that of another on the same images, in points."""

    ours: str
    theirs: str
    measure: str
    points: Interval
    told_apart: bool

    def as_dict(self) -> dict[str, Any]:
        pair = {"ours": self.ours, "theirs": self.theirs, "measure": self.measure}
        return {**pair, **self.points.as_dict(), "told_apart": self.told_apart}


@dataclass(frozen=True)
class Foreground:
    """How much of the images the boxes cover: a histogram over the share of the image."""

    share_of_images: tuple[float, ...]
    edges: tuple[float, ...]

    def as_dict(self) -> dict[str, list[float]]:
        return {"share_of_images": list(self.share_of_images), "edges": list(self.edges)}


@dataclass(frozen=True)
class ScoreComparison:
    """The methods on the same images: their scores, the difference of every two, and how large the objects are.

    images      how many were measured; those without a box count here and in no score
    threshold   at which the measures cut a map, but for those that choose among the `thresholds`
    """

    images: int
    threshold: float
    thresholds: tuple[float, ...]
    methods: Mapping[str, MethodScores]
    differences: tuple[Difference, ...] = ()
    foreground: Foreground | None = None

    @property
    def measures(self) -> list[str]:
        """The measures that were taken, in their usual order."""
        first = next(iter(self.methods.values()))
        return [measure for measure in MEASURES if measure in first.measures]

    def as_dict(self) -> dict[str, Any]:
        document: dict[str, Any] = {
            "methods": {name: scores.as_dict() for name, scores in self.methods.items()},
            "differences": [difference.as_dict() for difference in self.differences],
        }
        return document if self.foreground is None else {**document, "foreground": self.foreground.as_dict()}


def tables_of(rows: Iterable[Mapped], methods: Sequence[str]) -> dict[str, MethodTable]:
    """Sort the rows of images with a box into one table per method."""
    found: dict[str, dict[str, tuple[Mapped, MapOverlap]]] = {method: {} for method in methods}
    for row in rows:
        if row.overlap is not None:
            found[row.method][row.image] = row, row.overlap
    images = sorted(found[methods[0]])
    if not images:
        raise InputError("No image with a box could be read, so there is nothing to measure.")
    return {method: _table([several[image] for image in images]) for method, several in found.items()}


def _table(rows: Sequence[tuple[Mapped, MapOverlap]]) -> MethodTable:
    return MethodTable(
        images=[row.image for row, _ in rows],
        labels=[row.label for row, _ in rows],
        top=np.array([row.top for row, _ in rows]),
        iou=np.array([overlap.iou for _, overlap in rows]),
        best_iou=np.array([overlap.best_iou for _, overlap in rows]),
        pointed=np.array([overlap.pointed for _, overlap in rows]),
        foreground=np.array([overlap.foreground for _, overlap in rows]),
    )


def compare_scores(
    tables: Mapping[str, MethodTable],
    thresholds: Sequence[float],
    *,
    threshold: float,
    measures: Sequence[str],
    images: int,
) -> ScoreComparison:
    """Score every method, and every two against one another, in per cent with 95 % intervals."""
    place = list(thresholds).index(threshold)
    covered = None
    if tables:
        counts, edges = foreground_histogram(next(iter(tables.values())).foreground)
        covered = Foreground(tuple(counts.tolist()), tuple(edges.tolist()))
    return ScoreComparison(
        images=images,
        threshold=threshold,
        thresholds=tuple(thresholds),
        methods={name: _scores(table, place, measures) for name, table in tables.items()},
        differences=_differences(tables, place, measures),
        foreground=covered,
    )


def _scores(table: MethodTable, place: int, measures: Sequence[str]) -> MethodScores:
    scores = {measure: mean_interval(table.hits(measure, place)) for measure in measures}
    scores["max_box_acc"] = box_accuracy_interval(table.iou, needed=V1_NEEDED)
    scores["max_box_acc_v2"] = box_accuracy_interval(table.best_iou, needed=V2_NEEDED)
    curve = (100 * box_accuracy(table.iou, needed=V1_NEEDED).curves[0]).round(4).tolist()
    return MethodScores({measure: score.in_percent() for measure, score in scores.items()}, tuple(curve))


def _differences(tables: Mapping[str, MethodTable], place: int, measures: Sequence[str]) -> tuple[Difference, ...]:
    names = list(tables)
    found = []
    for number, ours in enumerate(names):
        for theirs in names[number + 1 :]:
            for measure in measures:
                difference = paired_difference(tables[ours].hits(measure, place), tables[theirs].hits(measure, place))
                # Rounding must not decide whether the interval leaves out zero.
                found.append(Difference(ours, theirs, measure, difference.in_percent(), difference.excludes_zero))
    return tuple(found)
