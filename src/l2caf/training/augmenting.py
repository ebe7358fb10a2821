"""Views of a picture for training: its own centre, the mirror image, and cut-outs of other sizes and shapes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from PIL import Image

from ..preprocessing import Preprocessing, resampling

# A cut-out has at least this share of the picture, and its sides differ by this factor at most.
SMALLEST, LONGEST = 0.5, 4 / 3


class Views:
    """Numbered views of pictures, as inputs of a network.

    View 0 is what the network sees when it is used; view 1 is that mirrored; those from 2 on are cut-outs, every
    other one mirrored. `key` decides which: the same key and number give the same view.
    """

    def __init__(self, preprocessing: Preprocessing) -> None:
        self.preprocessing = preprocessing
        self._normalise = replace(preprocessing, resize_size=preprocessing.input_size, fit="squash")

    def __call__(self, image: Image.Image, number: int, *, key: tuple[int, ...]) -> torch.Tensor:
        """One view, (3, H, W)."""
        seen = self.preprocessing.view(image) if number < 2 else self._cut_out(image, (*key, number))
        if number % 2:
            seen = seen.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return self._normalise(seen)

    def _cut_out(self, image: Image.Image, key: tuple[int, ...]) -> Image.Image:
        draw = np.random.default_rng(key)
        width, height = image.size
        area = draw.uniform(SMALLEST, 1) * width * height
        stretch = math.exp(draw.uniform(-math.log(LONGEST), math.log(LONGEST)))
        across = min(float(width), math.sqrt(area * stretch))
        down = min(float(height), math.sqrt(area / stretch))
        left, top = draw.uniform(0, width - across), draw.uniform(0, height - down)
        rows, columns = self.preprocessing.input_size
        method = resampling(self.preprocessing.interpolation)
        return image.resize((columns, rows), method, box=(left, top, left + across, top + down))
