"""Pictures with one bright square each, and a network whose map is the brightness of the picture: it finds them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

BUILDER = """
import torch
from torch import nn
from l2caf.preprocessing import Preprocessing

class Bright(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = nn.AvgPool2d(8)
        self.mean = nn.AdaptiveAvgPool2d(1)
        self.scores = nn.Linear(3, 6)
        torch.manual_seed(0)
        with torch.no_grad():
            self.scores.weight.copy_(torch.rand(6, 3) * 0.1)
            self.scores.bias.zero_()
            for index in range(3):
                self.scores.weight[index, index] = 1.0
    def forward(self, x):
        return self.scores(self.mean(self.pool(x)).flatten(1))

def build():
    size = (64, 64)
    return Bright(), Preprocessing(input_size=size, resize_size=size, mean=(0, 0, 0), std=(1, 1, 1), fit="squash")
"""


def folder(root: Path, *, count: int = 40) -> Path:
    """Pictures in the colour of their class, `boxes.csv` with their boxes, and the network in `bright.py`."""
    root.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(0)
    lines = ["file,label,x0,y0,x1,y1"]
    for number in range(count):
        pixels = np.zeros((64, 64, 3), dtype=np.uint8)
        x0, y0 = 8 * generator.integers(0, 5, 2)
        label = number % 3
        pixels[y0 : y0 + 24, x0 : x0 + 24, label] = 255
        Image.fromarray(pixels).save(root / f"{number:02}.png")
        lines.append(f"{number:02}.png,{label},{x0},{y0},{x0 + 24},{y0 + 24}")
    (root / "boxes.csv").write_text("\n".join(lines) + "\n")
    (root / "bright.py").write_text(BUILDER)
    return root
