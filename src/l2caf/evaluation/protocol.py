"""The loop that every evaluation shares: images in blocks, rows to disk, scores so far; whatever is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from ..boxes import Boxes
from ..datasets.dataset import Dataset
from ..datasets.loading import Batch, batches
from ..heatmap import Heatmap
from ..localization import overlap_of
from ..preprocessing import Preprocessing
from ..runs.rows import Row, RowFile
from .metrics import foreground_ratio, pointed

THRESHOLD = 0.2  # the share of the maximum at which CAM and the paper cut a map
THRESHOLDS = (0.05, 0.1, 0.15, THRESHOLD, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7)
DIGITS = 9  # more than any score needs, and few enough that a file does not drown in noise
Watch = Callable[[int, int, Mapping[str, float]], None]


class Trial(Protocol):
    """What is evaluated: methods on a network's layer, over a view of the images, at a sweep of thresholds."""

    @property
    def methods(self) -> tuple[str, ...]: ...

    @property
    def view(self) -> Preprocessing: ...

    @property
    def layer(self) -> str | None: ...

    @property
    def thresholds(self) -> tuple[float, ...]: ...

    def measure(self, batch: Batch) -> list[Row]:
        """Return the rows of a batch, and one for each file that could not be read."""

    def heatmaps(self, batch: Batch) -> list[Heatmap]:
        """Return the heatmap of each method."""

    def is_right(self, row: Row) -> bool:
        """Tell whether a row with an IoU counts for the scores that are shown on the way."""


@dataclass
class Running:
    """The scores so far: share of images that are right, a method."""

    right: dict[str, int] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)

    def add(self, rows: Sequence[Row], trial: Trial) -> None:
        for row in rows:
            if "iou" in row:
                name = row["method"]
                self.right[name] = self.right.get(name, 0) + trial.is_right(row)
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
    running.add(list(file.rows()), trial)
    done = min(file.blocks_done * size, len(dataset.samples))
    if watch is not None:
        watch(done, len(dataset.samples), running.scores())
    for block, batch in enumerate(
        batches(dataset.samples[done:], trial.view, size, workers=workers), start=file.blocks_done
    ):
        rows = trial.measure(batch)
        file.append(block, rows)
        running.add(rows, trial)
        done = min(done + size, len(dataset.samples))
        if watch is not None:
            watch(done, len(dataset.samples), running.scores())
    return file


def maps_of(heatmaps: Sequence[Heatmap]) -> NDArray[np.float32]:
    """The maps of all methods, (methods, B, H, W)."""
    maps: NDArray[np.float32] = torch.stack([heatmap.maps for heatmap in heatmaps]).cpu().numpy()
    return maps


def outcome_of(heatmap: Heatmap, index: int) -> Row:
    """How the filter of one image was found, where there is one."""
    return {} if heatmap.solution is None else {"outcome": str(heatmap.solution.outcome[index])}


def localisation_rows(maps: NDArray[Any], boxes: Boxes, thresholds: Sequence[float]) -> list[Row]:
    """How the maps (methods, H, W) of one image meet its boxes (n, 4), a method; nothing where it has none."""
    if not len(boxes):
        return [{} for _ in maps]
    overlap = overlap_of(maps, boxes, thresholds=thresholds)
    height, width = maps.shape[-2:]
    foreground = round(foreground_ratio(boxes, width=width, height=height), DIGITS)
    return [
        {
            "iou": _rounded(overlap.largest[number]),
            "best_iou": _rounded(overlap.best[number]),
            "pointed": pointed(heat, boxes),
            "foreground": foreground,
        }
        for number, heat in enumerate(maps)
    ]


def _rounded(values: NDArray[np.float64]) -> list[float]:
    return [round(float(value), DIGITS) for value in values]
