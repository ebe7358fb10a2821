"""Photographs to show something on: those that come with scikit-image, and one picture made of two of them."""

from __future__ import annotations

from PIL import Image

from ..sample_photographs import SAMPLES as SAMPLES
from ..sample_photographs import sample as sample
from ..sample_photographs import sample_path as sample_path

# The parts with the object in them: square, so that the two make one picture of equal halves.
_CAT, _CUP = (90, 0, 390, 300), (100, 0, 460, 360)


def two_objects(height: int = 448) -> Image.Image:
    """The cat on the left half, the cup on the right."""
    both = Image.new("RGB", (2 * height, height))
    for left, name, part in ((0, "cat", _CAT), (height, "cup", _CUP)):
        square = sample(name).crop(part).resize((height, height), Image.Resampling.LANCZOS)
        both.paste(square, (left, 0))
    return both
