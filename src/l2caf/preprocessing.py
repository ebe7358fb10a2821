"""From a photograph to the network's input, and to the picture of what the network saw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import torch
from PIL import Image

from .errors import InputError

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
_RESAMPLING = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


def resampling(name: str) -> Image.Resampling:
    """Pillow's way of resizing, by name."""
    return _RESAMPLING[name]


class Preprocess(Protocol):
    """PIL image -> float tensor (3, H, W), and the same without normalisation as a picture."""

    @property
    def input_size(self) -> tuple[int, int] | None: ...

    def __call__(self, image: Image.Image) -> torch.Tensor: ...

    def view(self, image: Image.Image) -> Image.Image: ...


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

    def __call__(self, image: Image.Image) -> torch.Tensor:
        """The network's input, (3, H, W), without a batch axis."""
        pixels = np.asarray(self.view(image), dtype=np.float32) / 255
        values = (pixels - np.array(self.mean, np.float32)) / np.array(self.std, np.float32)
        return torch.from_numpy(np.ascontiguousarray(values.transpose(2, 0, 1)))

    def view(self, image: Image.Image) -> Image.Image:
        """The picture that the network sees: resized and cut, not normalised."""
        image = image if image.mode == "RGB" else image.convert("RGB")
        columns = self.window(image, axis=0)
        rows = self.window(image, axis=1)
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

    def seen_box(self, image: Image.Image) -> tuple[float, float, float, float]:
        """The part of the original image that the network sees: x0, y0, x1, y1 in its pixels."""
        columns, rows = self.window(image, axis=0), self.window(image, axis=1)
        return columns.start, rows.start, columns.stop, rows.stop

    def window(self, image: Image.Image, *, axis: int) -> Window:
        """Where the image comes to lie on one axis of the input: 0 is the width, 1 the height."""
        source = image.size[axis]
        resized = self._resized(image)[axis]
        wanted = self.input_size[1 - axis]
        start = round((resized - wanted) / 2)  # negative where the resized image is smaller than the input
        first, last = max(start, 0), min(start + wanted, resized)
        scale = source / resized
        return Window(start=first * scale, stop=min(last * scale, source), size=last - first, offset=first - start)

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
class Window:
    """One axis of the cut: from where to where in the source, its length in the input, its place there."""

    start: float
    stop: float
    size: int
    offset: int


@dataclass(frozen=True)
class OwnPreprocessing:
    """A preprocessing function that the user brings, with the picture read back from its tensor."""

    function: Callable[[Image.Image], torch.Tensor]
    input_size: tuple[int, int] | None = None

    def __call__(self, image: Image.Image) -> torch.Tensor:
        values = self.function(image)
        if not isinstance(values, torch.Tensor) or values.ndim != 3 or values.shape[0] not in (1, 3):
            got = tuple(values.shape) if isinstance(values, torch.Tensor) else type(values).__name__
            raise InputError(f"The network's own preprocessing returned {got}: let it return a (3, H, W) tensor.")
        return values

    def view(self, image: Image.Image) -> Image.Image:
        """The tensor as a picture, stretched to the full range: its normalisation is not known."""
        values = self(image).detach().float().cpu()
        low, high = values.min(), values.max()
        pixels = ((values - low) / (high - low).clamp_min(1e-12) * 255).round().to(torch.uint8)
        return Image.fromarray(pixels.expand(3, -1, -1).permute(1, 2, 0).numpy())


def as_preprocess(function: Callable[[Image.Image], torch.Tensor] | Preprocess) -> Preprocess:
    """Give any callable the `view` and `input_size` that pictures need."""
    if hasattr(function, "view") and hasattr(function, "input_size"):
        return function  # type: ignore[return-value]
    return OwnPreprocessing(function)
