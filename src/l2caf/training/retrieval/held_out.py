"""Pictures of the training classes that are only measured with, and R@1 on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...errors import DatasetError, InputError
from ...retrieval.scores import recalled, retrieve
from ..batches import Ints
from ..sources import FeatureSource

AT_ONCE = 64  # pictures that run through a network together


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Pictures by their places in a source, their labels, and how embeddings of them are compared."""

    source: FeatureSource
    places: Ints
    labels: Ints
    normalized: bool
    device: torch.device

    def __bool__(self) -> bool:
        return len(self.places) > 0

    def recall(self, part: Callable[[Tensor], Tensor]) -> float:
        """R@1 of what `part` makes of the features at the cut."""
        return self.recall_of(run_from_cut(part, self.source, self.places, device=self.device))

    def recall_of(self, embeddings: Tensor) -> float:
        """The share of the pictures whose nearest other one is of their class."""
        found = retrieve(embeddings.numpy(), self.labels, normalized=self.normalized, top=1)
        return float(recalled(found, self.labels, rank=1).mean())


def run_from_cut(
    part: Callable[[Tensor], Tensor], source: FeatureSource, places: Ints, *, device: torch.device
) -> Tensor:
    """What a part of a network makes of the plain view of pictures, without gradients, on the processor."""
    with torch.no_grad():
        made = [
            part(source.plain(places[first : first + AT_ONCE]).to(device)).float().cpu()
            for first in range(0, len(places), AT_ONCE)
        ]
    return torch.cat(made)


def hold_out(labels: Sequence[int] | Ints, *, share: float, seed: int = 0) -> tuple[Ints, Ints]:
    """Part the pictures of every class: places of those to train on, and of those to measure with.

    Each class keeps two pictures at least to train on; one with fewer is refused. A class with less than four holds
    out none, since one alone has no other to be found by.
    """
    if not 0 <= share < 1:
        raise InputError(f"A share of {share} cannot be held out: give 0 or more, and less than 1.", field="held_out")
    known = np.asarray(labels, np.int64)
    if not known.size:
        raise DatasetError("There are no pictures to train on: check the folder and the choice of classes.")
    draw = np.random.default_rng((seed, 0x5EED))
    held: list[Ints] = []
    for label in np.unique(known):
        members = draw.permutation(np.flatnonzero(known == label))
        count = min(round(share * len(members)), len(members) - 2)
        if count >= 2:
            held.append(members[:count])
    out = np.sort(np.concatenate(held)) if held else np.zeros(0, np.int64)
    return np.setdiff1d(np.arange(len(known)), out), out
