"""`Heatmap`: where the network looked, at the size of its input."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .errors import InputError, MethodError
from .preprocessing import Crop
from .solution import Solution

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True)
class Heatmap:
    """The maps of a batch and what made them.

    `weights` is the map at the layer's own grid, with its sign; `axes` names its axes: "sample", then "map" where
    several maps per sample were asked for, "frame" where the layer sees the frames of a clip one by one, and "z", "y",
    "x" as far as there are. `maps` is what a person looks at: at the size of the input, between 0 and 1, the largest
    value of each map 1 (a map that shows nothing is all 0). Where the sign means for and against (`keeps_sign`), it is
    the positive part, else the magnitude; `signed` has both, between -1 and 1.

    `call` tells which call of the layer it was, where there are several; `input` which argument of the network the map
    belongs to; `crops`, one per sample, where the input lies on the photograph, where that is known.
    """

    weights: Tensor
    size: tuple[int, ...]
    layer: str
    method: str
    keeps_sign: bool = False
    classes: Tensor | None = None
    solution: Solution | None = None
    axes: tuple[str, ...] = ()
    call: int | None = None
    input: str = "0"
    crops: tuple[Crop, ...] | None = None

    def __post_init__(self) -> None:
        if not self.axes:  # made by hand, from maps alone
            space = ("z", "y", "x")[-len(self.size) :]
            between = ("map",) if self.weights.ndim == len(self.size) + 2 else ()
            object.__setattr__(self, "axes", ("sample", *between, *space))

    @cached_property
    def maps(self) -> Tensor:
        """(B, *size), with the axes of maps and frames before the size where there are any; between 0 and 1."""
        shown = self.weights.clamp_min(0) if self.keeps_sign else self.weights.abs()
        return self._scaled(self._resized(shown))

    @cached_property
    def signed(self) -> Tensor:
        """The same between -1 and 1; negative where a position speaks against."""
        return self._scaled(self._resized(self.weights))

    @property
    def solved(self) -> Solution:
        """How the filters were found, for a method that solves a problem; CAM and its like have no solution."""
        if self.solution is None:
            raise MethodError(f"{self.method} is a formula, so there is no solution to look at: use AttentionFilter.")
        return self.solution

    def __len__(self) -> int:
        return self.weights.shape[0]

    def on_photograph(self, index: int, *, which: int | None = None, signed: bool = False) -> Tensor:
        """One sample's map at the size of its photograph, 0 where the network did not look: (height, width).

        It needs `crops`, which tell where the input lies on the photograph.
        """
        if self.crops is None:
            raise InputError("Where the input lies on the photograph is not known: make the heatmap with crops.")
        one, crop = self._one(index, which, signed=signed), self.crops[index]
        rows, columns = crop.rows, crop.columns
        seen = one[rows.offset : rows.offset + rows.size, columns.offset : columns.offset + columns.size]
        top, bottom = round(rows.start), round(rows.stop)
        left, right = round(columns.start), round(columns.stop)
        whole = one.new_zeros(crop.image_size)
        whole[top:bottom, left:right] = torch.nn.functional.interpolate(
            seen[None, None], (bottom - top, right - left), mode="bilinear", align_corners=False
        )[0, 0]
        return whole

    def overlay(
        self, image: Image, index: int = 0, *, which: int | None = None, signed: bool = False, **style: Any
    ) -> Image:
        """Lay one sample's map over its picture; `which` picks one of several maps, `style` goes to the renderer."""
        from .rendering.overlay import overlay

        return overlay(image, self._one(index, which, signed=signed).cpu().numpy(), signed=signed, **style)

    def save(
        self,
        path: str | Path,
        image: Image | None = None,
        index: int = 0,
        *,
        which: int | None = None,
        signed: bool = False,
        **style: Any,
    ) -> Path:
        """Write one sample's map: .npy holds the numbers of the whole batch, anything else is a picture.

        Of several maps a picture shows all, side by side, unless `which` picks one.
        """
        import numpy

        from .files import write_whole
        from .images import save_picture

        path = Path(path)
        if path.suffix == ".npy":
            with write_whole(path) as temporary, temporary.open("wb") as file:
                numpy.save(file, self.maps.cpu().numpy())
            return path
        if image is None:
            raise InputError("A picture of a map needs the image that it lies on: give save(path, image).")
        if which is None and self._several > 1:
            return save_picture(self._side_by_side(image, index, signed=signed, **style), path)
        return save_picture(self.overlay(image, index, which=which, signed=signed, **style), path)

    @property
    def _several(self) -> int:
        """How many maps each sample has."""
        return self.weights.shape[1] if "map" in self.axes else 1

    def _side_by_side(self, image: Image, index: int, **style: Any) -> Image:
        from .rendering.grid import grid

        pictures = [self.overlay(image, index, which=number, **style) for number in range(self._several)]
        names = range(self._several) if self.classes is None else self.classes[index].tolist()
        word = "map" if self.classes is None else "class"
        return grid([pictures], titles=[[f"{word} {name}" for name in names]], cell_height=pictures[0].height)

    def _one(self, index: int, which: int | None, *, signed: bool) -> Tensor:
        count = self._several
        if not -len(self) <= index < len(self):
            raise InputError(f"There are {len(self)} maps, so index must be below that, not {index}.")
        if which is None and count > 1:
            raise InputError(f"There are {count} maps per sample: choose one with which=0 to which={count - 1}.")
        chosen = which or 0
        if not -count <= chosen < count:
            words = "is 1 map" if count == 1 else f"are {count} maps"
            raise InputError(f"There {words} per sample, so which must be below that, not {which}.")
        one = (self.signed if signed else self.maps)[index]
        return one[chosen] if "map" in self.axes else one

    def _resized(self, weights: Tensor) -> Tensor:
        """Interpolate linearly along one axis after the other, each a product with a small matrix; the last one last,
        which leaves the numbers in order."""
        resized = weights.float()
        # Maps are read wherever it suits, inside an autocast block too, which would make halves of them.
        with torch.autocast(resized.device.type, enabled=False):
            for axis, length in zip(range(-len(self.size), 0), self.size, strict=True):
                spread = _spread(resized.shape[axis], length).to(resized.device)
                resized = resized @ spread if axis == -1 else (spread.T @ resized.movedim(axis, -2)).movedim(-2, axis)
        return resized.contiguous()

    def _scaled(self, maps: Tensor) -> Tensor:
        """Divide every map by its own largest magnitude, in place: a batch of maps is larger than many a head.

        The frames of a clip share one filter, so they share its largest weight.
        """
        axes = tuple(range(-len(self.size) - ("frame" in self.axes), 0))
        largest = torch.maximum(maps.amax(dim=axes, keepdim=True), -maps.amin(dim=axes, keepdim=True))
        return maps.div_(largest.clamp_min_(torch.finfo(maps.dtype).tiny))


@lru_cache(maxsize=64)
def _spread(cells: int, length: int) -> Tensor:
    """The matrix that interpolates so many cells linearly to a length."""
    with torch.inference_mode(False):  # it is kept, and must not be known as one of that mode
        unit = torch.eye(cells).unsqueeze(0)
        return torch.nn.functional.interpolate(unit, length, mode="linear", align_corners=False).squeeze(0)
