"""What is measured on one image, as rows that go to disk and come back.

A row is one of three: a file that could not be used, an image under one method, or an image as a vector. `as_dict` is
the line of the file, and `row_of` reads it.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..boxes import Boxes
from ..localization import boxes_of, overlap_of
from ..preprocessing import Crop, viewed
from ..retrieval.embed import ImageVector
from ..runs.rows import Row, Unusable
from ..runs.work import Work
from .metrics import foreground_ratio, pointed

if TYPE_CHECKING:
    from ..datasets.loading import Batch, Prepares
    from ..heatmap import Heatmap
    from ..networks.model import Model

THRESHOLD = 0.2  # the share of the maximum at which CAM and the paper cut a map
THRESHOLDS = (0.05, 0.1, 0.15, THRESHOLD, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7)
DIGITS = 9  # more than any score needs, and few enough that a file does not drown in noise


@dataclass(frozen=True)
class MapOverlap:
    """How one map meets the boxes of its image.

    iou, best_iou   at each threshold: of the largest component's box, and of the best of all components' boxes
    pointed         whether the maximum lies in a box
    foreground      the share of the image inside the boxes
    boxes           of the largest component at each threshold, x0, y0, x1, y1, half-open, in pixels of the input
    truth           the boxes of the image, likewise, as far as the network saw them
    boxes_on_photograph, truth_on_photograph   the same in pixels of the upright photograph
    """

    iou: tuple[float, ...]
    best_iou: tuple[float, ...]
    pointed: bool
    foreground: float
    boxes: tuple[tuple[int, ...], ...] = ()
    truth: tuple[tuple[float, ...], ...] = ()
    boxes_on_photograph: tuple[tuple[float, ...], ...] = ()
    truth_on_photograph: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True)
class Mapped:
    """An image under one method.

    top       the best classes, or the labels of the nearest neighbours, best first; None while they are not known
    label     None where it is no class of the network, or not known yet
    outcome   how the filter was found; None of a method without a filter
    overlap   None where the image has no box
    """

    image: str
    method: str
    label: int | None = None
    top: tuple[int, ...] | None = None
    outcome: str | None = None
    overlap: MapOverlap | None = None

    def as_dict(self) -> Row:
        row: Row = {"image": self.image, "method": self.method}
        if self.top is not None:
            row |= {"label": self.label, "top": list(self.top)}
        if self.outcome is not None:
            row["outcome"] = self.outcome
        return row if self.overlap is None else {**row, **_listed(self.overlap)}


BOXES = ("boxes", "truth", "boxes_on_photograph", "truth_on_photograph")
Measurement = Unusable | ImageVector | Mapped


def row_of(row: Row) -> Measurement:
    """Read a line of the file.

    >>> row_of({"image": "a.png", "error": "it is empty"})
    Unusable(image='a.png', error='it is empty')
    >>> row_of(Mapped("a.png", "cam", 3, (3, 1)).as_dict())
    Mapped(image='a.png', method='cam', label=3, top=(3, 1), outcome=None, overlap=None)
    """
    if "error" in row:
        return Unusable(row["image"], row["error"])
    if "embedding" in row:
        return ImageVector.from_dict(row)
    top = row.get("top")
    overlap = None
    if "iou" in row:
        # Older runs have fewer of them.
        boxes: dict[str, Any] = {key: tuple(map(tuple, row.get(key, ()))) for key in BOXES}
        numbers = tuple(row["iou"]), tuple(row["best_iou"]), row["pointed"], row["foreground"]
        overlap = MapOverlap(*numbers, **boxes)
    return Mapped(
        row["image"], row["method"], row.get("label"), None if top is None else tuple(top), row.get("outcome"), overlap
    )


class MapWork(Work):
    """Work that measures the maps of several methods at a sweep of thresholds."""

    methods: tuple[str, ...]
    thresholds: tuple[float, ...]

    @abc.abstractmethod
    def heatmaps(self, model: Model, batch: Batch) -> list[Heatmap]:
        """The heatmap of each method; maps are not kept while thousands are measured, so a report makes some anew."""


def seen_through(model: Model, view: str) -> Prepares:
    """How pictures reach the network in a view; one that prepares them itself has no other than its own."""
    return model.preprocess if view == "crop" else viewed(model.preprocess, view)


def overlaps_of(
    maps: NDArray[np.float32], boxes: Boxes, thresholds: Sequence[float], crop: Crop | None = None
) -> list[MapOverlap | None]:
    """How the maps (methods, H, W) of one image meet its boxes (n, 4), per method; None where it has no box.

    crop   where the input lies on the photograph
    """
    if not len(boxes):
        return [None for _ in maps]
    overlap = overlap_of(maps, boxes, thresholds=thresholds)
    height, width = maps.shape[-2:]
    foreground = round(foreground_ratio(boxes, width=width, height=height), DIGITS)
    found = boxes_of(maps, thresholds)
    truth = _edges(boxes)
    truth_there = () if crop is None else _edges(crop.to_image(boxes))
    return [
        MapOverlap(
            _rounded(overlap.largest[number]),
            _rounded(overlap.best[number]),
            pointed(heat, boxes),
            foreground,
            tuple(map(tuple, found[number].tolist())),
            truth,
            () if crop is None else _there(found[number], crop),
            truth_there,
        )
        for number, heat in enumerate(maps)
    ]


def maps_of(heatmaps: Sequence[Heatmap]) -> NDArray[np.float32]:
    """The maps of all methods, (methods, B, H, W)."""
    import torch

    maps: NDArray[np.float32] = torch.stack([heatmap.maps for heatmap in heatmaps]).cpu().numpy()
    return maps


def outcome_of(heatmap: Heatmap, index: int) -> str | None:
    """How the filter of one image was found, where there is one."""
    return None if heatmap.solution.is_formula else str(heatmap.solution.outcome[index])


def _edges(boxes: NDArray[np.float64]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(round(float(edge), 2) for edge in box) for box in boxes)


def _there(boxes: NDArray[np.int64], crop: Crop) -> tuple[tuple[float, ...], ...]:
    """Boxes of the input on the photograph; that of a map that shows nothing stays 0, 0, 0, 0."""
    return _edges(np.where(boxes.any(axis=1, keepdims=True), crop.to_image(boxes), 0.0))


def _rounded(values: NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(round(float(value), DIGITS) for value in values)


def _listed(overlap: MapOverlap) -> Row:
    known = {key: value for key, value in asdict(overlap).items() if value != () or key in ("boxes", "truth")}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in known.items()}
