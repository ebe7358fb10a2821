"""`Turn`: a scan with its axes in another order and direction, and back; interpolation along one axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from .files import Affine

Floats = npt.NDArray[np.float64]
SIDES = ("LR", "PA", "IS")  # of a person: left and right, back and front, bottom and top


@dataclass(frozen=True)
class Turn:
    """Along which axis of the scan each axis of the turned one runs, and whether against it.

    >>> turn = Turn((2, 1, 0), (True, False, False))
    >>> turn.there(np.zeros((10, 20, 30))).shape, turn.back(turn.there(np.arange(6).reshape(1, 2, 3))).tolist()
    ((30, 20, 10), [[[0, 1, 2], [3, 4, 5]]])
    """

    axes: tuple[int, int, int] = (0, 1, 2)
    flipped: tuple[bool, bool, bool] = (False, False, False)

    @classmethod
    def of(cls, affine: Affine | None, orientation: str | None) -> Turn:
        """Such that the axes run to these sides, by the nearest of the scan's own: "RAS" to right, front and top.

        A scan that does not say how it lies, and one for which no orientation is asked, stays as it is.
        """
        if affine is None or orientation is None:
            return cls()
        from nibabel import orientations

        wanted = orientations.axcodes2ornt(tuple(checked_orientation(orientation)))
        steps = orientations.ornt_transform(orientations.io_orientation(affine), wanted)
        i, j, k = (int(np.flatnonzero(steps[:, 0] == axis)[0]) for axis in range(3))
        return cls((i, j, k), (bool(steps[i, 1] < 0), bool(steps[j, 1] < 0), bool(steps[k, 1] < 0)))

    def there(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Values of the scan, turned; a view."""
        return values.transpose(self.axes)[self._steps]

    def back(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Turned values as the scan has them; a view."""
        return values[self._steps].transpose(np.argsort(self.axes))

    def points_back(self, points: Floats, shape: tuple[int, int, int]) -> Floats:
        """Points (n, 3) of the turned scan, as the scan of this shape counts; whole numbers lie between voxels.

        >>> Turn((2, 1, 0), (True, False, False)).points_back(np.array([[1.0, 2.0, 3.0]]), (10, 20, 30)).tolist()
        [[3.0, 2.0, 29.0]]
        """
        found = np.empty_like(points)
        for place, (axis, flip) in enumerate(zip(self.axes, self.flipped, strict=True)):
            found[:, axis] = shape[axis] - points[:, place] if flip else points[:, place]
        return found

    def points_there(self, points: Floats, shape: tuple[int, int, int]) -> Floats:
        """Points of the scan, on the turned one."""
        pairs = zip(self.axes, self.flipped, strict=True)
        return np.stack([shape[axis] - points[:, axis] if flip else points[:, axis] for axis, flip in pairs], axis=1)

    @property
    def _steps(self) -> tuple[slice, ...]:
        return tuple(slice(None, None, -1 if flip else 1) for flip in self.flipped)


def checked_orientation(orientation: Any) -> str:
    """Three sides, one of each pair, or one sentence.

    >>> checked_orientation("lps")
    'LPS'
    """
    named = orientation.upper() if isinstance(orientation, str) else ""
    if len(named) != 3 or sorted("".join(pair) for side in named for pair in SIDES if side in pair) != sorted(SIDES):
        raise InputError(
            f"The orientation {orientation!r} names no three sides: give such as 'RAS' (axes to the right, the front"
            " and the top), 'LPS' or 'SAR', or None to leave volumes as they are stored.",
            field="orientation",
        )
    return named


def codes_of(affine: Affine) -> str:
    """To which sides of a person the axes of a scan run, as nearly as they do: "LIA"."""
    from nibabel import orientations

    return "".join(orientations.aff2axcodes(affine))


def sampled(
    values: npt.NDArray[Any], axis: int, places: npt.NDArray[np.floating[Any]], *, smooth: bool = False
) -> npt.NDArray[np.float32]:
    """Values at places along an axis, in cells counted from the middle of the first; beyond the ends the outermost.

    smooth   by cubic curves (Catmull-Rom), for the eye; else linear

    >>> sampled(np.array([0.0, 4.0, 8.0]), 0, np.array([-1.0, 0.5, 2.0])).tolist()
    [0.0, 2.0, 8.0]
    """
    lower = np.floor(places).astype(np.int64)
    beyond = places - lower
    shape = [-1 if other == axis else 1 for other in range(values.ndim)]
    total: Any = 0.0
    for step in (-1, 0, 1, 2) if smooth else (0, 1):
        weights = (_cubic if smooth else _linear)(np.abs(beyond - step)).astype(np.float32).reshape(shape)
        if weights.any():
            total = (
                total + values.take((lower + step).clip(0, values.shape[axis] - 1), axis).astype(np.float32) * weights
            )
    return np.asarray(total, np.float32)


def _linear(distance: Floats) -> Floats:
    return np.maximum(1 - distance, 0.0)


def _cubic(distance: Floats) -> Floats:
    near = (1.5 * distance - 2.5) * distance**2 + 1
    far = ((-0.5 * distance + 2.5) * distance - 4) * distance + 2
    return np.where(distance < 1, near, np.where(distance < 2, far, 0.0))
