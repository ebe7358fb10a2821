"""`Crop`: where a network's input lies on the photograph that it was made from."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from .boxes import Boxes, as_boxes

Input = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Window:
    """One axis of the cut: from where to where in the source, its length in the input, its place there."""

    start: float
    stop: float
    size: int
    offset: int

    @property
    def pixels(self) -> tuple[int, int]:
        """The pixels of the photograph whose centres lie inside, first and one past the last; at least one."""
        first = math.ceil(self.start - 0.5)
        return first, max(math.ceil(self.stop - 0.5), first + 1)

    def source(self, cells: int, *, length: int) -> tuple[float, float]:
        """Where those pixels begin and end on so many cells that cover an input of this length."""
        scale = self.size / (self.stop - self.start)
        ends = (((edge - self.start) * scale + self.offset) * cells / length for edge in self.pixels)
        begin, end = (min(max(end, 0.0), float(cells)) for end in ends)  # half a pixel may stick out
        return begin, end

    def scaled(self, scale: float) -> Window:
        """The same on a photograph that was resized."""
        return replace(self, start=self.start * scale, stop=self.stop * scale)


@dataclass(frozen=True)
class Crop:
    """Where the input lies on the photograph; `image_size` is the photograph's (height, width).

    `photograph` is the photograph itself, upright, where whoever prepared it kept it to be drawn on.

    Boxes keep their number and order. What lies outside is cut off; a box wholly outside is kept as an empty one, of
    no width or no height, which overlaps with nothing.

    >>> from l2caf.preprocessing import Preprocessing
    >>> crop = Preprocessing().crop(Image.new("RGB", (512, 512)))
    >>> crop.to_image([[0, 0, 224, 224]]).tolist()
    [[32.0, 32.0, 480.0, 480.0]]
    >>> crop.to_input([[0, 32, 256, 256]]).tolist()
    [[0.0, 0.0, 112.0, 112.0]]
    """

    image_size: tuple[int, int]
    columns: Window
    rows: Window
    photograph: Image.Image | None = field(default=None, compare=False, repr=False)

    @property
    def share(self) -> float:
        """How much of the photograph's area the network is shown."""
        height, width = self.image_size
        across, down = (window.stop - window.start for window in (self.columns, self.rows))
        return across * down / (width * height)

    def to_input(self, boxes: npt.ArrayLike) -> Boxes:
        """Boxes in pixels of the upright photograph, in pixels of the input."""
        given = as_boxes(boxes)
        mapped = np.empty_like(given)
        for axis, window in enumerate((self.columns, self.rows)):
            inside = given[:, axis::2].clip(window.start, window.stop) - window.start
            edges = inside * window.size / (window.stop - window.start)
            mapped[:, axis::2] = edges.clip(0, window.size) + window.offset  # rounding must not lead outside
        return mapped

    def to_image(self, boxes: npt.ArrayLike) -> Boxes:
        """Boxes in pixels of the input, in pixels of the upright photograph."""
        given = as_boxes(boxes)
        mapped = np.empty_like(given)
        for axis, window in enumerate((self.columns, self.rows)):
            inside = given[:, axis::2].clip(window.offset, window.offset + window.size) - window.offset
            edges = inside * (window.stop - window.start) / window.size + window.start
            mapped[:, axis::2] = edges.clip(window.start, window.stop)
        return mapped

    def point_to_image(self, x: float, y: float) -> tuple[float, float]:
        """A point of the input on the upright photograph; what lies beside the picture goes to its edge."""
        ((left, top, _, _),) = self.to_image([[x, y, x, y]])
        return float(left), float(top)

    def at(self, size: tuple[int, int]) -> Crop:
        """The same on the photograph brought to another (height, width)."""
        down, across = size[0] / self.image_size[0], size[1] / self.image_size[1]
        return Crop(size, self.columns.scaled(across), self.rows.scaled(down))

    def lay(self, heat: npt.NDArray[np.float32], *, input_size: tuple[int, int], smooth: bool = False) -> Input:
        """Heat that covers the input, of any fineness, at the size of the photograph; 0 where nothing was seen.

        smooth   by bicubic interpolation, for the eye, never beyond the extremes of the heat; else linear
        """
        (top, bottom), (left, right) = self.rows.pixels, self.columns.pixels
        y0, y1 = self.rows.source(heat.shape[0], length=input_size[0])
        x0, x1 = self.columns.source(heat.shape[1], length=input_size[1])
        kind = Image.Resampling.BICUBIC if smooth else Image.Resampling.BILINEAR
        seen = Image.fromarray(np.ascontiguousarray(heat, np.float32))
        whole = np.zeros(self.image_size, np.float32)
        laid = seen.resize((right - left, bottom - top), kind, box=(x0, y0, x1, y1))
        whole[top:bottom, left:right] = np.asarray(laid).clip(heat.min(), heat.max())
        return whole
