"""Which part of a dataset is measured on: classes that the network has not seen, or pictures left aside."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from .. import datasets
from ..errors import InputError
from ..networks.catalogue import SOURCES
from .dataset import Dataset

if TYPE_CHECKING:
    from ..networks.embedding import EmbeddingConfig

PARTS = ("unseen", "seen", "held-out", "all")
PICTURES = ("train", "test", "held-out", "all")
_HALVES = {"unseen": "second", "seen": "first", "held-out": "first", "all": "all"}
HELD_OUT_SHARE = 0.2  # of the pictures, to choose a threshold, where training left none aside
HELD_OUT = "held_out"  # where a checkpoint's config names the pictures that training left aside


def part_of(kind: str, root: Path, *, part: str | None, network: str) -> tuple[Dataset, str]:
    """Read a part of a dataset; with none named, the unseen half of the classes where the layout has halves."""
    has_halves = datasets.LAYOUTS[kind].halves
    chosen = part or ("unseen" if has_halves else "all")
    if chosen not in PARTS:
        raise InputError(f"There is no split {chosen!r}: take one of {', '.join(PARTS)}.", field="split")
    if chosen in ("unseen", "seen") and not has_halves:
        raise InputError(f"The layout {kind} has no halves of classes: take all or held-out.", field="split")
    found = datasets.read(kind, root, half=_HALVES[chosen]) if has_halves else datasets.read(kind, root)
    if chosen == "held-out":
        names = set(_held_out(network))
        found = replace(found, samples=tuple(sample for sample in found.samples if sample.name in names))
    if not found.samples:
        raise InputError(
            f"The {chosen} part of {found.name} in '{root}' holds no picture: choose another.", field="split"
        )
    return found, chosen


def pictures_of(kind: str, root: Path, *, part: str | None, network: str) -> tuple[Dataset, str]:
    """Read the pictures that maps are measured on.

    With no part named, a classifier that was trained on this data is measured on pictures that it has not seen: the
    official test ones, or those that training left aside where there are none. For all others it is all of them.
    """
    has_splits = datasets.LAYOUTS[kind].splits
    if part is not None and part not in PICTURES:
        raise InputError(f"There is no split {part!r} of pictures: take one of {', '.join(PICTURES)}.", field="split")
    if part in ("train", "test") and not has_splits:
        raise InputError(f"The layout {kind} has no official split: take all or held-out.", field="split")
    if part in ("train", "test"):
        found, chosen = datasets.read(kind, root, split=part), part
    else:
        found, chosen = datasets.read(kind, root), part or "all"
        config = _config(network) if part is None else None
        if config and config.classes and config.dataset == found.name and _is_classifier(network):
            chosen = "test" if has_splits else "held-out"
            found = datasets.read(kind, root, split="test") if has_splits else found
    if chosen == "held-out":
        names = set(_held_out(network))
        found = replace(found, samples=tuple(sample for sample in found.samples if sample.name in names))
    if not found.samples:
        raise InputError(
            f"The {chosen} part of {found.name} in '{root}' holds no picture: choose another.", field="split"
        )
    return found, chosen


def chooses(measured: Dataset, kind: str, root: Path, *, network: str) -> tuple[Dataset, Dataset, str]:
    """Pictures that choose a threshold, those that are then measured, and which the first are, in words.

    The training of the network left some aside: they choose, and all others are measured. Else, or where the same ones
    are to be measured, every fifth picture chooses, and the rest is measured.
    """
    config = _config(network)
    aside = set(_held_out(network)) if config and HELD_OUT in config.training else set()
    aside -= {sample.name for sample in measured.samples}
    if config and aside and config.dataset == measured.name:
        found = datasets.read(kind, root)
        others = tuple(sample for sample in found.samples if sample.name in aside and len(sample.boxes))
        if others:
            words = "the pictures that the training of this network left aside"
            return replace(found, samples=others), measured, words
    boxed = tuple(sample for sample in measured.samples if len(sample.boxes))
    if len(boxed) < 2:
        raise InputError(
            f"{len(boxed)} picture with boxes cannot both choose a threshold and be measured: give two or more.",
            field="threshold",
        )
    held = replace(measured, samples=boxed).limit(max(1, round(HELD_OUT_SHARE * len(boxed))))
    names = {sample.name for sample in held.samples}
    rest = tuple(sample for sample in measured.samples if sample.name not in names)
    return held, replace(measured, samples=rest), "every fifth of the pictures, which are not measured"


def trained_by(network: str) -> str | None:
    """The loss that a checkpoint was trained with; None for any other network."""
    config = _config(network)
    return config.loss if config else None


def _held_out(network: str) -> list[str]:
    config = _config(network)
    names = config.training.get(HELD_OUT) if config else None
    if not isinstance(names, list):
        raise InputError(
            f"{network} names no pictures that its training left aside: choose another split.", field="split"
        )
    return [str(name) for name in names]


def _is_classifier(network: str) -> bool:
    from ..networks.weights import read_header

    return read_header(network).loader == "localiser"


def _config(network: str) -> EmbeddingConfig | None:
    if not SOURCES["checkpoint"].takes(network):
        return None
    from ..networks.embedding import read_config

    return read_config(network)
