"""The box lists of the WSOL benchmark: image_ids, class_labels, image_sizes and localization, as text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..boxes import as_boxes
from .dataset import Sample
from .lines import Line, read_lines
from .places import find_file

IDS, LABELS, SIZES, BOXES = "image_ids.txt", "class_labels.txt", "image_sizes.txt", "localization.txt"
_WHAT = "the WSOL benchmark's lists"


def read_lists(folder: Path, *, classes: int, locate: Callable[[str], Path]) -> list[Sample]:
    """The samples of one folder of lists; `locate` says where the image of an id lies.

    Boxes are written as first and last pixel, counted from 0, on an image of the size in image_sizes.txt;
    without that file they are taken for the pixels of the image on disk.
    """
    ids = find_file(IDS, [folder], what=_WHAT)
    labels = _labels(find_file(LABELS, [folder], what=_WHAT), classes=classes)
    boxes = _boxes(find_file(BOXES, [folder], what=_WHAT))
    sizes = _sizes(folder / SIZES) if (folder / SIZES).is_file() else {}
    samples = []
    for line in read_lines(ids, fields=1, separator=","):
        name = line.fields[0]
        for known, file in ((labels, LABELS), (boxes, BOXES)):
            if name not in known:
                raise line.fault(f"'{name}' has no line in '{folder / file}'; take both files from one release")
        if sizes and name not in sizes:
            raise line.fault(f"'{name}' has no line in '{folder / SIZES}'; take both files from one release")
        samples.append(
            Sample(
                locate(name),
                name=name,
                label=labels[name],
                boxes=as_boxes(boxes[name]),
                size=sizes.get(name),
                stored=True,
            )
        )
    return samples


def _labels(path: Path, *, classes: int) -> dict[str, int]:
    labels = {}
    for line in read_lines(path, fields=2, separator=","):
        label = line.whole(1, "class")
        if not 0 <= label < classes:
            raise line.fault(f"the class {label} is not from 0 to {classes - 1}")
        labels[line.fields[0]] = label
    return labels


def _sizes(path: Path) -> dict[str, tuple[int, int]]:
    sizes = {}
    for line in read_lines(path, fields=3, separator=","):
        width, height = line.whole(1, "width"), line.whole(2, "height")
        if width < 1 or height < 1:
            raise line.fault(f"an image of {width}×{height} pixels has none; correct its size")
        sizes[line.fields[0]] = (width, height)
    return sizes


def _boxes(path: Path) -> dict[str, list[tuple[float, float, float, float]]]:
    boxes: dict[str, list[tuple[float, float, float, float]]] = {}
    for line in read_lines(path, fields=5, separator=","):
        boxes.setdefault(line.fields[0], []).append(_box(line))
    return boxes


def _box(line: Line) -> tuple[float, float, float, float]:
    x0, y0, x1, y1 = (line.real(place, "edge of a box") for place in (1, 2, 3, 4))
    return line.box(x0, y0, x1 + 1, y1 + 1)
