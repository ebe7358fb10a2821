"""CARS196: 16,185 cars of 196 models, one box per image, with annotations in MATLAB files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..boxes import as_boxes
from ..errors import DatasetError
from .annotations import Line, Missing, existing_folder, find_file, find_folder, listed, one_of, present
from .dataset import Dataset, Sample

_WHAT = "CARS196"
_FIRST_HALF = 98  # retrieval trains on the classes up to here and tests on those above
_EDGES = ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2")
_FILES = {
    "train": ("cars_train_annos.mat",),
    "test": ("cars_test_annos_withlabels.mat", "cars_test_annos.mat"),
}


def read(root: str | os.PathLike[str], *, split: str = "all", half: str = "all", missing: Missing = "error") -> Dataset:
    """The two folders with their devkit, or all images in one with `cars_annos.mat`.

        cars_train/  cars_test/  devkit/cars_train_annos.mat  devkit/cars_meta.mat
        cars_test_annos_withlabels.mat (also in devkit/)
        or  car_ims/  cars_annos.mat

    split   "all", "train" or "test", by folder
    half    "all", "first" (class ids up to 98) or "second" (above), as for retrieval, over both folders

    A label is the official class id less 1. The boxes count pixels from 1 and include the last one, so
    x1, y1, x2, y2 is x1 - 1, y1 - 1, x2, y2 here. Without cars_meta.mat the classes have no names.
    """
    one_of(split, ("all", "train", "test"), what="split")
    one_of(half, ("all", "first", "second"), what="half")
    folder = existing_folder(root, what=_WHAT)
    places = [folder, folder / "devkit", folder / "car_devkit" / "devkit"]
    together = [place / "cars_annos.mat" for place in places if (place / "cars_annos.mat").is_file()]
    apart = any((place / name).is_file() for place in places for names in _FILES.values() for name in names)
    if together and not apart:
        entries = list(_together(together[0], folder, split))
        source = together[0]
    else:
        entries = [
            entry for part in ("train", "test") if split in ("all", part) for entry in _apart(folder, places, part)
        ]
        source = entries[0][0].path.parent if entries else folder
    samples = [sample for sample in (_sample(*entry, half=half) for entry in entries) if sample is not None]
    kept, gone = present(samples, listed_in=source, missing=missing)
    return Dataset(_WHAT, kept, _class_names([*places, *(path.parent for path in together)]), gone)


def _apart(folder: Path, places: list[Path], part: str) -> Iterator[tuple[Line, Any, Path, str]]:
    names = _FILES[part]
    found = [place / name for name in names for place in places if (place / name).is_file()]
    path = found[0] if found else find_file(names[0], places, what=_WHAT)
    rows = _annotations(path)
    if rows.dtype.names is not None and "class" not in rows.dtype.names:
        raise DatasetError(
            f"'{path}' holds no classes: put '{names[0]}' into {listed(places[:2])}, or take split='train'."
        )
    images = find_folder([f"cars_{part}", f"cars_{part}/cars_{part}"], folder, what=_WHAT)
    nested = images / images.name  # some archives hold a folder of their own name
    images = nested if nested.is_dir() else images
    for number, row in enumerate(rows, start=1):
        line = Line(path, number, (), unit="entry")
        file = _text(line, row, "fname")
        yield line, row, images / file, f"cars_{part}/{file}"


def _together(path: Path, folder: Path, split: str) -> Iterator[tuple[Line, Any, Path, str]]:
    for number, row in enumerate(_annotations(path), start=1):
        line = Line(path, number, (), unit="entry")
        if split != "all" and (_number(line, row, "test") == 1) != (split == "test"):
            continue
        file = _text(line, row, "relative_im_path")
        yield line, row, folder / file, file


def _sample(line: Line, row: Any, path: Path, name: str, *, half: str) -> Sample | None:
    class_id = _number(line, row, "class")
    if class_id < 1:
        raise line.fault(f"the class {class_id} is not known; classes count from 1")
    x1, y1, x2, y2 = (_number(line, row, edge) for edge in _EDGES)
    box = line.box(x1 - 1, y1 - 1, x2, y2)
    if half != "all" and (class_id <= _FIRST_HALF) != (half == "first"):
        return None
    return Sample(path, name=name, label=class_id - 1, boxes=as_boxes([box]), stored=True)


def _annotations(path: Path) -> Any:
    content = _load(path)
    if "annotations" not in content:
        raise DatasetError(f"'{path}' holds no 'annotations'; take the file from the devkit of {_WHAT}.")
    return np.atleast_1d(content["annotations"])


def _class_names(places: list[Path]) -> dict[int, str]:
    for place in places:
        for name in ("cars_meta.mat", "cars_annos.mat"):
            if (place / name).is_file():
                names = np.atleast_1d(_load(place / name).get("class_names", ()))
                return {label: str(text) for label, text in enumerate(names)}
    return {}


def _load(path: Path) -> dict[str, Any]:
    from scipy.io import loadmat

    try:
        return loadmat(path, squeeze_me=True)
    except Exception as error:  # a damaged file may raise anything
        raise DatasetError(f"'{path}' is no MATLAB file that can be read; download the devkit again.") from error


def _number(line: Line, row: Any, field: str) -> int:
    try:
        return int(row[field])
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise line.fault(f"the field '{field}' holds no number; download the devkit again") from error


def _text(line: Line, row: Any, field: str) -> str:
    try:
        text = row[field]
    except (ValueError, KeyError, IndexError):
        text = None
    if not isinstance(text, str) or not text:
        raise line.fault(f"the field '{field}' names no file; download the devkit again")
    return text
