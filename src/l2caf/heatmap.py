"""`Heatmap`: where the network looked, at the size of its input."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from .boxes import MapBoxes
from .drawings import (
    boxes_for,
    cells_of,
    check_ending,
    check_flat,
    heat_of,
    map_of,
    maps_per_sample,
    picture_of,
    with_boxes,
)
from .errors import InputError
from .preprocessing import Crop
from .rendering.region import OutputRegion
from .solution import Outcome, Solution, alone, chosen_samples, same
from .volumes import VolumeCrop

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from PIL.Image import Image


@dataclass(frozen=True, eq=False, repr=False)
class Heatmap:
    """The maps of a batch and what made them.

    `weights` is the map at the layer's own grid, with its sign; `axes` names its axes: "sample", then "map" where
    several maps per sample were asked for, "frame" where the layer sees the frames of a clip one by one, and "z", "y",
    "x" as far as there are. `maps` is what a person looks at: at the size of the input, between 0 and 1, the largest
    value of each map 1 (a map that shows nothing is all 0). Where the sign means for and against (`keeps_sign`), it is
    the positive part, else the magnitude; `signed` has both, between -1 and 1.

    `call` tells which call of the layer it was, where there are several; `input` which argument of the network the map
    belongs to; `crops`, one per sample, where the input lies on the photograph, where that is known; `class_names` what
    drawings call the classes; `region` the part of the output that was asked about (`Region`), drawn beside the maps.
    `solution` tells how the maps were found, and `outcome` how well.

    It is a collection of its samples: `heatmap[1]` and `heatmap[:2]` are heatmaps of some of them (of one, a batch of
    one), and `for one in heatmap` goes through them one by one. It can be compared, copied and pickled.

    >>> import l2caf
    >>> network = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 4, stride=4), torch.nn.AdaptiveAvgPool2d(1))
    >>> heatmap = l2caf.explain(network, torch.rand(2, 3, 32, 32))
    >>> heatmap
    Heatmap(2 samples of 32×32, layer '0', AttentionFilter, exact)
    >>> heatmap[1].maps.shape, heatmap.numpy().dtype, heatmap[1] == heatmap[-1]
    (torch.Size([1, 32, 32]), dtype('float32'), True)
    """

    weights: Tensor
    size: tuple[int, ...]
    layer: str
    method: str
    keeps_sign: bool = False
    classes: Tensor | None = None
    solution: Solution = None  # type: ignore[assignment]  # of a heatmap made by hand, what a formula has
    axes: tuple[str, ...] = ()
    call: int | None = None
    input: str = "0"
    crops: tuple[Crop, ...] | None = None
    class_names: tuple[str, ...] = ()
    region: OutputRegion | None = None
    scans: tuple[VolumeCrop, ...] | None = None

    def __post_init__(self) -> None:
        if not self.axes:  # made by hand, from maps alone
            space = ("z", "y", "x")[-len(self.size) :]
            between = ("map",) if self.weights.ndim == len(self.size) + 2 else ()
            object.__setattr__(self, "axes", ("sample", *between, *space))
        given: Solution | None = self.solution
        if given is None:
            said = [[Outcome.FORMULA] * maps_per_sample(self)] * len(self) if "map" in self.axes else None
            object.__setattr__(self, "solution", Solution.of_formula(self.method, self.weights, said))

    @cached_property
    def maps(self) -> Tensor:
        """(B, *size), with the axes of maps and frames before the size where there are any; between 0 and 1."""
        shown = self.weights.clamp_min(0) if self.keeps_sign else self.weights.abs()
        return self._scaled(self._resized(shown), signed=False)

    @cached_property
    def signed(self) -> Tensor:
        """The same between -1 and 1; negative where a position speaks against."""
        return self._scaled(self._resized(self.weights))

    @property
    def solved(self) -> Solution:
        """The same as `solution`."""
        return self.solution

    @property
    def outcome(self) -> list[Outcome] | list[list[Outcome]]:
        """How the search for each sample's map ended; with several maps per sample, a list of lists."""
        return self.solution.outcome

    @property
    def frame_weights(self) -> Tensor:
        """How much each frame of a clip weighs, (B, T) or (B, K, T), each row a sum of 1.

        Where each frame has a filter of its own, by how much the loss grows when the frame is switched off; where they
        share one, as those of a network with a map over time do, by the sum of the squares of what is shown of it.

        >>> weights = torch.zeros(1, 2, 4, 4)
        >>> weights[0, 1, 1, 2] = 1
        >>> Heatmap(weights, (4, 4), "layer", "method", axes=("sample", "frame", "y", "x")).frame_weights.tolist()
        [[0.0, 1.0]]
        """
        if self.solution.frame_weights is not None:
            return self.solution.frame_weights
        if "frame" not in self.axes and len(self.size) != 3:
            raise InputError(f"The axes of these maps are {', '.join(self.axes)}, so they have no frames to weigh.")
        shown = self.weights.clamp_min(0) if self.keeps_sign else self.weights
        squares = shown.double().square().sum(dim=(-1, -2))
        if "frame" not in self.axes:  # the layer's steps of time, spread over the frames
            squares = (squares.float() @ _spread(squares.shape[-1], self.size[0]).to(squares.device)).double()
        return squares / squares.sum(dim=-1, keepdim=True).clamp_min(torch.finfo(squares.dtype).tiny)

    def numpy(self) -> npt.NDArray[Any]:
        """The maps as an array, for whatever does not speak torch: (B, *size), between 0 and 1.

        >>> Heatmap(torch.rand(2, 4, 4), (8, 8), "layer", "method").numpy().shape
        (2, 8, 8)
        """
        array: npt.NDArray[Any] = self.maps.cpu().numpy()
        return array

    def boxes(
        self, threshold: float | Sequence[float] = 0.25, *, on: Literal["input", "photograph", "scan"] = "input"
    ) -> list[Any]:
        """The boxes around what is hot, per sample: arrays (n, 4) of x0, y0, x1, y1, half-open.

        They are in pixels of the network's input, as `maps` are, or of the upright photograph (`on="photograph"`),
        where `crops` tell where the input lies on it. Drawings put either where it belongs (`save(path, boxes=boxes)`).
        A box surrounds connected positions of at least `threshold` times the map's greatest heat, the box of the
        largest region first; a map that shows nothing has none. Several thresholds give a list of such arrays per
        sample, one for each; several maps per sample a list with an entry for each map; and where frames have maps of
        their own, each map has a list with an entry for each frame, judged by the frame's own maximum.

        Of a volume they are (n, 6), around voxels that touch: x0, y0, z0, x1, y1, z1, where x is the input's last axis,
        as `Region` takes them, or i0, j0, k0, i1, j1, k1 in voxels of the scan (`on="scan"`), as nibabel counts.

        >>> weights = torch.zeros(1, 4, 4)
        >>> weights[0, 1, 2] = 1
        >>> [boxes.tolist() for boxes in Heatmap(weights, (4, 4), "layer", "method").boxes(0.5)]
        [[[2, 1, 3, 2]]]
        """
        from .localization import components_of
        from .volume_maps import boxes_in_volumes

        if on not in ("input", "photograph", "scan"):
            raise InputError(f"on is {on!r}: take 'input', 'photograph' or 'scan'.", field="on")
        frames = self.weights.shape[self.axes.index("frame")] if "frame" in self.axes else 1
        if len(self.size) not in {"input": (2, 3), "photograph": (2,), "scan": (3,)}[on]:
            words = ", ".join(self.axes)
            where = {"input": "a picture or a volume", "photograph": "a photograph", "scan": "a scan"}[on]
            raise InputError(f"Boxes on {where} are asked for, but the axes of these maps are {words}: use maps.")
        alone = isinstance(threshold, (int, float))
        if isinstance(threshold, (bool, str)) or not (alone or hasattr(threshold, "__iter__")):
            raise InputError(f"The threshold is {threshold!r}: give a number from 0 to 1, or a list of them.")
        shares: list[float] = [threshold] if alone else list(threshold)  # type: ignore[arg-type, list-item]
        if len(self.size) == 3:
            found = boxes_in_volumes(self, shares, on=on)
        else:
            found = components_of(self.numpy(), shares).by_size()
        found = (
            found
            if len(self.size) == 3
            else [MapBoxes.on_a(one, "input") for one in found]
            if on == "input"
            else self._on_photographs(found)
        )
        each = len(found) // (len(self) * maps_per_sample(self) * frames)
        per_map: list[Any] = found if alone else _in_groups(found, each)
        per_map = _in_groups(per_map, frames) if "frame" in self.axes else per_map
        return _in_groups(per_map, maps_per_sample(self)) if "map" in self.axes else per_map

    def _on_photographs(self, found: list[Any]) -> list[Any]:
        """Boxes of all maps, in order, in pixels of the photographs."""
        crops, each = self._known_crops(), len(found) // max(1, len(self))
        return [MapBoxes.on_a(crops[place // each].to_image(one), "photograph") for place, one in enumerate(found)]

    def _known_crops(self) -> tuple[Crop, ...]:
        if self.crops is None:
            raise InputError(
                "Where the input lies on the photograph is not known: explain the photograph itself, by the explain of"
                " l2caf.load(…) or of l2caf.Model(name, network, preprocess), or stay on the input."
            )
        return self.crops

    def __len__(self) -> int:
        return self.weights.shape[0]

    def __getitem__(self, samples: int | slice | Sequence[int]) -> Heatmap:
        """The heatmap of some samples, with all that is known of them; of one sample, a batch of one."""
        chosen = chosen_samples(samples, len(self))
        part = replace(
            self,
            weights=self.weights[chosen],
            classes=None if self.classes is None else self.classes[chosen],
            solution=self.solution[chosen],
            crops=None if self.crops is None else tuple(self.crops[one] for one in chosen),
            scans=None if self.scans is None else tuple(self.scans[one] for one in chosen),
            region=None if self.region is None else self.region.only(chosen),
        )
        for name in ("maps", "signed"):  # what was computed for all of them is not computed again
            if name in self.__dict__:
                part.__dict__[name] = self.__dict__[name][chosen]
        return part

    def __iter__(self) -> Iterator[Heatmap]:
        return (self[one] for one in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return same(self, other) if isinstance(other, Heatmap) else NotImplemented

    def __hash__(self) -> int:
        return hash((tuple(self.weights.shape), self.size, self.layer, self.method, self.axes, self.call, self.input))

    def __repr__(self) -> str:
        size = "×".join(map(str, self.size))
        if "frame" in self.axes:
            frames = self.weights.shape[self.axes.index("frame")]
            size = f"{frames} frame{'s' * (frames != 1)} of {size}"
        samples = f"{len(self)} sample{'s' * (len(self) != 1)}"
        several = (
            f", {maps_per_sample(self)} map{'s' * (maps_per_sample(self) != 1)} each" if "map" in self.axes else ""
        )
        call = "" if self.call is None else f" (call {self.call})"
        outcomes = [str(one) for sample in range(len(self)) for one in self.solution.outcomes(sample)]
        counted = {word: outcomes.count(word) for word in dict.fromkeys(outcomes)}
        ended = ", ".join(word if len(counted) == 1 else f"{count} {word}" for word, count in counted.items())
        return f"Heatmap({samples} of {size}{several}, layer {self.layer!r}{call}, {self.method}, {ended})"

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: no maps that can be computed again, and of a part of a batch that part alone."""
        return alone({name: value for name, value in self.__dict__.items() if name not in ("maps", "signed")})

    def _repr_png_(self) -> bytes | None:
        """What a notebook shows: the maps of all samples, as `save` draws them."""
        if (len(self.size) != 2 and self.scans is None) or "frame" in self.axes:
            return None  # the line of words will do
        from .rendering.drawn import sheet_of

        shown = self[:MOST_SHOWN]
        file = io.BytesIO()
        cells = cells_of(shown, None, None, None, signed=False)
        sheet_of(cells, legend=len(cells) > 1 or len(cells[0]) > 1).save(file, "PNG")
        return file.getvalue()

    def on_photograph(self, index: int, *, which: int | None = None, signed: bool = False) -> Tensor:
        """One sample's map at the size of its photograph, 0 where the network did not look: (height, width).

        It needs `crops`, which tell where the input lies on the photograph.

        >>> import l2caf
        >>> from PIL import Image
        >>> network = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 4, stride=4), torch.nn.AdaptiveAvgPool2d(1))
        >>> model = l2caf.Model("mine", network, l2caf.preprocessing.Preprocessing((32, 32), (36, 36)))
        >>> model.explain(Image.new("RGB", (90, 60), "red")).on_photograph(0).shape
        torch.Size([60, 90])
        """
        crops = self._known_crops()
        check_flat(self)
        one, crop = map_of(self, index, which, signed=signed), crops[index]
        laid = crop.lay(one.cpu().numpy(), input_size=(self.size[0], self.size[1]))
        return torch.from_numpy(laid).to(one.device)

    def on_scan(self, index: int = 0, *, which: int | None = None, signed: bool = False) -> Tensor:
        """One sample's map on the voxels of its scan, 0 where the network was shown nothing: (i, j, k).

        It needs `scans`, which tell where the input lies in the scan.

        >>> import l2caf, numpy
        >>> from l2caf.volumes import VolumePreprocessing
        >>> network = torch.nn.Sequential(torch.nn.Conv3d(1, 8, 4, stride=4), torch.nn.AdaptiveAvgPool3d(1))
        >>> model = l2caf.Model("mine", network, VolumePreprocessing(size=16))
        >>> model.explain(numpy.random.default_rng(0).random((40, 30, 20))).on_scan().shape
        torch.Size([40, 30, 20])
        """
        from .volume_maps import known_scans

        one, scan = map_of(self, index, which, signed=signed), known_scans(self)[index]
        return torch.from_numpy(scan.lay(one.detach().cpu().float().numpy())).to(one.device)

    def overlay(
        self,
        image: Any = None,
        index: int = 0,
        *,
        which: int | None = None,
        signed: bool = False,
        preprocess: Any = None,
        boxes: Any = None,
        **style: Any,
    ) -> Image:
        """Draw one sample's map on what the network was shown: its photograph, volume (d, h, w) or signal.

        The photograph may be left out where the heatmap has it (`model.explain`). It is the whole one where `crops` or
        `preprocess`, what prepared it, tell which part of it the network saw; else it is that part. What the
        network did not see is drawn pale.

        - `which` picks one of several maps; `signed` shows what speaks for and against in two colours.
        - `alpha`: how much of the picture the heat hides, 0 to 1; `cmap`: a colour map of matplotlib.
        - `contours`: outlines at these levels, True for 0.5; `box`: the box of the hottest region, True for a quarter
          of the maximum; `boxes`: others, x0, y0, x1, y1 in pixels of the image, or what `heatmap.boxes()` gave, which
          is put where it belongs.
        - `width`: of the picture, in pixels.
        - `slice`, `montage`, `spacing`, `window`, for a volume: one plane, 12 or ("y", 40), of a scan ("coronal", 90),
          where the rule is three planes through the hottest place; many planes side by side (True, how many, of which:
          "sagittal"); how far apart values are along z, y and x, which a scan says itself; which are black and white.
        - `rate`, for a signal: its samples per second, for an axis in seconds and a spectrogram under the map.

        Between the cells of the layer's grid, drawings are bicubic, within the map's own extremes; `maps` is linear.

        >>> from PIL import Image
        >>> heatmap = Heatmap(torch.rand(1, 4, 4), (32, 32), "layer", "method")
        >>> heatmap.overlay(Image.new("RGB", (32, 32)), alpha=0.5, cmap="viridis", width=200).size
        (200, 200)
        """
        image = picture_of(self, image, index)
        heat = heat_of(self, image, index, which, signed=signed, preprocess=preprocess)
        return heat.on(image, **with_boxes(style, boxes_for(self, boxes, index, which)))

    def plot(
        self,
        image: Any = None,
        index: int = 0,
        *,
        ax: Any = None,
        which: int | None = None,
        signed: bool = False,
        preprocess: Any = None,
        boxes: Any = None,
        **style: Any,
    ) -> Any:
        """Draw as `overlay` does on matplotlib's axes, in pixels of the image, and give the axes back.

        Without `ax` a figure is made, which is `axes.figure`. `legend=True` adds the colours, `title` words above.

        >>> from PIL import Image
        >>> heatmap = Heatmap(torch.rand(1, 4, 4), (32, 32), "layer", "method")
        >>> heatmap.plot(Image.new("RGB", (32, 32)), title="cat").get_title()
        'cat'
        """
        from .rendering.figures import figure
        from .rendering.vector import plot

        image = picture_of(self, image, index)
        heat = heat_of(self, image, index, which, signed=signed, preprocess=preprocess)
        style = with_boxes(style, boxes_for(self, boxes, index, which))
        return plot(heat, image, figure(4, 4).subplots() if ax is None else ax, **style)

    def save(
        self,
        path: str | Path,
        image: Any = None,
        index: int | None = None,
        *,
        which: int | None = None,
        signed: bool = False,
        preprocess: Any = None,
        boxes: Any = None,
        dpi: float | None = None,
        legend: bool | None = None,
        **style: Any,
    ) -> Path:
        """Write all maps into one file: .npy holds their numbers, anything else is a picture, drawn as `overlay` does.

        `image` is what they lie on, or its path, or a list of one per sample; without it, and where the heatmap has no
        photographs of its own, the maps are drawn alone. Several samples are drawn below one another, several maps of
        a sample side by side; `index` picks one sample, `which` one map. A .pdf or .svg is a figure with lines and
        letters, its photograph at `dpi` pixels per inch. `legend` says whether the colours are explained; by default
        where there are two of them (`signed`), or several maps; `title` stands above them.

        The map of a scan may be written as .nii.gz (or .nii), on the scan's own voxels, and as .gif, a scroll through
        its planes (`slice="coronal"` for others). `image` is the scan, or its path, where the heatmap has none.

        The maps of a clip become a film (.mp4, .gif) or, as any other picture, a strip of its moments. `image` is then
        the frames that the network saw, (T, height, width, 3), a list of pictures or the path of a clip; `fps` how many
        make a second, where they do not tell.

        >>> import tempfile
        >>> heatmap = Heatmap(torch.rand(2, 4, 4), (32, 32), "layer", "method")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     heatmap.save(Path(folder) / "where.png").name, heatmap.save(Path(folder) / "where.npy").name
        ('where.png', 'where.npy')
        """
        import numpy

        from .files import write_whole
        from .frame_maps import save_in_time
        from .images import save_picture
        from .rendering.clip import is_clip
        from .rendering.drawn import sheet_of
        from .rendering.figure_file import DPI, SUFFIXES, save_figure
        from .rendering.film import ENDINGS as FILMS
        from .rendering.settings import check_flag
        from .volume_maps import is_about_scan, save_on_scan

        path = _checked_path(path)
        if is_about_scan(self, path, image):
            given = {"signed": signed, "preprocess": preprocess, "boxes": boxes, "dpi": dpi, "legend": legend}
            return save_on_scan(self, path, image, index, which, **given, **style)
        if path.suffix.lower() == ".npy":
            with write_whole(path) as temporary, temporary.open("wb") as file:
                numpy.save(file, (self.signed if signed else self.maps).cpu().numpy())
            return path
        if self._is_clip and path.suffix.lower() not in (*FILMS, *SUFFIXES):
            check_ending(path, is_clip=True)
        if path.suffix.lower() == ".mp4" or (self._is_clip and (path.suffix.lower() == ".gif" or is_clip(image))):
            return save_in_time(self, path, image, index, which, signed=signed, preprocess=preprocess, **style)
        check_flag(legend, "legend")
        cells = cells_of(self, image, index, which, signed=signed, preprocess=preprocess, boxes=boxes)
        shown = (signed or len(cells[0]) > 1 or len(cells) > 1) if legend is None else legend
        if path.suffix.lower() in SUFFIXES:
            return save_figure(cells, path, dpi=DPI if dpi is None else dpi, legend=shown, **style)
        check_ending(path, is_clip=self._is_clip)
        return save_picture(sheet_of(cells, legend=shown, **style), path, dpi=dpi)

    def grids(self, index: int, *, signed: bool = False) -> npt.NDArray[np.float32]:
        """One sample's maps on the layer's own grid, the largest magnitude of each 1: (maps, *grid).

        >>> Heatmap(torch.rand(2, 4, 4), (8, 8), "layer", "method").grids(0).shape
        (1, 4, 4)
        """
        (index,) = chosen_samples([index], len(self))
        weights = self.weights[index].detach().float()
        shown = weights if signed else weights.clamp_min(0) if self.keeps_sign else weights.abs()
        shown = shown if "map" in self.axes else shown.unsqueeze(0)
        largest = shown.abs().flatten(1).amax(dim=1).clamp_min(torch.finfo(torch.float32).tiny)
        return (shown / largest.reshape(-1, *[1] * (shown.ndim - 1))).cpu().numpy()

    @property
    def _is_clip(self) -> bool:
        return "frame" in self.axes or len(self.size) == 3

    def _resized(self, weights: Tensor) -> Tensor:
        """Interpolate linearly along one axis after the other, each a product with a small matrix; the last one last,
        which leaves the numbers in order."""
        if torch.is_autocast_enabled(weights.device.type):
            # Maps are read wherever it suits, inside an autocast block too, which would make halves of them.
            with torch.autocast(weights.device.type, enabled=False):
                return self._resized(weights)
        resized = weights.float()
        grid = resized.shape[-len(self.size) :]
        for axis, spread in _spreads(tuple(grid), self.size, resized.device):
            if axis == -1:
                resized = resized @ spread
            elif axis == -2:
                resized = spread @ resized
            else:
                resized = (spread @ resized.movedim(axis, -2)).movedim(-2, axis)
        return resized.contiguous()

    def _scaled(self, maps: Tensor, *, signed: bool = True) -> Tensor:
        """Divide every map by its own largest magnitude, in place: a batch of maps is larger than many a head.

        The frames of a clip that share one filter share its largest weight.
        """
        shared = "frame" in self.axes and not self.solution.frames
        axes = tuple(range(-len(self.size) - shared, 0))
        largest = maps.amax(dim=axes, keepdim=True)
        if signed:
            largest = torch.maximum(largest, -maps.amin(dim=axes, keepdim=True))
        return maps.div_(largest.clamp_min_(torch.finfo(maps.dtype).tiny))


MOST_SHOWN = 8  # samples that a notebook shows of a larger batch


def _in_groups(listed: list[Any], size: int) -> list[Any]:
    return [listed[start : start + size] for start in range(0, len(listed), size)]


def _checked_path(path: Any) -> Path:
    if isinstance(path, (str, Path)):
        return Path(path)
    raise InputError(
        f"The file to save to is a {type(path).__name__}: give its path, such as 'where.png', or draw a picture with"
        " overlay() and save that."
    )


@lru_cache(maxsize=64)
def _spreads(grid: tuple[int, ...], size: tuple[int, ...], device: torch.device) -> list[tuple[int, Tensor]]:
    """The axes of a grid, and what interpolates along each: from the left, but along the last axis from the right."""
    found = [
        (axis, _spread(cells, length).to(device))
        for axis, cells, length in zip(range(-len(size), 0), grid, size, strict=True)
    ]
    return [(axis, one if axis == -1 else one.mT.contiguous()) for axis, one in found]


@lru_cache(maxsize=64)
def _spread(cells: int, length: int) -> Tensor:
    """The matrix that interpolates so many cells linearly to a length."""
    with torch.inference_mode(False):  # it is kept, and must not be known as one of that mode
        unit = torch.eye(cells).unsqueeze(0)
        return torch.nn.functional.interpolate(unit, length, mode="linear", align_corners=False).squeeze(0)
