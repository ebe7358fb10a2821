"""Labelled images on disk, in the layouts that people have them in.

    dataset = datasets.read("cub", "/data/CUB_200_2011", split="test")
    image, boxes = datasets.open_sample(dataset.samples[0])

One file a layout; each has a function `read`. Boxes are x0, y0, x1, y1, half-open, in pixels, everywhere.
"""

from __future__ import annotations

import importlib
import inspect
import os
from typing import Any

from ..boxes import Boxes
from ..errors import DatasetError, InputError
from .dataset import Dataset, Opened, Sample, open_sample

KINDS = ("imagenet", "cub", "cars", "manifest", "folder")
"""The layouts that can be read, by name."""

__all__ = ["KINDS", "Boxes", "Dataset", "Opened", "Sample", "open_sample", "read"]


def read(kind: str, root: str | os.PathLike[str], **options: Any) -> Dataset:
    """Read a dataset by the name of its layout; the options are those of that layout's own `read`."""
    if kind not in KINDS:
        raise DatasetError(f"There is no layout {kind!r}: take one of {', '.join(KINDS)}.")
    reader = importlib.import_module(f".{kind}", __name__).read
    known = list(inspect.signature(reader).parameters)[1:]
    for option in options:
        if option not in known:
            raise InputError(f"The layout {kind} has no option {option!r}: it has {', '.join(known)}.")
    dataset: Dataset = reader(root, **options)
    return dataset
