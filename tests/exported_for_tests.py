"""Networks that tests export, small enough for it to take a second or two."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from l2caf.networks.model import Model
from l2caf.preprocessing import Preprocessing

NAMES = ("square", "stripe", "ring", "dot", "cross", "wave")


class Small(nn.Module):
    """Convolutions, a mean over a map of 8 × 8, a linear layer."""

    def __init__(self, outputs: int = 6, channels: int = 40) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU6(),
            nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.ReLU6(),
            nn.Conv2d(16, channels, 3, stride=2, padding=1), nn.ReLU(),
        )  # fmt: skip
        self.head = nn.Linear(channels, outputs)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.layers(images).mean(dim=(2, 3)))


class ChannelsLast(nn.Module):
    """The same idea with channels last, as some transformers have them."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 40, 4, stride=4)
        self.mixed = nn.Linear(40, 40)
        self.head = nn.Linear(40, 6)

    def forward(self, images: Tensor) -> Tensor:
        features = self.mixed(self.patches(images).relu().permute(0, 2, 3, 1))
        return self.head(features.mean(dim=(1, 2)))


def small_model(outputs: int = 6, *, embedding: bool = False) -> Model:
    torch.manual_seed(0)
    network = Small(outputs).eval()
    names = () if embedding else NAMES[:outputs]
    return Model("small", network, Preprocessing((32, 32), (36, 36)), names, embedding=embedding)


def pictures(count: int, *, seed: int = 0, size: tuple[int, int] = (48, 40)) -> list[Image.Image]:
    """Coloured patches, no two alike."""
    generator = np.random.default_rng(seed)
    coarse = generator.integers(0, 256, (count, 6, 6, 3), dtype=np.uint8)
    return [Image.fromarray(one).resize(size, Image.Resampling.BICUBIC) for one in coarse]
