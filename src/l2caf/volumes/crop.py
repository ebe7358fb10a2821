"""`VolumeCrop`: where a network's input lies in the scan that it was made from."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..crop import Window
from ..errors import InputError
from .files import Values, Volume, as_volume
from .turn import Floats, Turn, sampled

Size = tuple[int, int, int]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class VolumeCrop:
    """The scan is turned, then cut and resized axis by axis, to the input's `size`.

    Boxes of the input are x0, y0, z0, x1, y1, z1, where x is its last axis, as `Region` takes them; those of the scan
    are i0, j0, k0, i1, j1, k1, as nibabel and viewers count voxels. All are half-open.

    >>> scan = Volume(np.zeros((4, 6, 8), np.float32))
    >>> crop = VolumeCrop(scan, Turn(), (Window(0, 4, 2, 0), Window(0, 6, 2, 0), Window(0, 8, 2, 0)), (2, 2, 2))
    >>> crop.to_scan([[0, 0, 0, 1, 2, 2]]).tolist()
    [[0.0, 0.0, 0.0, 4.0, 6.0, 4.0]]
    """

    scan: Volume = field(compare=False, repr=False)
    turn: Turn
    windows: tuple[Window, Window, Window]
    size: Size

    @property
    def photograph(self) -> Volume:
        """What maps are drawn on."""
        return self.scan

    def to_scan(self, boxes: npt.ArrayLike) -> Floats:
        """Boxes of the input in voxels of the scan; what lies beside the scan is cut off."""
        given = as_boxes(boxes)
        return _ordered(*(self._to_scan(corners[:, ::-1]) for corners in (given[:, :3], given[:, 3:])))

    def to_input(self, boxes: npt.ArrayLike) -> Floats:
        """Boxes of the scan in voxels of the input; what the network was not shown is cut off."""
        given = as_boxes(boxes)
        return _ordered(*(self._to_input(corners)[:, ::-1] for corners in (given[:, :3], given[:, 3:])))

    def voxel(self, place: Size) -> Size:
        """The voxel of the scan that holds the middle of a voxel of the input."""
        found = np.floor(self._to_scan(np.array([place]) + 0.5)[0] - 1e-9).astype(int)
        i, j, k = found.clip(0, np.array(self.scan.shape) - 1).tolist()
        return i, j, k

    def world(self, place: Size) -> tuple[float, float, float]:
        """Where the middle of a voxel of the input lies in the world, in millimetres; padding lies beside the scan."""
        if self.scan.affine is None:
            raise InputError(f"{self.scan.name} does not say where it lies in the world: give the scan as a NIfTI.")
        x, y, z = (self.scan.affine @ [*self._to_scan(np.array([place]) + 0.5, cut=False)[0] - 0.5, 1])[:3].tolist()
        return x, y, z

    def lay(self, heat: npt.NDArray[np.float32]) -> Values:
        """Heat that covers the input, of any fineness, on the grid of the scan, linear; 0 where nothing was shown."""
        laid, shown = heat, []
        for axis, length in enumerate(self.turn.there(self.scan.values).shape):
            middles = np.arange(length) + 0.5
            window = self.windows[axis]
            shown.append((middles >= window.start) & (middles < window.stop))
            laid = sampled(laid, axis, self.cells(axis, middles, heat.shape[axis]))
        i, j, k = shown
        return np.ascontiguousarray(self.turn.back(laid * (i[:, None, None] & j[:, None] & k)))

    def cells(self, axis: int, points: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
        """Points along an axis of the turned scan, on so many cells that cover the input: 0 is the middle of one."""
        window = self.windows[axis]
        inputs = (points - window.start) * window.size / (window.stop - window.start) + window.offset
        return inputs * count / self.size[axis] - 0.5

    def on_input(self, where: Any, *, size: Size | None = None) -> Mask:
        """A region of the scan as a mask on the input, or on another grid that covers it.

        where   a box i0, j0, k0, i1, j1, k1 in voxels of the scan, a mask of its shape, or the file of one
        """
        mask = self.turn.there(self._as_mask(where))
        for axis, count in enumerate(size or self.size):
            window = self.windows[axis]
            inputs = (np.arange(count) + 0.5) * self.size[axis] / count - window.offset
            points = inputs * (window.stop - window.start) / window.size + window.start
            places = np.floor(points).astype(int).clip(0, mask.shape[axis] - 1)
            shown = (points >= window.start) & (points < window.stop)
            mask = mask.take(places, axis) & shown.reshape([-1 if other == axis else 1 for other in range(3)])
        if not mask.any():
            raise InputError(
                f"The region {_called(where)} is empty, or lies where the network is shown nothing of {self.scan.name}:"
                " give one with voxels inside.",
                field="region",
            )
        return np.ascontiguousarray(mask)

    def _as_mask(self, where: Any) -> Mask:
        """A box, or a mask on the scan, as a mask on the scan."""
        if isinstance(where, tuple | list):
            return self._boxed(where)
        given = as_volume(where)
        if given.shape != self.scan.shape:
            raise InputError(
                f"The mask {_called(where)} has the shape {_times(given.shape)}, and {self.scan.name} has"
                f" {_times(self.scan.shape)}: give a mask on the scan's own voxels.",
                field="region",
            )
        if given.affine is not None and self.scan.affine is not None:
            # Rounding in a header is far less than half a voxel at the far corners, another place far more.
            corners = np.diag([*self.scan.shape, 1.0]) + [[0.0], [0.0], [0.0], [1.0]] * np.array([1.0, 1.0, 1.0, 0.0])
            if np.abs(((given.affine - self.scan.affine) @ corners)[:3]).max() > min(self.scan.spacing) / 2:
                raise InputError(
                    f"The mask {_called(where)} lies elsewhere in the world than {self.scan.name} (another affine):"
                    " resample it to the scan first.",
                    field="region",
                )
        return given.values != 0

    def _boxed(self, box: Any) -> Mask:
        said = ",".join(map(str, box))
        if len(box) != 6:
            raise InputError(
                f"The box {said} is no box of a volume: give i0,j0,k0,i1,j1,k1 in voxels of the scan.", field="region"
            )
        if any(first >= last for first, last in zip(box[:3], box[3:], strict=True)):
            raise InputError(
                f"The box {said} is empty: give i0,j0,k0,i1,j1,k1 in voxels of the scan, half-open.", field="region"
            )
        if min(box[:3]) < 0 or any(last > length for last, length in zip(box[3:], self.scan.shape, strict=True)):
            raise InputError(
                f"The box {said} reaches beyond {self.scan.name}, which has {_times(self.scan.shape)} voxels: give"
                " i0,j0,k0,i1,j1,k1 within it.",
                field="region",
            )
        mask = np.zeros(self.scan.shape, np.bool_)
        mask[tuple(slice(int(first), int(last)) for first, last in zip(box[:3], box[3:], strict=True))] = True
        return mask

    def _to_scan(self, points: npt.NDArray[Any], *, cut: bool = True) -> Floats:
        """Points (n, 3) of the input, first axis first, in voxels of the scan."""
        turned = np.empty(points.shape)
        for axis, window in enumerate(self.windows):
            inside = points[:, axis].clip(window.offset, window.offset + window.size) if cut else points[:, axis]
            turned[:, axis] = (inside - window.offset) * (window.stop - window.start) / window.size + window.start
        return self.turn.points_back(turned, self.scan.shape)

    def _to_input(self, points: npt.NDArray[Any]) -> Floats:
        turned = self.turn.points_there(np.asarray(points, np.float64), self.scan.shape)
        for axis, window in enumerate(self.windows):
            inside = turned[:, axis].clip(window.start, window.stop) - window.start
            turned[:, axis] = inside * window.size / (window.stop - window.start) + window.offset
        return turned


def as_boxes(boxes: npt.ArrayLike) -> Floats:
    """Any list of boxes of volumes as an array (n, 6) of its own."""
    array = np.array(boxes, np.float64)
    if array.size == 0:
        return np.zeros((0, 6))
    if array.ndim != 2 or array.shape[1] != 6:
        raise InputError(
            f"Boxes of shape {array.shape} were given: give (n, 6), the first corner and the last of each."
        )
    return array


def _ordered(one: Floats, other: Floats) -> Floats:
    """Two corners of boxes, the lower first: a flipped axis swaps them."""
    return np.concatenate([np.minimum(one, other), np.maximum(one, other)], axis=1)


def _called(where: Any) -> str:
    return f"'{where}'" if isinstance(where, str | Path) else ""


def _times(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))
