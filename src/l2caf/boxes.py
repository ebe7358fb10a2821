"""Boxes: x0, y0, x1, y1 in pixels, half-open; the box of the single pixel (x, y) is x, y, x + 1, y + 1."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike, NDArray

from .errors import InputError

Floats = NDArray[np.float64]


def iou(boxes_a: ArrayLike, boxes_b: ArrayLike) -> Floats:
    """Divide the area that two boxes share by the area that they cover: (..., 4) and (..., 4), broadcast.

    An empty box (no width or no height) has an IoU of 0 with everything, itself included.

    >>> iou([0, 0, 2, 2], [[1, 0, 3, 2], [0, 0, 2, 2]]).round(3).tolist()
    [0.333, 1.0]
    """
    a, b = _corners(boxes_a), _corners(boxes_b)
    shared = _area(np.maximum(a[..., :2], b[..., :2]), np.minimum(a[..., 2:], b[..., 2:]))
    covered = _area(a[..., :2], a[..., 2:]) + _area(b[..., :2], b[..., 2:]) - shared
    return np.divide(shared, covered, out=np.zeros_like(shared), where=covered > 0)


def best_iou(boxes: ArrayLike, truths: ArrayLike) -> Floats:
    """Give each box (..., 4) its highest IoU with any of the true boxes (n, 4); 0 where there are none.

    >>> float(best_iou([0, 0, 2, 2], [[1, 0, 3, 2], [0, 0, 2, 2]]))
    1.0
    """
    given = _corners(boxes)
    real = _corners(truths).reshape(-1, 4)
    return iou(given[..., None, :], real).max(axis=-1, initial=0.0)


def _corners(boxes: ArrayLike) -> Floats:
    corners = np.asarray(boxes, np.float64)
    if corners.size == 0 and corners.ndim == 1:
        return corners.reshape(0, 4)  # [] stands for no boxes
    if corners.shape[-1:] != (4,):
        raise InputError(f"A box is x0, y0, x1, y1, but the shape is {corners.shape}; give an array (..., 4).")
    return corners


def _area(low: Floats, high: Floats) -> Floats:
    return np.maximum(high - low, 0.0).prod(axis=-1)


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


class MapBoxes(np.ndarray):
    """Boxes (n, 4) of a map, which say what they are measured on: "input" or "photograph".

    So drawings put them where they belong, whatever they are drawn on. A row or a part says so too; what was computed
    from them is a plain array, since it may be measured on anything.

    >>> boxes = MapBoxes.on_a([[1, 2, 3, 4]], "input")
    >>> boxes[0].on, type(2 * boxes).__name__
    ('input', 'ndarray')
    """

    on: str | None

    @classmethod
    def on_a(cls, boxes: npt.ArrayLike, what: str) -> MapBoxes:
        """The same boxes, measured on the network's "input" or on the "photograph"."""
        made = np.asarray(boxes).view(cls)
        made.on = what
        return made

    def __array_finalize__(self, source: object) -> None:
        self.on = getattr(source, "on", None)

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        plain = np.asarray(array)
        return plain[()] if return_scalar or plain.ndim == 0 else plain

    def __reduce__(self) -> Any:
        return MapBoxes.on_a, (np.asarray(self), self.on)


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
