"""Names for a network's outputs, and the way back from what a person types to an index."""

from __future__ import annotations

import difflib
import re

from ..errors import ClassError
from .imports import import_torchvision
from .model import CatalogueEntry

IMAGENET_CLASSES = 1000


def imagenet_class_names() -> tuple[str, ...]:
    """The 1,000 classes of ImageNet in the usual order, by short names of which no two are equal.

    >>> imagenet_class_names()[207]
    'golden retriever'
    """
    # torchvision's list tells the two cranes and the two maillots apart; others do not.
    return tuple(import_torchvision().models.ResNet50_Weights.IMAGENET1K_V1.meta["categories"])


def class_index(entry: CatalogueEntry, text: str) -> int:
    """The class that a person means: "207", "golden retriever", or a part that only one name has.

    A whole name wins over a whole word in a name, and that over any part of one; case does not matter.
    """
    wanted = " ".join(text.split()).casefold()
    if re.fullmatch(r"[+-]?\d+", wanted):
        return _checked(int(wanted), entry)
    if not entry.class_names:
        raise ClassError(f"The classes of {entry.name} have no names: give the class {text!r} by its number.")
    if not wanted:
        raise ClassError("The class is empty: give its number or its name.")
    names = [name.casefold() for name in entry.class_names]
    word = re.compile(rf"\b{re.escape(wanted)}\b")
    for found in (
        [index for index, name in enumerate(names) if name == wanted],
        [index for index, name in enumerate(names) if word.search(name)],
        [index for index, name in enumerate(names) if wanted in name],
    ):
        if len(found) == 1:
            return found[0]
        if found:
            raise ClassError(f"{text!r} fits {len(found)} classes of {entry.name}: say which, {_listed(found, entry)}.")
    raise ClassError(f"{entry.name} has no class {text!r}{_nearest(wanted, names, entry)}.")


def _checked(index: int, entry: CatalogueEntry) -> int:
    count = len(entry.class_names)
    if index < 0 or (count and index >= count):
        highest = f"from 0 to {count - 1}" if count else "from 0 on"
        raise ClassError(f"{entry.name} has no class {index}: its classes are numbered {highest}.")
    return index


def _nearest(wanted: str, names: list[str], entry: CatalogueEntry) -> str:
    near = difflib.get_close_matches(wanted, names, n=3, cutoff=0.5)
    found = [names.index(name) for name in near]
    if not found:
        return ": give its number or a part of its name"
    return f": the nearest are {_listed(found, entry)}"


def _listed(found: list[int], entry: CatalogueEntry, count: int = 5) -> str:
    shown = ", ".join(f"{entry.class_names[index]} ({index})" for index in found[:count])
    return shown + (", …" if len(found) > count else "")
