"""CUB-200-2011: 11,788 birds of 200 species, one box per image."""

from __future__ import annotations

import os
from pathlib import Path

from ..boxes import as_boxes
from .annotations import Line, Missing, existing_folder, find_file, find_folder, one_of, present, read_lines
from .dataset import Dataset, Sample

_WHAT = "CUB-200-2011"
_FIRST_HALF = 100  # retrieval trains on the classes up to here and tests on those above


def read(root: str | os.PathLike[str], *, split: str = "all", half: str = "all", missing: Missing = "error") -> Dataset:
    """The official folder (or the one above it): `images/`, `images.txt`, `bounding_boxes.txt` and so on.

    split   "all", "train" or "test", as train_test_split.txt has it
    half    "all", "first" (class ids up to 100) or "second" (above), as for retrieval

    A label is the official class id less 1, so it stays the same in a part of the dataset, with gaps. A box
    is written as x y w h, which is x, y, x + w, y + h here. The two choices combine.
    """
    one_of(split, ("all", "train", "test"), what="split")
    one_of(half, ("all", "first", "second"), what="half")
    folder = existing_folder(root, what=_WHAT)
    folders = [folder, folder / "CUB_200_2011"]
    list_of_images = find_file("images.txt", folders, what=_WHAT)
    home = list_of_images.parent
    images = find_folder(["images"], home, what=_WHAT)
    files = _by_id(list_of_images, fields=2)
    names = _class_names(find_file("classes.txt", [home], what=_WHAT))
    classes = _by_id(find_file("image_class_labels.txt", [home], what=_WHAT), fields=2)
    boxes = _by_id(find_file("bounding_boxes.txt", [home], what=_WHAT), fields=5)
    wanted = _wanted(home, split)
    samples = []
    for image, line in files.items():
        class_id = _belonging(classes, to=line, path=home / "image_class_labels.txt").whole(1, "class id")
        if class_id not in names:
            raise classes[image].fault(f"the class {class_id} is not in classes.txt; add it there")
        box = _box(_belonging(boxes, to=line, path=home / "bounding_boxes.txt"))
        if half != "all" and (class_id <= _FIRST_HALF) != (half == "first"):
            continue
        if wanted is not None and not _is_wanted(wanted, line, home, split):
            continue
        name = line.fields[1]
        samples.append(Sample(images / name, name=name, label=class_id - 1, boxes=as_boxes([box]), stored=True))
    kept, gone = present(samples, listed_in=list_of_images, missing=missing)
    class_names = {class_id - 1: name for class_id, name in names.items()}
    return Dataset(_WHAT, kept, class_names, gone)


def _by_id(path: Path, *, fields: int) -> dict[str, Line]:
    lines: dict[str, Line] = {}
    for line in read_lines(path, fields=fields):
        if line.fields[0] in lines:
            raise line.fault(f"the image {line.fields[0]} stands here twice; remove one of the lines")
        lines[line.fields[0]] = line
    return lines


def _belonging(lines: dict[str, Line], *, to: Line, path: Path) -> Line:
    image = to.fields[0]
    if image not in lines:
        raise to.fault(f"the image {image} has no line in '{path}'; take that file whole from the same dataset")
    return lines[image]


def _class_names(path: Path) -> dict[int, str]:
    """Class ids to readable names: `5 005.Crested_Auklet` is 5: Crested Auklet."""
    names = {}
    for line in read_lines(path, fields=2):
        number, dot, name = line.fields[1].partition(".")
        readable = name if dot and number.isdecimal() else line.fields[1]
        names[line.whole(0, "class id")] = readable.replace("_", " ")
    return names


def _box(line: Line) -> tuple[float, float, float, float]:
    x, y, width, height = (line.real(place, "part of a box") for place in (1, 2, 3, 4))
    return line.box(x, y, x + width, y + height)


def _wanted(home: Path, split: str) -> dict[str, Line] | None:
    if split == "all":
        return None
    return _by_id(find_file("train_test_split.txt", [home], what=_WHAT), fields=2)


def _is_wanted(splits: dict[str, Line], line: Line, home: Path, split: str) -> bool:
    chosen = _belonging(splits, to=line, path=home / "train_test_split.txt")
    is_train = chosen.whole(1, "choice of 1 (train) or 0 (test)")
    if is_train not in (0, 1):
        raise chosen.fault(f"{is_train} is neither 1 (train) nor 0 (test)")
    return (is_train == 1) == (split == "train")
