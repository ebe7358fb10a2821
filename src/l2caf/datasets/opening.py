"""A sample as an upright image with the boxes in its own pixels."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from PIL import Image

from l2caf.errors import DatasetError
from l2caf.images import open_image

from .dataset import Boxes, Sample

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


def turn(boxes: Boxes, *, size: tuple[int, int], orientation: int) -> Boxes:
    """Boxes on an image of size (width, height), after an EXIF orientation has turned it upright.

    >>> turn(np.array([[0.0, 0.0, 2.0, 1.0]]), size=(4, 3), orientation=6)  # a quarter turn clockwise
    array([[2., 0., 3., 2.]])
    """
    width, height = size
    x0, y0, x1, y1 = boxes.T
    if orientation in (2, 3, 7, 8):
        x0, x1 = width - x1, width - x0
    if orientation in (3, 4, 6, 7):
        y0, y1 = height - y1, height - y0
    if orientation >= 5:  # these swap rows and columns; the flip of one of them came first
        x0, y0, x1, y1 = y0, x0, y1, x1
    return np.stack([x0, y0, x1, y1], axis=1)


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
