"""ImageNet's labels and boxes, as XML files or as the lists of the localisation benchmark."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from ..boxes import as_boxes
from ..errors import DatasetError
from ..networks.class_names import IMAGENET_CLASSES
from ..networks.imports import import_timm
from .annotations import Line, find_file, read_lines, read_text
from .dataset import Sample

SYNSET = re.compile(r"n\d{8}")
GROUND_TRUTH = "ILSVRC2012_validation_ground_truth.txt"


@cache
def synset_labels() -> dict[str, int]:
    """Synsets to labels: networks count the 1,000 synsets in their sorted order.

    >>> synset_labels()["n01440764"], len(synset_labels())
    (0, 1000)
    """
    synsets = import_timm().data.ImageNetInfo().label_names()
    return {synset: label for label, synset in enumerate(sorted(synsets))}


class Labels:
    """The label of an image: by a list that was given, else by its folder, its XML file, or a list found."""

    def __init__(self, *, given: Path | None, found: Path | None) -> None:
        self.given, self.found = given, found
        self.by_list = None if given is None else read_labels(given)

    def label_of(self, path: Path, annotation: Annotation) -> int:
        """The label of the image at `path`."""
        if self.by_list is not None:
            return self._listed(path, self.by_list)
        folder = path.parent.name
        if SYNSET.fullmatch(folder):
            if folder not in synset_labels():
                raise DatasetError(f"The folder of '{path}' is none of ImageNet's 1,000 synsets; move it away.")
            return synset_labels()[folder]
        known = {synset_labels()[synset] for synset in annotation.synsets if synset in synset_labels()}
        if len(known) == 1:
            return known.pop()
        if self.found is None:
            fault = "objects of several classes" if known else "no object of ImageNet's 1,000 synsets"
            raise DatasetError(f"'{annotation.path}' has {fault}; give a list of the images' classes as labels.")
        self.given, self.by_list = self.found, read_labels(self.found)
        return self._listed(path, self.by_list)

    def _listed(self, path: Path, labels: dict[str, int]) -> int:
        if path.stem not in labels:
            raise DatasetError(f"'{self.given}' has no class for the image '{path}'; take the whole list.")
        return labels[path.stem]


def read_labels(path: Path) -> dict[str, int]:
    """Stems of files to labels, from a list in one of four forms.

    ILSVRC2012_val_00000001.JPEG 65          a label from 0 to 999, also after a comma
    ILSVRC2012_val_00000001.JPEG n01751748   a synset
    n01751748                                line k is image k
    490                                      the devkit's own ids, for which it needs meta.mat beside it
    """
    texts = [line for line in read_text(path).splitlines() if line.strip()]
    if not texts:
        raise DatasetError(f"'{path}' is empty; give a list with the class of each image.")
    separator = "," if "," in texts[0] else None
    fields = len(texts[0].split(separator))
    if fields not in (1, 2):
        raise Line(path, 1, ()).fault("neither a class nor a file and its class; give one or both a line")
    lines = read_lines(path, fields=fields, separator=separator)
    if fields == 2:
        return {Path(line.fields[0]).stem: _label(line, position=1) for line in lines}
    ids = None if SYNSET.fullmatch(texts[0].strip()) else _devkit_ids(path)
    return {
        f"ILSVRC2012_val_{number:08d}": _label(line, position=0) if ids is None else _by_id(line, ids)
        for number, line in enumerate(lines, start=1)
    }


def _label(line: Line, *, position: int) -> int:
    text = line.fields[position]
    if SYNSET.fullmatch(text):
        if text not in synset_labels():
            raise line.fault(f"{text} is none of ImageNet's 1,000 synsets")
        return synset_labels()[text]
    label = line.whole(position, "label or synset")
    if not 0 <= label < IMAGENET_CLASSES:
        raise line.fault(f"the label {label} is not from 0 to {IMAGENET_CLASSES - 1}")
    return label


def _by_id(line: Line, ids: dict[int, str]) -> int:
    number = line.whole(0, "id of a class")
    if number not in ids:
        raise line.fault(f"the id {number} is not in meta.mat; take both from one devkit")
    return synset_labels()[ids[number]]


def _devkit_ids(path: Path) -> dict[int, str]:
    """The devkit's ids to synsets. They follow no order that could be guessed: its id 1 is label 250."""
    from scipy.io import loadmat

    meta = path.parent / "meta.mat"
    if not meta.is_file():
        raise DatasetError(
            f"'{path}' counts classes by the devkit's own ids, and 'meta.mat', which translates them, "
            f"is missing: it was looked for in '{path.parent}'; put it there."
        )
    try:
        synsets = np.atleast_1d(loadmat(meta, squeeze_me=True)["synsets"])
        ids = {int(row["ILSVRC2012_ID"]): str(row["WNID"]) for row in synsets}
    except Exception as error:  # a damaged file may raise anything
        raise DatasetError(f"'{meta}' cannot be read as the devkit's meta.mat; download it again.") from error
    return {number: synset for number, synset in ids.items() if synset in synset_labels()}


@dataclass(frozen=True)
class Annotation:
    """One XML file: boxes half-open, in pixels of an image of `size`, and the synset of each."""

    path: Path
    size: tuple[int, int] | None
    boxes: tuple[tuple[float, float, float, float], ...]
    synsets: tuple[str, ...]


def read_xml(path: Path) -> Annotation:
    """Read one file; the boxes are written as first and last pixel, counted from 0."""
    try:
        tree = ElementTree.parse(path).getroot()
    except ElementTree.ParseError as error:
        raise Line(path, error.position[0], ()).fault("this is no XML; unpack the file again") from error
    except OSError as error:
        raise DatasetError(f"'{path}' cannot be read ({error.strerror}); check its permissions.") from error
    boxes, synsets = [], []
    for number, item in enumerate(tree.iter("object"), start=1):
        synsets.append((item.findtext("name") or "").strip())
        edges = tuple(item.findtext(f"bndbox/{edge}") or "" for edge in ("xmin", "ymin", "xmax", "ymax"))
        line = Line(path, number, edges, unit="object")
        x0, y0, x1, y1 = (line.real(place, "edge of a box") for place in range(4))
        boxes.append(line.box(x0, y0, x1 + 1, y1 + 1))
    if not boxes:
        raise DatasetError(f"'{path}' holds no object with a box; unpack the file again.")
    return Annotation(path, _size(tree, path), tuple(boxes), tuple(synsets))


def _size(tree: ElementTree.Element, path: Path) -> tuple[int, int] | None:
    texts = tuple(tree.findtext(f"size/{side}") or "0" for side in ("width", "height"))
    line = Line(path, 1, texts, unit="size")
    width, height = line.whole(0, "width"), line.whole(1, "height")
    # Some tools leave the size out or at 0: then the boxes count in pixels of the file.
    return (width, height) if width > 0 and height > 0 else None


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
