"""Labelled images on disk, in the layouts that people have them in.

    dataset = datasets.read("cub", "/data/CUB_200_2011", split="test")
    image, boxes = datasets.open_sample(dataset.samples[0])

A new layout is one file with a function `read`, and one line in LAYOUTS. Boxes are x0, y0, x1, y1, half-open, in
pixels, everywhere. The table is light enough for a help text: all else is imported when it is first used.
"""

from __future__ import annotations

import importlib
import inspect
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..table import Entry, Table

if TYPE_CHECKING:
    from ..boxes import Boxes as Boxes
    from .dataset import Dataset as Dataset
    from .dataset import Opened as Opened
    from .dataset import Sample as Sample
    from .dataset import open_sample as open_sample

_HOMES = {
    "Boxes": "l2caf.boxes",
    "Dataset": "l2caf.datasets.dataset",
    "Opened": "l2caf.datasets.dataset",
    "Sample": "l2caf.datasets.dataset",
    "open_sample": "l2caf.datasets.dataset",
}

__all__ = ["LAYOUTS", "Boxes", "Dataset", "DatasetEntry", "Opened", "Sample", "open_sample", "read"]


@dataclass(frozen=True)
class DatasetEntry(Entry):
    """One layout.

    own_classes   its labels number classes of its own, as training needs them; else they are meant to number the
                  outputs of networks that exist already, and are not offered for training
    splits        its reader takes split="train" or "test": pictures of the same classes
    halves        its reader takes half="first" or "second": the classes to train on, and those that stay unseen
    known_by      paths in a folder, of which one says that the folder is of this layout
    """

    own_classes: bool = True
    halves: bool = False
    splits: bool = False
    known_by: tuple[str, ...] = ()


CLIPS = DatasetEntry("clips", "one sub-folder of clips per class, or a list of clips", "l2caf.datasets.clips:read")
"""What networks for clips are trained on. No layout of pictures, so it is not offered where pictures are asked for."""


LAYOUTS = Table(
    "dataset",
    DatasetEntry(
        "imagenet",
        "ImageNet",
        "l2caf.datasets.imagenet:read",
        own_classes=False,
        known_by=(
            "localization.txt",
            "metadata/ILSVRC/test/localization.txt",
            "Annotations/CLS-LOC/val",
            "ILSVRC/Annotations/CLS-LOC/val",
            "ILSVRC2012_bbox_val_v3",
        ),
    ),
    DatasetEntry(
        "cub",
        "CUB-200-2011",
        "l2caf.datasets.cub:read",
        halves=True,
        splits=True,
        known_by=("image_class_labels.txt",),
    ),
    DatasetEntry(
        "cars",
        "Stanford Cars",
        "l2caf.datasets.cars:read",
        halves=True,
        splits=True,
        known_by=(
            "devkit/cars_train_annos.mat",
            "car_devkit/devkit/cars_train_annos.mat",
            "cars_train_annos.mat",
            "cars_annos.mat",
        ),
    ),
    DatasetEntry("manifest", "a list of files with boxes", "l2caf.datasets.manifest:read", own_classes=False),
    DatasetEntry("folder", "one sub-folder per class", "l2caf.datasets.folder:read"),
)
"""The layouts that can be read, by name."""


def read(kind: str, root: str | os.PathLike[str], **options: Any) -> Dataset:
    """Read a dataset by the name of its layout; the options are those of that layout's own `read`.

    >>> read("folder", "/nowhere")
    Traceback (most recent call last):
    l2caf.errors.DatasetError: '/nowhere' does not exist; give the folder that holds one sub-folder per class.
    """
    reader = (CLIPS if kind == CLIPS.key else LAYOUTS[kind]).load()
    known = list(inspect.signature(reader).parameters)[1:]
    for option in options:
        if option not in known:
            raise InputError(f"The layout {kind} has no option {option!r}: it has {', '.join(known)}.")
    dataset: Dataset = reader(root, **options)
    return dataset


def trainable() -> Table[DatasetEntry]:
    """The layouts that a network can be trained on.

    >>> trainable().words()
    'cub, cars, folder'
    """
    return LAYOUTS.only(*(entry.key for entry in LAYOUTS.values() if entry.own_classes))


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
