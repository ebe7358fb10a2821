"""Classes of made pictures that a small network can learn: stripes across or down, fine or coarse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from l2caf.datasets import Dataset, read


def folder(root: Path, *, classes: int = 4, each: int = 8, size: int = 48) -> Path:
    """`root/class0/0.png` and so on; mirror images are of the same class, and phase, colour and noise say nothing."""
    draw = np.random.default_rng(0)
    rows, columns = np.mgrid[0:size, 0:size]
    for label in range(classes):
        for number in range(each):
            angle = np.pi / 2 * (label % 2) + draw.normal(0, 0.05)
            along = columns * np.cos(angle) + rows * np.sin(angle)
            wave = np.sin(0.3 * (1 + label // 2) * along + draw.uniform(0, 6))
            pixels = 128 + 70 * wave[..., None] + draw.normal(0, 15, (size, size, 3)) + draw.normal(0, 20, 3)
            path = root / f"class{label}" / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path)
    return root


def dataset(root: Path, **options: int) -> Dataset:
    return read("folder", folder(root, **options))
