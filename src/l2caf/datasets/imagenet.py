"""ImageNet's validation images with their boxes, in the arrangements that people have on disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from ..boxes import as_boxes
from ..errors import DatasetError
from ..images import SUFFIXES
from ..networks.class_names import IMAGENET_CLASSES, imagenet_class_names
from .annotations import Missing, existing_folder, listed, present
from .dataset import Dataset, Sample
from .imagenet_annotations import (
    BOXES,
    GROUND_TRUTH,
    IDS,
    LABELS,
    SYNSET,
    Annotation,
    Labels,
    read_lists,
    read_xml,
    synset_labels,
)

_WHAT = "ImageNet's validation images"
_IMAGES = (
    "val", "validation", "images/val", "ILSVRC2012_img_val", "Data/CLS-LOC/val", "ILSVRC/Data/CLS-LOC/val",
    "dataset/ILSVRC/val", "ILSVRC/val", "images", ".",
)  # fmt: skip
_XML = (
    "Annotations/CLS-LOC/val", "ILSVRC/Annotations/CLS-LOC/val", "Annotations/val", "annotations/val",
    "ILSVRC2012_bbox_val_v3/val", "ILSVRC2012_bbox_val_v3", "bbox_val", "val", "Annotations",
    "annotations", ".",
)  # fmt: skip
# In the benchmark's own arrangement ImageNet's validation images are its test set, and "val" is ImageNetV2.
_LISTS = tuple(
    f"{base}{part}"
    for base in ("", "metadata/ILSVRC/", "metadata/ilsvrc/", "metadata/")
    for part in (".", "test", "val")
)
_DEVKIT = (".", "data", "devkit/data", "ILSVRC2012_devkit_t12/data", "ILSVRC/devkit/data")


def read(
    root: str | os.PathLike[str],
    *,
    annotations: str | os.PathLike[str] | None = None,
    labels: str | os.PathLike[str] | None = None,
    missing: Missing = "error",
) -> Dataset:
    """Images in `val/` (or root itself), flat or in one folder a synset, with boxes from lists or XML.

    annotations   folder of the benchmark's lists or of the XML files, where it is not found below root; lists
                  are looked for first (root, metadata/ILSVRC/test or val), then Annotations/CLS-LOC/val
    labels        text file with the class of each image; else the synset folder says it, else the XML file
    missing       "skip" leaves listed images out that are not on disk

    Labels count from 0 to 999 in the order of the sorted synsets, as networks have them. Boxes are written as
    first and last pixel, and become half-open here, in pixels of the image that they were made for
    (image_sizes.txt, or <size> in the XML); `open_sample` scales them to a shrunk copy. Lists whose sizes are
    those of the shrunk images were made for them, and stay as they are.
    """
    folder = existing_folder(root, what=_WHAT)
    given = None if annotations is None else existing_folder(annotations, what="the boxes")
    lists = _folder_of_lists(folder, given)
    if lists is not None:
        samples, source = read_lists(lists, classes=IMAGENET_CLASSES, locate=_locator(folder)), lists / IDS
    else:
        source = _folder_of_xml(folder, given)
        samples = _samples_of_xml(folder, source, None if labels is None else Path(labels))
    kept, gone = present(samples, listed_in=source, missing=missing)
    return Dataset("ImageNet validation", kept, dict(enumerate(imagenet_class_names())), gone)


def _folder_of_lists(root: Path, given: Path | None) -> Path | None:
    candidates = [given] if given is not None else [root / place for place in _LISTS]
    for candidate in candidates:
        # One of them is enough to know that lists were meant; what else is missing is then said by name.
        if any((candidate / name).is_file() for name in (BOXES, LABELS, IDS)):
            return candidate
    return None


def _folder_of_xml(root: Path, given: Path | None) -> Path:
    candidates = [given] if given is not None else [root / place for place in _XML]
    for candidate in candidates:
        if _files_by_stem(candidate, {".xml"}):
            return candidate
    if given is not None:
        raise DatasetError(f"'{given}' holds neither '{BOXES}' nor XML files: give the folder of the boxes.")
    lists, files = [root, root / "metadata/ILSVRC/test"], [root / _XML[0], root / "val"]
    raise DatasetError(
        f"The boxes of {_WHAT} are missing: '{BOXES}' was looked for in {listed(lists)}, "
        f"and XML files in {listed(files)}; "
        "unpack them there, or give their folder as annotations."
    )


def _locator(root: Path) -> Callable[[str], Path]:
    """Where the image of an id like `val/ILSVRC2012_val_00000001.JPEG` lies."""
    bases = [base for base in (root, root / "dataset" / "ILSVRC", root / "ILSVRC", root / "images") if base.is_dir()]
    by_stem: dict[str, Path] | None = None

    def locate(name: str) -> Path:
        nonlocal by_stem
        for base in bases:
            if (base / name).is_file():
                return base / name
        if by_stem is None:  # no such path: flat, or one folder a synset
            by_stem = _images(root)
        return by_stem.get(Path(name).stem, root / name)

    return locate


def _samples_of_xml(root: Path, source: Path, labels_file: Path | None) -> list[Sample]:
    images = _images(root)
    if not images:
        raise DatasetError(
            f"{_WHAT} are missing: looked for in {listed([root / 'val', root / _IMAGES[4], root])}, "
            "flat or in one folder a synset; unpack them there."
        )
    boxes = _files_by_stem(source, {".xml"})
    without = [stem for stem in images if stem not in boxes]
    if without:
        raise DatasetError(
            f"{len(without):,} of the {len(images):,} images have no XML file with their boxes, the first of "
            f"them '{images[without[0]]}': '{without[0]}.xml' was looked for in '{source}'; unpack it there."
        )
    devkit = (root / place / GROUND_TRUTH for place in _DEVKIT)
    labels = Labels(given=labels_file, found=next((path for path in devkit if path.is_file()), None))
    return [_sample_of_xml(path, read_xml(boxes[stem]), labels) for stem, path in images.items()]


def _sample_of_xml(path: Path, annotation: Annotation, labels: Labels) -> Sample:
    label = labels.label_of(path, annotation)
    # An object of another class is no ground truth for this image's class.
    own = [
        box
        for box, synset in zip(annotation.boxes, annotation.synsets, strict=True)
        if synset_labels().get(synset, label) == label
    ]
    if not own:
        raise DatasetError(
            f"'{annotation.path}' has no box of the class {label}, to which '{path}' belongs; "
            "take images, boxes and labels from one release."
        )
    return Sample(path, name=path.stem, label=label, boxes=as_boxes(own), size=annotation.size, stored=True)


def _images(root: Path) -> dict[str, Path]:
    for place in _IMAGES:
        found = _files_by_stem(root / place, SUFFIXES)
        if found:
            return found
    return {}


def _files_by_stem(folder: Path, suffixes: Iterable[str]) -> dict[str, Path]:
    """Files in the folder and in the synset folders below it, sorted by name; nothing deeper is looked at."""
    if not folder.is_dir():
        return {}
    wanted, files = frozenset(suffixes), {}
    for place in [folder, *sorted(path for path in _subfolders(folder) if SYNSET.fullmatch(path.name))]:
        with os.scandir(place) as entries:
            for entry in entries:
                stem, suffix = os.path.splitext(entry.name)  # noqa: PTH122 - twice as fast on 50,000 names
                if suffix.lower() in wanted and not entry.name.startswith("."):
                    files[stem] = place / entry.name
    return dict(sorted(files.items()))


def _subfolders(folder: Path) -> list[Path]:
    with os.scandir(folder) as entries:
        return [folder / entry.name for entry in entries if entry.is_dir()]
