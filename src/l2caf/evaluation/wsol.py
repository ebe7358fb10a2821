"""Weakly supervised localisation: how well the maps of several methods find the objects of a labelled data set.

The network runs once an image for all methods together. A class-specific method is asked about the image's own label:
the box of the prediction that is right is what the paper's top-1 and top-5 localisation look at, so one map a method
serves them and the GT-known measures alike. Where the labels are not classes of the network (birds under an
ImageNet network), it is asked about the network's own first choice, and only GT-known measures are given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ..datasets.dataset import Dataset
from ..datasets.loading import Batch, batches
from ..datasets.views import View
from ..errors import InputError
from ..heatmap import Heatmap
from ..localization import overlap_of
from ..networks.affine import Head
from ..networks.custody import borrowed, unwrap
from ..networks.replay import Replay
from .contestants import CONTESTANTS, check_names
from .metrics import foreground_ratio, pointed
from .rowfile import Row, RowFile

THRESHOLD = 0.2  # the share of the maximum at which CAM and the paper cut a map
THRESHOLDS = (0.05, 0.1, 0.15, THRESHOLD, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7)
DIGITS = 9  # more than any score needs, and few enough that a file does not drown in noise

Watch = Callable[[int, int, Mapping[str, float]], None]


@dataclass(frozen=True)
class Trial:
    """What is evaluated: methods on a network's layer, over a view of the images, at a sweep of thresholds."""

    network: nn.Module
    methods: tuple[str, ...]
    view: View
    labels_are_classes: bool
    layer: str | None = None
    thresholds: tuple[float, ...] = THRESHOLDS
    device: str = "cpu"

    def __post_init__(self) -> None:
        check_names(self.methods)
        if THRESHOLD not in self.thresholds:
            raise InputError(f"The thresholds must contain {THRESHOLD}, at which top-1 localisation is measured.")

    def measure(self, batch: Batch) -> list[Row]:
        """Return one row an image and method, and one a file that could not be read."""
        rows: list[Row] = [{"image": bad.name, "error": bad.message} for bad in batch.bad]
        return [*rows, *self._measured(batch)] if len(batch) else rows

    def explained(self, batch: Batch) -> tuple[list[list[int]], list[int | None], list[Heatmap]]:
        """Run the network once; return its best classes and the labels, an image, and the heatmap of each method."""
        network = unwrap(self.network)
        with borrowed(network):
            head = Head(Replay(network, batch.tensors.to(self.device), layer=self.layer))
            scores = head.replay.output
            if scores.ndim != 2:
                raise InputError("Localisation is measured on networks that give one row of scores an image.")
            top = scores.topk(min(5, scores.shape[1]), dim=1).indices.tolist()
            labels = [label if self.labels_are_classes else None for label in batch.labels]
            classes = [best[0] if label is None else label for label, best in zip(labels, top, strict=True)]
            return top, labels, [CONTESTANTS[name](classes).on(head) for name in self.methods]

    def _measured(self, batch: Batch) -> list[Row]:
        top, labels, heatmaps = self.explained(batch)
        maps = torch.stack([heatmap.maps for heatmap in heatmaps]).cpu().numpy()
        rows: list[Row] = []
        for index, name in enumerate(batch.names):
            boxes = batch.boxes[index]
            overlap = overlap_of(maps[:, index], boxes, thresholds=self.thresholds) if len(boxes) else None
            for number, method in enumerate(self.methods):
                row: Row = {"image": name, "method": method, "label": labels[index], "top": top[index]}
                if heatmaps[number].solution is not None:
                    row["outcome"] = str(heatmaps[number].solution.outcome[index])
                if overlap is not None:
                    height, width = maps.shape[-2:]
                    row["iou"] = _rounded(overlap.largest[number])
                    row["best_iou"] = _rounded(overlap.best[number])
                    row["pointed"] = pointed(maps[number, index], boxes)
                    row["foreground"] = round(foreground_ratio(boxes, width=width, height=height), DIGITS)
                rows.append(row)
        return rows


@dataclass
class Running:
    """The scores so far: share of images that are right, a method."""

    right: dict[str, int] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)

    def add(self, rows: Sequence[Row], threshold: int) -> None:
        for row in rows:
            if "iou" in row:
                known = row["label"] is None or row["label"] == row["top"][0]
                name = row["method"]
                self.right[name] = self.right.get(name, 0) + (known and row["iou"][threshold] >= 0.5)
                self.seen[name] = self.seen.get(name, 0) + 1

    def scores(self) -> dict[str, float]:
        return {name: 100 * self.right[name] / self.seen[name] for name in self.seen}


def evaluate(
    dataset: Dataset,
    trial: Trial,
    out: Path,
    *,
    settings: Row,
    size: int = 16,
    workers: int = 2,
    watch: Watch | None = None,
) -> RowFile:
    """Measure every image of a data set and leave the rows in `out`; a run that was cut off goes on where it was."""
    settings = {
        **settings,
        "methods": trial.methods,
        "thresholds": trial.thresholds,
        "images": len(dataset.samples),
    }
    file = RowFile.open(out, {**settings, "batch": size, "layer": trial.layer})
    running = Running()
    running.add(list(file.rows()), trial.thresholds.index(THRESHOLD))
    done = min(file.blocks_done * size, len(dataset.samples))
    if watch is not None:
        watch(done, len(dataset.samples), running.scores())
    for block, batch in enumerate(
        batches(dataset.samples[done:], trial.view, size, workers=workers), start=file.blocks_done
    ):
        rows = trial.measure(batch)
        file.append(block, rows)
        running.add(rows, trial.thresholds.index(THRESHOLD))
        done = min(done + size, len(dataset.samples))
        if watch is not None:
            watch(done, len(dataset.samples), running.scores())
    return file


def _rounded(values: NDArray[np.float64]) -> list[float]:
    return [round(float(value), DIGITS) for value in values]
