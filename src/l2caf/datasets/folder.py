"""A plain folder with one sub-folder per class."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ..errors import DatasetError, ImageError
from ..images import image_files
from .annotations import existing_folder
from .dataset import Dataset, Sample, index_of_names


def read(root: str | os.PathLike[str], *, classes: Sequence[str] | None = None) -> Dataset:
    """Images in `root/<class>/`, at any depth below it. There are no boxes.

    The label is the place of the sub-folder among all of them, sorted by name; or its place in `classes`,
    which is what a part of a dataset needs to keep the labels of the whole.
    """
    folder = existing_folder(root, what="one sub-folder per class")
    folders = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not folders:
        raise DatasetError(f"'{folder}' has no sub-folders: put the images of each class into one of its own.")
    names = [path.name for path in folders] if classes is None else list(classes)
    labels = index_of_names(names)
    samples = [sample for path in folders for sample in _samples(path, folder, labels)]
    return Dataset(f"folder '{folder.name}'", tuple(samples), dict(enumerate(names)))


def _samples(path: Path, root: Path, labels: dict[str, int]) -> list[Sample]:
    if path.name not in labels:
        raise DatasetError(f"The folder '{path}' is none of the {len(labels)} classes given: rename or move it.")
    try:
        files = image_files(path)
    except ImageError as error:  # an empty class is a class that was not copied
        raise DatasetError(str(error)) from error
    return [Sample(file, name=file.relative_to(root).as_posix(), label=labels[path.name]) for file in files]
