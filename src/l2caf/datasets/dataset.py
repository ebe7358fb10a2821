"""Samples, datasets of them, and a sample opened: an upright image with the boxes in its own pixels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from ..boxes import Boxes, as_boxes, turn
from ..errors import DatasetError, InputError
from ..images import open_image

_ORIENTATION = 0x0112
_LEAST_INSIDE = 0.5


class Opened(NamedTuple):
    """An upright RGB image, and boxes (n, 4) that lie inside of it."""

    image: Image.Image
    boxes: Boxes


def open_sample(sample: Sample) -> Opened:
    """Read the image, and bring the boxes to its pixels.

    Public boxes were drawn on the pixels as stored, so an image that its EXIF tag turns upright takes its
    boxes along. Where they were made for an image of another size, they are scaled, if the shape is the same:
    a copy of another shape was cut or stretched, and nobody can tell which. What hangs over the edge is cut
    off; a box with less than half of it inside belongs to another image or size.
    """
    image = open_image(sample.path)
    if not len(sample.boxes):
        return Opened(image, sample.boxes)
    orientation = _orientation(sample) if sample.stored else 1
    turned = orientation >= 5
    size = (image.height, image.width) if turned else image.size
    boxes = turn(_scaled(sample, size), size=size, orientation=orientation)
    return Opened(image, _clipped(sample, boxes, image.size))


def _orientation(sample: Sample) -> int:
    try:
        with Image.open(sample.path) as stored:
            found = stored.getexif().get(_ORIENTATION, 1)
    except Exception:  # noqa: BLE001 - the image could be read, so a damaged EXIF block turns nothing
        return 1
    return found if found in range(1, 9) else 1


def _scaled(sample: Sample, size: tuple[int, int]) -> Boxes:
    if sample.size is None or sample.size == size:
        return np.array(sample.boxes)
    across, down = size[0] / sample.size[0], size[1] / sample.size[1]
    both = math.sqrt(across * down)
    for length, given in zip(size, sample.size, strict=True):
        if abs(given * both - length) > max(2, 0.02 * length):  # more than rounding
            raise DatasetError(
                f"'{sample.path}' has {size[0]}×{size[1]} pixels, but its boxes were made for "
                f"{sample.size[0]}×{sample.size[1]}, which is another shape; "
                "take the original image or a copy that was only scaled."
            )
    return np.array(sample.boxes) * (across, down, across, down)


def _clipped(sample: Sample, boxes: Boxes, size: tuple[int, int]) -> Boxes:
    inside = boxes.clip(0, (*size, *size))
    share = _areas(inside) / np.maximum(_areas(boxes), 1e-12)
    if (share < _LEAST_INSIDE).any():
        x0, y0, x1, y1 = boxes[int(np.argmin(share))]
        raise DatasetError(
            f"The box from ({x0:g}, {y0:g}) to ({x1:g}, {y1:g}) lies outside of '{sample.path}', "
            f"which has {size[0]}×{size[1]} pixels; correct the box, or take the image that it was made for."
        )
    return inside


def _areas(boxes: Boxes) -> Boxes:
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


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

    >>> Sample(Path("wren.jpg"), "wren.jpg", label=0).boxes.shape
    (0, 4)
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

    >>> birds = Dataset("birds", (Sample(Path("wren.jpg"), "wren.jpg", label=0),), {0: "wren"})
    >>> len(birds), birds.class_name(0)
    (1, 'wren')
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
            raise InputError(f"A limit of {count} images leaves nothing: give 1 or more.", field="limit")
        total = len(self.samples)
        return replace(self, samples=tuple(self.samples[number * total // count] for number in range(count)))


def index_of_names(names: Sequence[str]) -> dict[str, int]:
    """Class names to labels; a name that stands twice is refused, since it would name two classes."""
    index = {name: label for label, name in enumerate(names)}
    if len(index) < len(names):
        twice = next(name for label, name in enumerate(names) if index[name] != label)
        raise DatasetError(f"The class name {twice!r} is given twice: give each class its own name.")
    return index
