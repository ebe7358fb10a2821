"""From a photograph to the network's input, to the picture of what the network saw, and to where that was.

Whatever Pillow opened is taken as the command line takes a file: upright, 16 bits brought to 8, transparency on white.
All of it is arrays: torch comes in only where a library user calls a preprocessing like a function.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from PIL import Image

from .crop import Crop as Crop
from .crop import Input as Input
from .crop import Window as Window
from .errors import InputError, L2cafError, first_line
from .images import as_photograph

if TYPE_CHECKING:
    from torch import Tensor

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
_RESAMPLING = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
SMALLEST, LARGEST = 448, 720  # pixels of a picture's height: 224 is tiny on a screen, more than 720 is waste
CELL = 32  # the stride of most networks: a whole picture is brought to a multiple of it
LONGEST = 4  # times as long as wide is the most that a whole picture may be
VIEWS = ("crop", "whole", "squash")


def resampling(name: str) -> Image.Resampling:
    """Pillow's way of resizing, by name."""
    return _RESAMPLING[name]


class Prepared(NamedTuple):
    """A photograph made ready: the input (3, H, W), the picture of it, and where it lies on the photograph."""

    input: Input
    view: Image.Image
    crop: Crop | None  # None where only the user's own function knows


class Preprocess(Protocol):
    """What a network does to a photograph before it looks."""

    @property
    def input_size(self) -> tuple[int, int] | None:
        """Height and width; None where they differ from photograph to photograph, or nobody knows."""

    def __call__(self, image: Image.Image) -> Tensor:
        """The network's input, (3, H, W), without a batch axis."""

    def prepare(self, image: Image.Image) -> Prepared:
        """The same as an array, with its picture and its place."""

    def view(self, image: Image.Image) -> Image.Image:
        """The picture that the network sees, not normalised."""

    def sharp_view(self, image: Image.Image) -> Image.Image:
        """The same part of the photograph, as sharp as the photograph is."""


@dataclass(frozen=True)
class Preprocessing:
    """Resize, cut out the centre, normalise.

    input_size    (height, width) that the network takes
    resize_size   (height, width) that the image is resized to, as `fit` says, before the centre is cut out
    fit           "crop": the image covers resize_size and keeps its shape; "squash": it is stretched to it;
                  "border": it fits inside and the rest is filled with the mean colour
    mean, std     of the three channels, for values in [0, 1]

    >>> prepare = Preprocessing()
    >>> prepare(Image.new("RGB", (640, 480))).shape
    torch.Size([3, 224, 224])
    >>> prepare.view(Image.new("RGB", (640, 480))).size
    (224, 224)
    """

    input_size: tuple[int, int] = (224, 224)
    resize_size: tuple[int, int] = (256, 256)
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    interpolation: str = "bilinear"
    fit: Literal["crop", "squash", "border"] = "crop"

    def __post_init__(self) -> None:
        if self.interpolation not in _RESAMPLING:
            known = ", ".join(_RESAMPLING)
            raise InputError(f"Unknown interpolation {self.interpolation!r}: take one of {known}.")

    def __call__(self, image: Image.Image) -> Tensor:
        import torch

        return torch.from_numpy(self.normalised(self.view(image)))

    def prepare(self, image: Image.Image) -> Prepared:
        """The input as an array, with its picture and its place on the photograph."""
        image = as_photograph(image)
        seen = self.view(image)
        return Prepared(self.normalised(seen), seen, self.crop(image))

    def normalised(self, view: Image.Image) -> npt.NDArray[np.float32]:
        """A picture that has the input's size already, as the input."""
        pixels = np.asarray(view, dtype=np.float32) / 255
        values = (pixels - np.array(self.mean, np.float32)) / np.array(self.std, np.float32)
        return np.ascontiguousarray(values.transpose(2, 0, 1))

    def view(self, image: Image.Image) -> Image.Image:
        """The picture that the network sees: resized and cut, not normalised."""
        image = as_photograph(image)
        crop = self.crop(image)
        columns, rows = crop.columns, crop.rows
        # One resize straight from the source region: what resizing the whole image and then cutting gives,
        # to one grey level, without the huge picture in between that a 10,000 x 50 panorama would become.
        seen = image.resize(
            (columns.size, rows.size),
            _RESAMPLING[self.interpolation],
            box=(columns.start, rows.start, columns.stop, rows.stop),
        )
        height, width = self.input_size
        if seen.size == (width, height):
            return seen
        fill = tuple(round(255 * value) for value in self.mean) if self.fit == "border" else (0, 0, 0)
        canvas = Image.new("RGB", (width, height), fill)
        canvas.paste(seen, (columns.offset, rows.offset))
        return canvas

    def sharp_view(self, image: Image.Image) -> Image.Image:
        """The same part of the photograph, as sharp as the photograph is."""
        image = as_photograph(image)
        rows = self.crop(image).rows
        # The same preparation at a finer scale cuts out the same region.
        scale = min(max(rows.stop - rows.start, SMALLEST), LARGEST) / self.input_size[0]
        finer = replace(self, input_size=_scaled(self.input_size, scale), resize_size=_scaled(self.resize_size, scale))
        return finer.view(image)

    def squashed(self, size: tuple[int, int] | None = None) -> Preprocessing:
        """The whole image stretched to the input, of `size` or its own, with nothing cut off."""
        size = self.input_size if size is None else size
        return replace(self, input_size=size, resize_size=size, fit="squash")

    def crop(self, image: Image.Image) -> Crop:
        """Where the input lies on the photograph."""
        image = as_photograph(image)
        resized = self._resized(image)
        columns, rows = (_window(image.size[axis], resized[axis], wanted=self.input_size[1 - axis]) for axis in (0, 1))
        return Crop((image.height, image.width), columns, rows)

    def _resized(self, image: Image.Image) -> tuple[int, int]:
        """Width and height of the whole image after resizing."""
        width, height = image.size
        to_height, to_width = self.resize_size
        if self.fit == "squash":
            return to_width, to_height
        by_width = width * to_height >= height * to_width  # the image is wider than the target
        if self.fit == "border":
            scale = min(to_height / height, to_width / width)
            return max(1, round(width * scale)), max(1, round(height * scale))
        if by_width:
            return max(1, int(to_height * width / height)), to_height
        return to_width, max(1, int(to_width * height / width))


@dataclass(frozen=True)
class WholePreprocessing:
    """All of each photograph, in its own proportions, where `base` would show the centre alone."""

    base: Preprocessing

    @property
    def input_size(self) -> None:
        """It differs from photograph to photograph."""

    def of(self, image: Image.Image) -> Preprocessing:
        """How this photograph is prepared."""
        return self.base.squashed(_whole_size(as_photograph(image).size, shortest=min(self.base.input_size)))

    def __call__(self, image: Image.Image) -> Tensor:
        image = as_photograph(image)
        return self.of(image)(image)

    def prepare(self, image: Image.Image) -> Prepared:
        image = as_photograph(image)
        return self.of(image).prepare(image)

    def view(self, image: Image.Image) -> Image.Image:
        image = as_photograph(image)
        return self.of(image).view(image)

    def sharp_view(self, image: Image.Image) -> Image.Image:
        image = as_photograph(image)
        return self.of(image).sharp_view(image)


@dataclass(frozen=True)
class OwnPreprocessing:
    """A preprocessing function that the user brings; unless it has a `picture`, that is read back from the tensor."""

    function: Callable[[Image.Image], Any]
    input_size: tuple[int, int] | None = None
    picture: Callable[[Image.Image], Image.Image] | None = None

    def __call__(self, image: Image.Image) -> Tensor:
        import torch

        values = self.function(as_photograph(image))
        if not isinstance(values, torch.Tensor) or values.ndim != 3 or values.shape[0] not in (1, 3):
            got = tuple(values.shape) if isinstance(values, torch.Tensor) else type(values).__name__
            raise InputError(f"The network's own preprocessing returned {got}: let it return a (3, H, W) tensor.")
        return values

    def prepare(self, image: Image.Image) -> Prepared:
        import torch

        image = as_photograph(image)
        values = self(image).detach().cpu()
        # numpy has no bfloat16; a model that computes in it casts its inputs back.
        array = (values.float() if values.dtype == torch.bfloat16 else values).numpy()
        return Prepared(array, stretched(array) if self.picture is None else self.picture(image), None)

    def view(self, image: Image.Image) -> Image.Image:
        """The tensor as a picture, stretched to the full range: its normalisation is not known."""
        return self.prepare(image).view if self.picture is None else self.picture(as_photograph(image))

    def sharp_view(self, image: Image.Image) -> Image.Image:
        """The same, enlarged where it is tiny: what the function did to the photograph is not known."""
        seen = self.view(image)
        scale = max(1.0, SMALLEST / seen.height)
        return seen.resize((round(seen.width * scale), round(seen.height * scale)), Image.Resampling.BICUBIC)


def as_preprocess(function: Callable[[Image.Image], Any] | Preprocess) -> Preprocess:
    """Give any callable what pictures need beside the tensor."""
    if all(hasattr(function, name) for name in ("input_size", "prepare", "view", "sharp_view")):
        return function  # type: ignore[return-value]
    return OwnPreprocessing(function, getattr(function, "input_size", None), getattr(function, "view", None))


def crop_of(preprocess: Any, image: Image.Image) -> Crop:
    """Where the input that a preprocessing makes of a photograph lies on it.

    >>> crop_of(Preprocessing(), Image.new("RGB", (512, 256))).columns.start
    144.0
    """
    try:
        crop = as_preprocess(preprocess).prepare(image).crop
    except L2cafError:
        raise
    except Exception as error:  # the user's own preprocessing may fail in any way
        raise InputError(f"The preprocessing cannot prepare this picture ({first_line(error)}).") from error
    if crop is None:
        raise InputError(
            "Where the input lies on the photograph cannot be told from a preprocessing function of one's own:"
            " give an l2caf.preprocessing.Preprocessing, or draw on the picture that the network saw."
        )
    return crop


def check_view(view: str) -> None:
    """Refuse a view that there is not."""
    if view not in VIEWS:
        raise InputError(f"There is no view {view!r}: take one of {', '.join(VIEWS)}.", field="view")


def viewed(preprocess: Preprocess, view: str = "crop") -> Preprocessing | WholePreprocessing:
    """The preprocessing of a view through which boxes can be followed.

    "crop": as the network's own preprocessing has it, which is to resize and cut out the centre;
    "whole": all of the image, in its own proportions;
    "squash": the whole image is stretched to the input, and nothing is cut off

    >>> squash = viewed(Preprocessing(), "squash")
    >>> squash.crop(Image.new("RGB", (448, 112))).to_input([[0, 0, 100, 56]])
    array([[  0.,   0.,  50., 112.]])
    """
    check_view(view)
    if not isinstance(preprocess, Preprocessing):
        raise InputError(
            "Boxes cannot be mapped through a preprocessing function of one's own: "
            "give an l2caf.preprocessing.Preprocessing."
        )
    if view == "whole":
        return WholePreprocessing(preprocess)
    return preprocess if view == "crop" else preprocess.squashed()


def _window(source: int, resized: int, *, wanted: int) -> Window:
    start = round((resized - wanted) / 2)  # negative where the resized image is smaller than the input
    first, last = max(start, 0), min(start + wanted, resized)
    scale = source / resized
    return Window(start=first * scale, stop=min(last * scale, source), size=last - first, offset=first - start)


def _scaled(size: tuple[int, int], scale: float) -> tuple[int, int]:
    return round(size[0] * scale), round(size[1] * scale)


def _whole_size(size: tuple[int, int], *, shortest: int) -> tuple[int, int]:
    """Height and width in whole cells, the shorter side as the network likes it."""
    width, height = size
    ratio = min(max(width, height) / min(width, height), LONGEST)
    longest = max(1, round(shortest * ratio / CELL)) * CELL if not math.isclose(ratio, 1) else shortest
    return (shortest, max(longest, shortest)) if width >= height else (max(longest, shortest), shortest)


def stretched(values: Input) -> Image.Image:
    """An input as a picture of the full range of colours."""
    shown = values.astype(np.float32)
    low, high = shown.min(), shown.max()
    pixels = ((shown - low) / max(high - low, np.float32(1e-12)) * 255).round().astype(np.uint8)
    return Image.fromarray(np.ascontiguousarray(np.broadcast_to(pixels, (3, *pixels.shape[1:])).transpose(1, 2, 0)))
