"""Which of the 1,000 classes an image of ImageNet belongs to, from whatever says so."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np

from ..errors import DatasetError
from ..networks.class_names import IMAGENET_CLASSES
from ..networks.imports import import_timm
from .imagenet_xml import Annotation
from .lines import Line, read_lines, read_text

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
