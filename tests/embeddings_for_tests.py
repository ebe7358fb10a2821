"""Networks whose embeddings, neighbours and maps are known, as files that the command line can load."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

# The map is the colour of each 8 x 8 block; the embedding is a linear function of its mean.
COLOURS = """
import torch
from torch import nn
from l2caf.networks.model import Model
from l2caf.preprocessing import Preprocessing

class Colours(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.map = nn.AvgPool2d(8)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.embed = nn.Linear(3, 4)
        with torch.no_grad():
            self.embed.weight.copy_(weight)
            self.embed.bias.zero_()
    def forward(self, images):
        return self.embed(self.pool(self.map(images)).flatten(1))

def _made(name, weight):
    size = (64, 64)
    prepare = Preprocessing(input_size=size, resize_size=size, mean=(0, 0, 0), std=(1, 1, 1), fit="squash")
    return Model(name, Colours(torch.tensor(weight)), prepare, embedding=True)

def build():  # every column sums to less than zero: the summed embedding falls where there is colour
    return _made("colours", [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [-2.0, -2.0, -2.0]])

def other():
    return _made("other colours", [[1.0, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
"""


def colours_file(folder: Path) -> Path:
    path = folder / "colours.py"
    path.write_text(COLOURS)
    return path


def patches(path: Path, *placed: tuple[tuple[int, int], tuple[int, int, int]]) -> Path:
    """A black picture of 64 x 64 with squares of 16 x 16, each at (x, y) in a colour."""
    pixels = np.zeros((64, 64, 3), np.uint8)
    for (x, y), colour in placed:
        pixels[y : y + 16, x : x + 16] = colour
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path
