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
    import numpy as np
    import numpy.typing as npt
    from PIL.Image import Image

    from .rendering.drawn import Heat


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
        self._check_flat()
        one, crop = self._one(index, which, signed=signed), self.crops[index]
        laid = crop.lay(one.cpu().numpy(), input_size=(self.size[0], self.size[1]))
        return torch.from_numpy(laid).to(one.device)

    def overlay(
        self,
        image: Any = None,
        index: int = 0,
        *,
        which: int | None = None,
        signed: bool = False,
        preprocess: Any = None,
        **style: Any,
    ) -> Image:
        """Draw one sample's map on what the network was shown: its photograph, volume (d, h, w) or signal.

        The photograph may be left out where the heatmap has it (`model.explain`). It is the whole one where `crops` or
        `preprocess`, what prepared it, tell which part of it the network saw; else it is that part. What the
        network did not see is drawn pale.

        - `which` picks one of several maps; `signed` shows what speaks for and against in two colours.
        - `alpha`: how much of the picture the heat hides, 0 to 1; `cmap`: a colour map of matplotlib.
        - `contours`: outlines at these levels, True for 0.5; `box`: the box of the hottest region, True for a quarter
          of the maximum; `boxes`: others, x0, y0, x1, y1 in pixels of the image.
        - `width`: of the picture, in pixels.
        - `slice`, `spacing`, for a volume: one plane, 12 or ("y", 40), where the rule is three planes through the
          hottest place; how far apart its values are along z, y and x.

        Between the cells of the layer's grid, drawings are bicubic, within the map's own extremes; `maps` is linear.
        """
        image = self._picture(image, index)
        return self._heat(image, index, which, signed=signed, preprocess=preprocess).on(image, **style)

    def plot(
        self,
        image: Any = None,
        index: int = 0,
        *,
        ax: Any = None,
        which: int | None = None,
        signed: bool = False,
        preprocess: Any = None,
        **style: Any,
    ) -> Any:
        """Draw as `overlay` does on matplotlib's axes, in pixels of the image, and give the axes back.

        Without `ax` a figure is made, which is `axes.figure`. `legend=True` adds the colours, `title` words above.
        """
        from .rendering.figures import figure
        from .rendering.vector import plot

        image = self._picture(image, index)
        heat = self._heat(image, index, which, signed=signed, preprocess=preprocess)
        return plot(heat, image, figure(4, 4).subplots() if ax is None else ax, **style)

    def save(
        self,
        path: str | Path,
        image: Any = None,
        index: int = 0,
        *,
        which: int | None = None,
        signed: bool = False,
        preprocess: Any = None,
        dpi: float | None = None,
        **style: Any,
    ) -> Path:
        """Write one sample's map, drawn as `overlay` does; .npy holds the numbers of the whole batch instead.

        Of several maps a picture shows all, side by side, unless `which` picks one. A .pdf or .svg is a figure with
        lines and letters, its photograph at `dpi` pixels per inch; `legend=True` adds the colours to any picture, and
        is the rule where there are two of them (`signed`) or several maps.
        """
        import numpy

        from .files import write_whole
        from .images import save_picture
        from .rendering.vector import DPI, SUFFIXES, save_figure

        path = Path(path)
        if path.suffix == ".npy":
            with write_whole(path) as temporary, temporary.open("wb") as file:
                numpy.save(file, self.maps.cpu().numpy())
            return path
        image = self._picture(image, index)
        chosen = [which] if which is not None or self._several == 1 else [*range(self._several)]
        style.setdefault("legend", signed or len(chosen) > 1)
        heats = [self._heat(image, index, one, signed=signed, preprocess=preprocess) for one in chosen]
        titles = [self._title(index, one) if len(chosen) > 1 and one is not None else "" for one in chosen]
        if path.suffix.lower() in SUFFIXES:
            return save_figure([*zip(titles, heats, strict=True)], image, path, dpi=dpi or DPI, **style)
        return save_picture(_sheet(heats, titles, image, **style), path, dpi=dpi)

    def _picture(self, image: Any, index: int) -> Any:
        """What is drawn on: what the caller gave, or the photograph that the heatmap has."""
        if image is not None:
            return image
        kept = self.crops[index].photograph if self.crops is not None and -len(self) <= index < len(self) else None
        if kept is None:
            raise InputError("A picture of a map needs the image that it lies on: give save(path, image).")
        return kept

    def _heat(self, image: Any, index: int, which: int | None, *, signed: bool, preprocess: Any = None) -> Heat:
        """One map with all that is needed to draw it."""
        from .images import as_photograph
        from .preprocessing import crop_of
        from .rendering.drawn import Heat

        fine = self._one(index, which, signed=signed)
        if preprocess is not None:
            self._check_flat()
            crop: Crop | None = crop_of(preprocess, as_photograph(image))
        else:
            crop = self.crops[index] if self.crops is not None else None
        grid = self.grids(index, signed=signed)[which or 0]
        return Heat(grid, fine.detach().cpu().numpy(), signed, crop)

    def grids(self, index: int, *, signed: bool = False) -> npt.NDArray[np.float32]:
        """One sample's maps on the layer's own grid, the largest magnitude of each 1: (maps, *grid)."""
        weights = self.weights[index].detach().float()
        shown = weights if signed else weights.clamp_min(0) if self.keeps_sign else weights.abs()
        shown = shown if "map" in self.axes else shown.unsqueeze(0)
        largest = shown.abs().flatten(1).amax(dim=1).clamp_min(torch.finfo(torch.float32).tiny)
        return (shown / largest.reshape(-1, *[1] * (shown.ndim - 1))).cpu().numpy()

    def _check_flat(self) -> None:
        if len(self.size) != 2 or "frame" in self.axes:
            raise InputError(f"A map with the axes {', '.join(self.axes[1:])} lies on no photograph: leave this out.")

    def _title(self, index: int, which: int) -> str:
        return f"map {which}" if self.classes is None else f"class {int(self.classes[index, which])}"

    @property
    def _several(self) -> int:
        """How many maps each sample has."""
        return self.weights.shape[1] if "map" in self.axes else 1

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


def _sheet(heats: list[Heat], titles: list[str], image: Any, *, legend: bool, **style: Any) -> Image:
    """One map as it is, or several side by side; under them what the colours mean."""
    from .rendering.grid import grid
    from .rendering.legend import legend as colours
    from .rendering.legend import with_legend

    pictures = [heat.on(image, **style) for heat in heats]
    signed, cmap = heats[0].signed, style.get("cmap")
    if len(pictures) == 1:
        return with_legend(pictures[0], signed=signed, cmap=cmap) if legend else pictures[0]
    height = pictures[0].height
    under = colours(signed=signed, cmap=cmap, size=max(11, height // 20)) if legend else None
    return grid([pictures], titles=[titles], cell_height=height, legend=under)


@lru_cache(maxsize=64)
def _spread(cells: int, length: int) -> Tensor:
    """The matrix that interpolates so many cells linearly to a length."""
    with torch.inference_mode(False):  # it is kept, and must not be known as one of that mode
        unit = torch.eye(cells).unsqueeze(0)
        return torch.nn.functional.interpolate(unit, length, mode="linear", align_corners=False).squeeze(0)
