"""How an image and its boxes become the network's input: the whole image squashed, or its centre cut out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from ..boxes import Boxes, as_boxes
from ..errors import InputError
from ..preprocessing import Preprocess, Preprocessing

VIEWS = ("crop", "squash")


class Seen(NamedTuple):
    """What the network gets of one image: its input (3, H, W), the boxes on it, and the picture of it."""

    tensor: torch.Tensor
    boxes: Boxes
    picture: Image.Image


@dataclass(frozen=True)
class View:
    """Turns an upright image and the boxes in its pixels into what the network sees.

    kind         "crop": as the network's own preprocessing has it, which is to resize and cut out the centre;
                 "squash": the whole image is stretched to the input, and nothing is cut off
    preprocess   of the network; its resizing must be known, or no box can follow it

    Boxes keep their number and order. What lies outside of the view is cut off; a box wholly outside is kept
    as an empty one, of no width or no height, which overlaps with nothing.

    >>> view = View("squash", Preprocessing(input_size=(224, 224)))
    >>> view(Image.new("RGB", (448, 112)), [[0, 0, 100, 56]]).boxes
    array([[  0.,   0.,  50., 112.]])
    """

    kind: Literal["crop", "squash"]
    preprocess: Preprocess

    def __post_init__(self) -> None:
        if self.kind not in VIEWS:
            raise InputError(f"There is no view {self.kind!r}: take one of {', '.join(VIEWS)}.", field="view")
        if not isinstance(self.preprocess, Preprocessing):
            raise InputError(
                "Boxes cannot be mapped through a preprocessing function of one's own: "
                "give an l2caf.preprocessing.Preprocessing."
            )

    def __call__(self, image: Image.Image, boxes: npt.ArrayLike = ()) -> Seen:
        """The input, the boxes on it, and the picture."""
        picture = self.preprocessing.view(image)
        return Seen(self._normalise(picture), self.map_boxes(boxes, image), picture)

    @property
    def input_size(self) -> tuple[int, int]:
        """Height and width of what the network sees."""
        return self.preprocessing.input_size

    @cached_property
    def preprocessing(self) -> Preprocessing:
        """The preprocessing that gives this view."""
        given = self.preprocess
        assert isinstance(given, Preprocessing)
        return given if self.kind == "crop" else replace(given, resize_size=given.input_size, fit="squash")

    @cached_property
    def _normalise(self) -> Preprocessing:
        """The same on a picture that has the right size already: resizing leaves it alone."""
        return replace(self.preprocessing, resize_size=self.input_size, fit="squash")

    def map_boxes(self, boxes: npt.ArrayLike, image: Image.Image) -> Boxes:
        """Boxes in pixels of the upright image, in pixels of the input."""
        given = as_boxes(boxes)
        mapped = np.empty_like(given)
        for axis in (0, 1):
            # Where the image comes to lie on the input, which it need not fill.
            window = self.preprocessing.window(image, axis=axis)
            inside = given[:, axis::2].clip(window.start, window.stop) - window.start
            edges = inside * window.size / (window.stop - window.start)
            mapped[:, axis::2] = edges.clip(0, window.size) + window.offset  # rounding must not lead outside
        return mapped
