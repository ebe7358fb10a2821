"""Which pictures make a batch: P classes with K pictures each, drawn by the number of the iteration.

A batch is a function of the seed and the iteration, and of nothing that came before: a run that goes on at iteration
300 draws what the uninterrupted run would have drawn, and every process of several draws the same batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..errors import DatasetError, InputError

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ClassBatches:
    """Batches of `classes` classes with `each` pictures, no picture twice in a batch where the class has enough.

    labels    of all training pictures, (N,)
    classes   a batch; all of them where there are fewer
    each      pictures per class: 2 for N-pair, which is one pair; more for triplets

    >>> ClassBatches(np.array([0, 0, 1, 1, 2, 2]), classes=2, each=2, seed=0)(7).shape
    (4,)
    """

    labels: Ints
    classes: int
    each: int
    seed: int = 0

    def __post_init__(self) -> None:
        if self.each < 2:
            raise InputError(f"{self.each} pictures of a class in a batch make no pair: give 2 or more.", field="each")
        if self.classes < 2 or len(self._members) < 2:
            raise DatasetError(
                f"{min(self.classes, len(self._members))} class in a batch leaves nothing to tell apart: "
                "give pictures of 2 classes or more.",
                field="classes" if self.classes < 2 else None,
            )
        for label, members in self._members.items():
            if len(members) < 2:
                raise DatasetError(
                    f"The class {label} has {len(members)} picture to train on, which makes no pair: "
                    "add pictures to it, or leave it out."
                )

    @property
    def size(self) -> int:
        """Pictures in a batch."""
        return min(self.classes, len(self._members)) * self.each

    def __call__(self, iteration: int) -> Ints:
        """The places of the pictures of a batch, those of a class in a row."""
        draw = np.random.default_rng((self.seed, iteration))
        chosen = draw.permutation(sorted(self._members))[: self.classes]
        return np.concatenate([self._of_class(int(label), draw) for label in chosen])

    def views(self, iteration: int, count: int) -> Ints:
        """The number of the view, one of `count`, that each picture of a batch is shown in."""
        return np.random.default_rng((self.seed, iteration, 1)).integers(0, count, self.size)

    def _of_class(self, label: int, draw: np.random.Generator) -> Ints:
        members = self._members[label]
        rounds = -(-self.each // len(members))  # a class with too few is gone through anew
        return np.concatenate([draw.permutation(members) for _ in range(rounds)])[: self.each]

    @cached_property
    def _members(self) -> dict[int, Ints]:
        return {int(label): np.flatnonzero(self.labels == label) for label in np.unique(self.labels)}


@dataclass(frozen=True)
class EpochBatches:
    """Batches of `size` pictures out of `count`, such that an epoch has each picture once, but for a rest.

    >>> batches = EpochBatches(10, size=4)
    >>> batches.per_epoch, len({*batches(0).tolist(), *batches(1).tolist()})
    (2, 8)
    """

    count: int
    size: int
    seed: int = 0

    def __post_init__(self) -> None:
        if self.size < 1:
            raise InputError(f"A batch of {self.size} pictures is none: give 1 or more.", field="batch")
        object.__setattr__(self, "size", min(self.size, self.count))

    @property
    def per_epoch(self) -> int:
        return max(1, self.count // self.size)

    def __call__(self, iteration: int) -> Ints:
        """The places of the pictures of a batch."""
        epoch, within = divmod(iteration, self.per_epoch)
        order = np.random.default_rng((self.seed, epoch)).permutation(self.count)
        return order[within * self.size : (within + 1) * self.size]

    def views(self, iteration: int, count: int) -> Ints:
        """The number of the view, one of `count`, that each picture of a batch is shown in."""
        return np.random.default_rng((self.seed, iteration, 1)).integers(0, count, self.size)


def share_of(batch: Ints, *, rank: int, processes: int) -> Ints:
    """The part of a batch that one of several processes computes; the parts, in order of rank, are the batch."""
    if len(batch) % processes:
        raise InputError(
            f"A batch of {len(batch)} pictures cannot be split over {processes} processes evenly: "
            "choose classes × pictures per class as a multiple of that."
        )
    part = len(batch) // processes
    return batch[rank * part : (rank + 1) * part]
