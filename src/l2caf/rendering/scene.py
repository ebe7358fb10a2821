"""`Scene`: a volume as it is drawn, with its heat: which way up, how far apart its planes are, what they are called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from ..volumes.crop import VolumeCrop
from ..volumes.turn import SIDES, Turn, codes_of, sampled
from .colors import Floats, resized

LEAST, MOST = 320, 900  # pixels of the longest side of a volume: most are coarse, and a screen is not
DARK, BRIGHT = 0.0005, 0.9995  # of the voxels: what is beyond is drawn as black and white, lest one voxel decides
# From the top of a page to its bottom, and from left to right: so that the top of a head is up, its front is up in
# axial planes and left in sagittal ones, and its left is left.
UPRIGHT = "IPR"
PLANES = {"I": "axial", "S": "axial", "A": "coronal", "P": "coronal", "L": "sagittal", "R": "sagittal"}
PLAIN = ("z", "y", "x")
Places = tuple[int, int, int]


@dataclass(frozen=True)
class Axis:
    """One axis of a scene: planes lie along it from the top or the left of the page on.

    name      of the planes that lie across it: "axial", or "z" where nobody says how the volume lies
    stored    what their number is called, "k", and `of` turns a plane into that number
    letters   the sides of a person at its first and its last plane; empty where they are not known
    spacing   between planes, in millimetres
    shown     from where to where the network was shown something, in planes
    cells     points in planes as places in the cells of a grid of this many that covers the input
    """

    name: str
    stored: str
    length: int
    spacing: float
    letters: tuple[str, str]
    flipped: bool
    shown: tuple[float, float]
    cells: Callable[[npt.NDArray[np.floating[Any]], int], npt.NDArray[np.floating[Any]]]

    def number(self, plane: int) -> int:
        """What the file counts a plane as; and back."""
        return self.length - 1 - plane if self.flipped else plane

    def title(self, plane: int) -> str:
        named = self.stored if self.name == self.stored else f"{self.name}, {self.stored}"
        return f"{named} = {self.number(plane)} of {self.length}"

    def across(self, pixels: int) -> npt.NDArray[np.float64]:
        """The middles of so many pixels that show all of it, in planes."""
        return (np.arange(pixels) + 0.5) * self.length / pixels


@dataclass(frozen=True)
class Scene:
    """A volume (z, y, x) between 0 and 1, z from the top down, y from the front back or down, x to the right.

    order  which axis of the input each of the three is
    """

    grey: Floats
    axes: tuple[Axis, Axis, Axis]
    order: Places
    crop: VolumeCrop | None = None

    @classmethod
    def of_input(cls, values: Any, *, spacing: Any = None, window: Any = None) -> Scene:
        """What the network saw, as its axes lie: nothing else is known of it."""
        grey = _grey(np.asarray(values, np.float32), window)
        steps = checked_spacing((1.0, 1.0, 1.0) if spacing is None else spacing)

        def axis(place: int) -> Axis:
            length = grey.shape[place]
            return Axis(
                PLAIN[place],
                PLAIN[place],
                length,
                steps[place],
                ("", ""),
                False,
                (0.0, float(length)),
                lambda points, count: points * count / length - 0.5,
            )

        return cls(grey, (axis(0), axis(1), axis(2)), (0, 1, 2))

    @classmethod
    def of_scan(cls, crop: VolumeCrop, *, spacing: Any = None, window: Any = None) -> Scene:
        """The scan that the input was made from, upright where it says how it lies."""
        scan = crop.scan
        if spacing is not None and scan.affine is not None:
            raise InputError(f"{scan.name} says itself how far apart its voxels are: leave this out.", field="spacing")
        turn = Turn.of(scan.affine, UPRIGHT)
        steps = scan.spacing if spacing is None else checked_spacing(spacing)
        codes = "" if scan.affine is None else codes_of(scan.affine)
        found = [_axis_of_scan(crop, turn, place, steps, codes) for place in range(3)]
        z, y, x = (crop.turn.axes.index(axis) for axis in turn.axes)
        grey = _grey(np.ascontiguousarray(turn.there(scan.values)), window)
        return cls(grey, (found[0], found[1], found[2]), (z, y, x), crop)

    def ordered(self, grid: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """What covers the input, with its axes in the order of the scene; flips are left to `cells`."""
        return grid.transpose(*self.order, *range(3, grid.ndim))

    def place(self, peak: Sequence[int], size: Sequence[int]) -> Places:
        """A voxel of an input of this size as planes of the scene."""
        found = []
        for axis, of_input in zip(self.axes, self.order, strict=True):
            # The plane whose own middle comes nearest to it.
            cells = axis.cells(np.arange(axis.length) + 0.5, size[of_input])
            found.append(int(np.abs(cells - peak[of_input]).argmin()))
        z, y, x = found
        return z, y, x

    def named(self, plane: Any) -> tuple[int, int]:
        """An axis and a plane along it, from 12, ("axial", 90) or ("y", 40), counted as the file counts."""
        name, number = plane if isinstance(plane, tuple) and len(plane) == 2 else (self.axes[0].name, plane)
        at = self.along(name, field="slice", said=f"slice={plane!r} names no plane")
        axis = self.axes[at]
        if isinstance(number, bool) or not isinstance(number, int | np.integer):
            raise InputError(f"slice={plane!r} names no plane; {self._known()}.", field="slice")
        if not -axis.length <= number < axis.length:
            raise InputError(
                f"There are {axis.length} planes along {axis.name}, so slice must be below that.", field="slice"
            )
        return at, axis.number(int(number) % axis.length)

    def along(self, name: Any, *, field: str, said: str = "") -> int:
        """The axis that the planes of a name lie along: "axial", or "k" as the file has it, or "z"."""
        for place, axis in enumerate(self.axes):
            if name in (axis.name, axis.stored):
                return place
        raise InputError(f"{said or f'{name!r} names no planes'}; {self._known()}.", field=field)

    def _known(self) -> str:
        z, y, _ = (axis.name for axis in self.axes)
        names = ", ".join(axis.name for axis in self.axes)
        return f"give a number along {z}, or such as ({y!r}, 40), of {names}"

    @property
    def scale(self) -> float:
        """Pixels for a millimetre, the same for all planes."""
        lengths = [axis.length * axis.spacing for axis in self.axes]
        finest = 1.0 / min(axis.spacing for axis in self.axes)
        return min(max(finest, LEAST / max(lengths)), MOST / max(lengths))

    def size(self, across: int, scale: float | None = None) -> tuple[int, int]:
        """Width and height in pixels of the planes across an axis, in their true proportions."""
        down, right = (self.axes[other] for other in range(3) if other != across)
        wide, high = (axis.length * axis.spacing * (scale or self.scale) for axis in (right, down))
        return max(1, round(wide)), max(1, round(high))

    def under(self, across: int, plane: int, size: tuple[int, int]) -> Floats:
        """A plane of the volume, in so many pixels."""
        return resized(np.ascontiguousarray(self.grey.take(plane, across)), size).clip(0, 1)

    def heat(self, grid: Floats, across: int, plane: int, size: tuple[int, int]) -> Floats:
        """Heat on a plane, (height, width), smooth between the cells of its grid and never beyond their extremes."""
        found = self.ordered(grid)
        down, right = (other for other in range(3) if other != across)
        points = {across: np.array([plane + 0.5]), down: self.axes[down].across(size[1])}
        points[right] = self.axes[right].across(size[0])
        for place, at in points.items():
            found = sampled(found, place, self.axes[place].cells(at, found.shape[place]), smooth=True)
        shown = [self._is_shown(place, points[place]) for place in range(3)]
        found = found.clip(grid.min(), grid.max()) * (shown[0][:, None, None] & shown[1][:, None] & shown[2])
        return np.ascontiguousarray(found.squeeze(across), np.float32)

    def nearest(self, grid: npt.NDArray[Any], across: int, plane: int, size: tuple[int, int]) -> npt.NDArray[Any]:
        """What each cell of a grid holds, on a plane: of masks and colours, which have nothing in between."""
        found = self.ordered(grid)
        down, right = (other for other in range(3) if other != across)
        points = {across: np.array([plane + 0.5]), down: self.axes[down].across(size[1])}
        points[right] = self.axes[right].across(size[0])
        for place, at in points.items():
            cells = np.rint(self.axes[place].cells(at, found.shape[place])).astype(int)
            found = found.take(cells.clip(0, found.shape[place] - 1), place)
        return found.squeeze(across)

    def seen(self, across: int, size: tuple[int, int]) -> tuple[int, int, int, int] | None:
        """x0, y0, x1, y1 of what the network was shown of the planes across an axis; None where that is all."""
        down, right = (other for other in range(3) if other != across)
        x0, x1 = self._pixels(right, self.axes[right].shown, size[0])
        y0, y1 = self._pixels(down, self.axes[down].shown, size[1])
        return None if (x0, y0, x1, y1) == (0, 0, *size) or x1 <= x0 or y1 <= y0 else (x0, y0, x1, y1)

    def edges(self, box: Any, *, on_scan: bool) -> list[tuple[float, float]]:
        """A box of the input, x0, y0, z0, x1, y1, z1, or of the scan, i0, j0, k0, i1, j1, k1, along each axis."""
        if len(box) != 6:
            raise InputError(f"{tuple(box)} is no box of a volume: give the first corner and the last.", field="boxes")
        if self.crop is None:
            return [(float(box[2 - place]), float(box[5 - place])) for place in range(3)]
        corners = box if on_scan else self.crop.to_scan([box])[0]
        found = []
        for axis, of_input in zip(self.axes, self.order, strict=True):
            of_scan = self.crop.turn.axes[of_input]
            low, high = float(corners[of_scan]), float(corners[of_scan + 3])
            found.append((axis.length - high, axis.length - low) if axis.flipped else (low, high))
        return found

    def cut(
        self, edges: Sequence[tuple[float, float]], across: int, plane: int, size: tuple[int, int]
    ) -> tuple[float, float, float, float] | None:
        """Where a box, given from where to where in planes of each axis, cuts a plane; None where it does not."""
        down, right = (other for other in range(3) if other != across)
        if not edges[across][0] <= plane + 0.5 < edges[across][1]:
            return None
        x0, x1 = (edge * size[0] / self.axes[right].length for edge in edges[right])
        y0, y1 = (edge * size[1] / self.axes[down].length for edge in edges[down])
        return (x0, y0, x1, y1) if round(x1) > round(x0) and round(y1) > round(y0) else None

    def _pixels(self, place: int, ends: tuple[float, float], pixels: int) -> tuple[int, int]:
        first, last = (round(end * pixels / self.axes[place].length) for end in ends)
        return max(0, first), min(pixels, last)

    def _is_shown(self, place: int, points: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
        start, stop = self.axes[place].shown
        return (points >= start) & (points < stop)


def _axis_of_scan(crop: VolumeCrop, turn: Turn, place: int, steps: tuple[float, float, float], codes: str) -> Axis:
    scan_axis, flipped = turn.axes[place], turn.flipped[place]
    of_input = crop.turn.axes.index(scan_axis)
    length, window = crop.scan.shape[scan_axis], crop.windows[of_input]
    turned = flipped != crop.turn.flipped[of_input]  # against the input's own direction
    start, stop = window.start, window.stop
    letters = ("", "")
    if codes:
        pair = next(pair for pair in SIDES if codes[scan_axis] in pair)
        letters = (pair[1], pair[0]) if (codes[scan_axis] == pair[0]) != flipped else (pair[0], pair[1])
    return Axis(
        PLANES[codes[scan_axis]] if codes else PLAIN[place],
        "ijk"[scan_axis] if codes else PLAIN[place],
        length,
        steps[scan_axis],
        letters,
        flipped,
        (length - stop, length - start) if turned else (start, stop),
        lambda points, count: crop.cells(of_input, length - points if turned else points, count),
    )


def checked_spacing(spacing: Any) -> tuple[float, float, float]:
    """How far apart values are along z, y and x."""
    try:
        z, y, x = (float(step) for step in spacing)
    except (TypeError, ValueError):
        z = y = x = 0.0
    if not (0 < z < np.inf and 0 < y < np.inf and 0 < x < np.inf):
        raise InputError(f"The spacing is {spacing!r}; give three lengths above 0, for z, y and x.", field="spacing")
    return z, y, x


def _grey(values: Floats, window: Any) -> Floats:
    """A volume between 0 and 1, by what most of its voxels span, or by two values of its own."""
    if values.ndim != 3 or values.size == 0 or not np.isfinite(values).all():
        raise InputError(f"A volume of shape {values.shape} cannot be drawn; give finite values (d, h, w).")
    if window is None:
        thinned = values[tuple(slice(None, None, max(1, length // 64)) for length in values.shape)]
        low, high = (float(end) for end in np.quantile(thinned, (DARK, BRIGHT)))
        if high <= low:
            low, high = float(values.min()), float(values.max())
    elif isinstance(window, tuple | list) and len(window) == 2 and window[0] < window[1]:
        low, high = window
    else:
        raise InputError(f"The window is {window!r}: give two values, black and white.", field="window")
    return ((values - low) / max(high - low, 1e-12)).clip(0, 1).astype(np.float32)
