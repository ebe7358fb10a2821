"""Weakly supervised localisation: how well the maps of several methods find the objects of a labelled data set.

The network runs once per batch for all methods together. A class-specific method is asked about the image's own label:
the box of the prediction that is right is what the paper's top-1 and top-5 localisation look at, so one map per method
serves them and the GT-known measures alike. Where the labels are not classes of the network (birds under an
ImageNet network), it is asked about the network's own first choice, and only GT-known measures are given. An embedding
has no classes at all: only methods about the whole output are asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..datasets.loading import Batch, Prepares
from ..errors import InputError
from ..methods.table import METHODS
from ..runs.rows import Row, Unusable
from .intervals import Interval, mean_interval
from .measurements import (
    THRESHOLD,
    THRESHOLDS,
    Mapped,
    MapWork,
    maps_of,
    outcome_of,
    overlaps_of,
    row_of,
    seen_through,
)
from .metrics import classified
from .own_thresholds import OwnThresholds, own_thresholds
from .scores import MethodTable, ScoreComparison, compare_scores, tables_of

if TYPE_CHECKING:
    from ..heatmap import Heatmap
    from ..networks.model import Model


@dataclass(frozen=True)
class Localization(MapWork):
    """What is measured: methods on a layer, over a view of the images, at a sweep of thresholds.

    labels_are_classes   whether the labels number the network's outputs
    output               which part of the network's answer is explained, where it gives several
    """

    key: ClassVar[str] = "localisation"
    stage: ClassVar[str] = "measuring"

    methods: tuple[str, ...]
    view: str = "crop"
    labels_are_classes: bool = True
    layer: str | None = None
    thresholds: tuple[float, ...] = THRESHOLDS
    output: str | int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "methods", METHODS.checked(self.methods))
        object.__setattr__(self, "thresholds", tuple(self.thresholds))
        if THRESHOLD not in self.thresholds:
            raise InputError(f"The thresholds must contain {THRESHOLD}, at which top-1 localisation is measured.")

    def seen_by(self, model: Model) -> Prepares:
        """The view that is asked for, at the network's input size."""
        return seen_through(model, self.view)

    def measure(self, model: Model, batch: Batch) -> list[Mapped]:
        """One row per image and method."""
        top, labels, heatmaps = self._explained(model, batch)
        maps = maps_of(heatmaps)
        rows = []
        for index, name in enumerate(batch.names):
            overlaps = overlaps_of(maps[:, index], batch.boxes[index], self.thresholds, batch.crops[index])
            rows += [
                Mapped(name, method, labels[index], tuple(top[index]), outcome_of(heatmap, index), overlap)
                for method, heatmap, overlap in zip(self.methods, heatmaps, overlaps, strict=True)
            ]
        return rows

    def heatmaps(self, model: Model, batch: Batch) -> list[Heatmap]:
        """The heatmap of each method."""
        return self._explained(model, batch)[2]

    def counted(self, row: Row) -> tuple[str, bool] | None:
        """Count an image that is located, and classified where its label is a class of the network."""
        found = row_of(row)
        if not isinstance(found, Mapped) or found.overlap is None or found.top is None:
            return None
        known = found.label is None or found.label in found.top[:1]
        return found.method, known and found.overlap.iou[self.thresholds.index(THRESHOLD)] >= 0.5

    def _explained(self, model: Model, batch: Batch) -> tuple[list[list[int]], list[int | None], list[Heatmap]]:
        """Run the network once: its best classes and the labels, per image, and the heatmap of each method."""
        with model.run(batch.inputs, layer=self.layer, output=self.output) as recording:
            if model.embedding:
                made = [METHODS[name].make_for_embeddings() for name in self.methods]
                nothing: list[list[int]] = [[] for _ in batch.names]
                return nothing, [None] * len(batch), [method.on(recording.head) for method in made]
            scores = recording.output
            if scores.ndim not in (1, 2):
                raise InputError("Localisation is measured on networks that give one row of scores per image.")
            scores = scores.reshape(len(scores), -1)
            top = scores.topk(min(5, scores.shape[1]), dim=1).indices.tolist()
            labels = [label if self.labels_are_classes else None for label in batch.labels]
            classes = [best[0] if label is None else label for label, best in zip(labels, top, strict=True)]
            return top, labels, [METHODS[name].make(labels=classes).on(recording.head) for name in self.methods]


@dataclass(frozen=True)
class LocalizationResult:
    """All scores, in per cent with 95 % intervals.

    classification   top-1 and top-5, where the labels are classes of the network
    bad              the files that could not be used, with the reasons
    about            what maps of a class are about: "labels", "predicted" (each image's best class), or None
    left_out         what was not measured, and why
    assumed          what was taken for granted about the network
    published        the name of the paper's table that stands beside ours, where one does
    own              the methods at thresholds that held-out pictures chose, where it was asked for
    """

    dataset: str
    network: str
    view: str
    classification: Mapping[str, Interval]
    comparison: ScoreComparison
    bad: Mapping[str, str]
    published: str | None = None
    about: str | None = None
    left_out: str = ""
    assumed: Mapping[str, str] = field(default_factory=dict)
    own: OwnThresholds | None = None

    def as_dict(self) -> dict[str, Any]:
        document = {
            "dataset": self.dataset,
            "network": self.network,
            "assumed": dict(self.assumed),
            "view": self.view,
            "class_maps_about": self.about,
            "left_out": self.left_out or None,
            "images": self.comparison.images,
            "threshold": self.comparison.threshold,
            "thresholds": list(self.comparison.thresholds),
            "classification": {key: score.as_dict() for key, score in self.classification.items()},
            **self.comparison.as_dict(),
            "bad": dict(self.bad),
            "published": self.published,
        }
        return document if self.own is None else {**document, "held_out_thresholds": self.own.as_dict()}


@dataclass(frozen=True)
class HeldOutRows:
    """The rows of pictures that choose thresholds, and which pictures these are, in words."""

    rows: Sequence[Row]
    chosen_on: str


def summarise(
    rows: Iterable[Row],
    work: Localization,
    *,
    dataset: str,
    network: str,
    published: str | None = None,
    about: str | None = None,
    left_out: str = "",
    assumed: Mapping[str, str] | None = None,
    held_out: HeldOutRows | None = None,
) -> tuple[LocalizationResult, dict[str, MethodTable]]:
    """Sum up the rows of a run; the tables tell which images are worth a look.

    Rows of held-out pictures choose a threshold for each method, and count in no score.
    """
    found = [row_of(row) for row in rows]
    choosing: dict[str, MethodTable] | None = None
    if held_out is not None:
        held = [row_of(row) for row in held_out.rows]
        choosing = tables_of((row for row in held if isinstance(row, Mapped)), work.methods)
    tables = tables_of((row for row in found if isinstance(row, Mapped)), work.methods)
    first = tables[work.methods[0]]
    result = LocalizationResult(
        dataset=dataset,
        network=network,
        view=work.view,
        classification=_classification(first),
        comparison=compare_scores(
            tables, work.thresholds, threshold=THRESHOLD, measures=_measures(first), images=len(first.images)
        ),
        bad={row.image: row.error for row in found if isinstance(row, Unusable)},
        published=published,
        about=about,
        left_out=left_out,
        assumed=assumed or {},
        own=None
        if held_out is None or choosing is None
        else own_thresholds(
            choosing,
            tables,
            work.thresholds,
            fixed=THRESHOLD,
            measures=_measures(first),
            chosen_on=held_out.chosen_on,
        ),
    )
    return result, tables


def _classification(table: MethodTable) -> dict[str, Interval]:
    if not table.labelled:
        return {}
    labels = np.array(table.labels)
    return {
        f"top{top}": mean_interval(classified(table.top, labels, top=top)).in_percent()
        for top in (1, 5)
        if top <= table.top.shape[1]
    }


def _measures(table: MethodTable) -> Sequence[str]:
    return ("loc_top1", "loc_top5", "gt_known", "pointing") if table.labelled else ("gt_known", "pointing")
