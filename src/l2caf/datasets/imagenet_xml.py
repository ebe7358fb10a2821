"""The official XML files: the size of an image and the boxes of its objects, each with its synset."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

from ..errors import DatasetError
from .lines import Line


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
