"""Weakly supervised localisation: how well the maps of several methods find the objects of a labelled data set.

The network runs once an image for all methods together. A class-specific method is asked about the image's own label:
the box of the prediction that is right is what the paper's top-1 and top-5 localisation look at, so one map a method
serves them and the GT-known measures alike. Where the labels are not classes of the network (birds under an
ImageNet network), it is asked about the network's own first choice, and only GT-known measures are given.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from ..datasets.loading import Batch
from ..errors import InputError
from ..heatmap import Heatmap
from ..methods.table import METHODS
from ..preprocessing import Preprocessing
from ..recorder import record
from ..runs.rows import Row
from .protocol import THRESHOLD, THRESHOLDS, localisation_rows, maps_of, outcome_of


@dataclass(frozen=True)
class Trial:
    """What is evaluated: methods on a network's layer, over a view of the images, at a sweep of thresholds."""

    network: nn.Module
    methods: tuple[str, ...]
    view: Preprocessing
    labels_are_classes: bool
    layer: str | None = None
    thresholds: tuple[float, ...] = THRESHOLDS
    device: str = "cpu"

    def __post_init__(self) -> None:
        METHODS.checked(self.methods)
        if THRESHOLD not in self.thresholds:
            raise InputError(f"The thresholds must contain {THRESHOLD}, at which top-1 localisation is measured.")

    def measure(self, batch: Batch) -> list[Row]:
        """Return one row an image and method, and one a file that could not be read."""
        rows: list[Row] = [{"image": bad.name, "error": bad.message} for bad in batch.bad]
        return [*rows, *self._measured(batch)] if len(batch) else rows

    def explained(self, batch: Batch) -> tuple[list[list[int]], list[int | None], list[Heatmap]]:
        """Run the network once; return its best classes and the labels, an image, and the heatmap of each method."""
        with record(self.network, torch.from_numpy(batch.inputs).to(self.device), layer=self.layer) as recording:
            scores = recording.output
            if scores.ndim != 2:
                raise InputError("Localisation is measured on networks that give one row of scores an image.")
            top = scores.topk(min(5, scores.shape[1]), dim=1).indices.tolist()
            labels = [label if self.labels_are_classes else None for label in batch.labels]
            classes = [best[0] if label is None else label for label, best in zip(labels, top, strict=True)]
            return top, labels, [METHODS[name].make(each=classes).on(recording.head) for name in self.methods]

    def heatmaps(self, batch: Batch) -> list[Heatmap]:
        """Return the heatmap of each method."""
        return self.explained(batch)[2]

    def is_right(self, row: Row) -> bool:
        """Tell whether an image is located, and classified where its label is a class of the network."""
        known = row["label"] is None or row["label"] == row["top"][0]
        return bool(known and row["iou"][self.thresholds.index(THRESHOLD)] >= 0.5)

    def _measured(self, batch: Batch) -> list[Row]:
        top, labels, heatmaps = self.explained(batch)
        maps = maps_of(heatmaps)
        rows: list[Row] = []
        for index, name in enumerate(batch.names):
            found = localisation_rows(maps[:, index], batch.boxes[index], self.thresholds)
            for number, method in enumerate(self.methods):
                row: Row = {"image": name, "method": method, "label": labels[index], "top": top[index]}
                rows.append({**row, **outcome_of(heatmaps[number], index), **found[number]})
        return rows
