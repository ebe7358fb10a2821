"""What every layout is read into: samples with a label and boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from l2caf.errors import DatasetError, InputError

Boxes: TypeAlias = npt.NDArray[np.float64]
"""Boxes (n, 4): x0, y0, x1, y1, half-open, in pixels."""


def as_boxes(boxes: npt.ArrayLike) -> Boxes:
    """Any list of boxes as an array (n, 4) of its own; no boxes are (0, 4).

    >>> as_boxes([]).shape, as_boxes([[0, 0, 3, 2]]).shape
    ((0, 4), (1, 4))
    """
    array = np.array(boxes, dtype=np.float64)
    if array.size == 0:
        return np.zeros((0, 4))
    if array.ndim != 2 or array.shape[1] != 4:
        raise InputError(f"Boxes of shape {array.shape} were given: give (n, 4), x0, y0, x1, y1 each.")
    return array


@dataclass(frozen=True, eq=False)
class Sample:
    """One image with what is known of it.

    path     the file
    name     unique in its dataset and the same on every machine
    label    index of the class, or None
    boxes    (n, 4), half-open, read-only; n may be 0
    size     (width, height) of the image that the boxes were made for; None: that of the file
    stored   whether the boxes lie on the pixels as stored, before an EXIF tag turns them upright

    A file of another size than `size` is a shrunk copy: `open_sample` brings the boxes to its pixels.
    """

    path: Path
    name: str
    label: int | None = None
    boxes: Boxes = field(default_factory=lambda: np.zeros((0, 4)))
    size: tuple[int, int] | None = None
    stored: bool = False

    def __post_init__(self) -> None:
        boxes = as_boxes(self.boxes)
        boxes.setflags(write=False)
        object.__setattr__(self, "boxes", boxes)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples in a fixed order, and the names of their classes.

    name          what it is, in words
    class_names   by label; a mapping, because a part of a dataset has gaps among its labels
    missing       names of listed images that are not on disk and were left out on request
    """

    name: str
    samples: tuple[Sample, ...]
    class_names: Mapping[int, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for sample in self.samples:
            if sample.name in seen:
                raise DatasetError(f"The image '{sample.name}' stands twice in {self.name}: list each image once.")
            seen.add(sample.name)

    def __len__(self) -> int:
        return len(self.samples)

    def class_name(self, label: int) -> str:
        """The name of a class, or its number where it has none."""
        return self.class_names.get(label, str(label))

    def limit(self, count: int | None) -> Dataset:
        """At most `count` samples, spread evenly over all of them and in the same order.

        Datasets are sorted by class more often than not, so the first ones would all look alike.

        >>> samples = tuple(Sample(Path(f"{n}.png"), name=str(n)) for n in range(10))
        >>> [sample.name for sample in Dataset("numbers", samples).limit(4).samples]
        ['0', '2', '5', '7']
        """
        if count is None or count >= len(self.samples):
            return self
        if count < 1:
            raise InputError(f"A limit of {count} images leaves nothing: give 1 or more.")
        total = len(self.samples)
        return replace(self, samples=tuple(self.samples[number * total // count] for number in range(count)))


def index_of_names(names: Sequence[str]) -> dict[str, int]:
    """Class names to labels; a name that stands twice is refused, since it would name two classes."""
    index = {name: label for label, name in enumerate(names)}
    if len(index) < len(names):
        twice = next(name for label, name in enumerate(names) if index[name] != label)
        raise DatasetError(f"The class name {twice!r} is given twice: give each class its own name.")
    return index
