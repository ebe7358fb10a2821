"""Batches of a dataset, read ahead in the background, in order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from PIL import Image

from ..boxes import Boxes
from ..errors import InputError, L2cafError
from ..preprocessing import Crop, Input, Prepared
from .dataset import Sample, open_sample


@dataclass(frozen=True)
class Bad:
    """A sample that could not be read, and the sentence that says why."""

    index: int
    name: str
    message: str


class Prepares(Protocol):
    """Whatever makes a photograph ready for a network: a preprocessing, or a whole Model."""

    def prepare(self, image: Image.Image) -> Prepared: ...


@runtime_checkable
class PreparesFiles(Protocol):
    """Whatever opens files itself, since they are no photographs: clips for a network that takes clips."""

    def prepare_file(self, path: Path) -> Prepared: ...


class _Loaded(NamedTuple):
    input: Input
    boxes: Boxes
    picture: Image.Image | None
    crop: Crop | None


@dataclass(frozen=True, eq=False)
class Batch:
    """So many samples in a row, without those that could not be read.

    indices    their places among all samples; names, paths and labels in the same order
    each       their inputs (3, H, W) as arrays, which become a tensor where the network runs
    boxes      (n, 4) of each, in pixels of the input; none where they cannot follow the user's own preprocessing
    pictures   what the network saw of each; empty if not asked for
    crops      where that lies on each photograph; None where only the user's own function knows
    bad        the samples of this stretch that are left out
    """

    indices: tuple[int, ...]
    names: tuple[str, ...]
    paths: tuple[Path, ...]
    labels: tuple[int | None, ...]
    each: tuple[Input, ...]
    boxes: list[Boxes]
    pictures: list[Image.Image]
    crops: tuple[Crop | None, ...]
    bad: tuple[Bad, ...]

    def __len__(self) -> int:
        return len(self.indices)

    @cached_property
    def inputs(self) -> Input:
        """All inputs, (B, 3, H, W), where there are some of one size."""
        return np.stack(self.each)

    def alike(self) -> list[Batch]:
        """The same in parts, in order, whose inputs have one size each; what could not be read is no part of them."""
        starts = [place for place, one in enumerate(self.each) if not place or one.shape != self.each[place - 1].shape]
        return [self.part(start, stop) for start, stop in pairwise([*starts, len(self)])]

    def part(self, start: int, stop: int) -> Batch:
        """Some of them; what could not be read is no part of it."""
        cut = slice(start, stop)
        return Batch(
            self.indices[cut],
            self.names[cut],
            self.paths[cut],
            self.labels[cut],
            self.each[cut],
            self.boxes[cut],
            self.pictures[cut],
            self.crops[cut],
            bad=(),
        )


def batches(
    samples: Sequence[Sample],
    prepares: Prepares | PreparesFiles,
    size: int,
    *,
    workers: int | None = None,
    pictures: bool = False,
) -> Iterator[Batch]:
    """Yield the samples as batches of `size`, while the next ones are read by `workers` threads.

    Batch k always covers the samples from k · size on, whatever could be read of them. At most about one
    batch is read ahead, so memory does not grow with the dataset. Closing the iterator, or an interrupt,
    stops the threads; 0 workers read without any. None is one per processor, four at most.
    """
    if size < 1:
        raise InputError(f"Batches of {size} images were asked for: give 1 or more.", field="batch")
    stretches = [samples[start : start + size] for start in range(0, len(samples), size)]
    return read_ahead(stretches, prepares, workers=workers, pictures=pictures)


def read_ahead(
    stretches: Sequence[Sequence[Sample]],
    prepares: Prepares | PreparesFiles,
    *,
    workers: int | None = None,
    pictures: bool = False,
) -> Generator[Batch, None, None]:
    """The same for stretches of samples that were cut already: one batch for each."""
    if workers is not None and workers < 0:
        raise InputError(f"{workers} workers were asked for: give 0 or more.")
    count = min(4, os.cpu_count() or 1) if workers is None else workers
    return _batches(stretches, prepares, workers=count, pictures=pictures)


def _batches(
    stretches: Sequence[Sequence[Sample]], prepares: Prepares | PreparesFiles, *, workers: int, pictures: bool
) -> Generator[Batch, None, None]:
    samples = [sample for stretch in stretches for sample in stretch]
    size = max((len(stretch) for stretch in stretches), default=0)
    start = 0
    with closing(_in_background(samples, prepares, size=size, workers=workers, pictures=pictures)) as results:
        for stretch in stretches:
            yield _batch(start, stretch, list(islice(results, len(stretch))))
            start += len(stretch)


def _in_background(
    samples: Sequence[Sample], prepares: Prepares | PreparesFiles, *, size: int, workers: int, pictures: bool
) -> Generator[_Loaded | str, None, None]:
    if workers == 0:
        yield from (_load(sample, prepares, pictures) for sample in samples)
        return
    pool = ThreadPoolExecutor(workers, thread_name_prefix="l2caf-loading")
    try:
        waiting: deque[Future[_Loaded | str]] = deque()
        upcoming = iter(samples)
        for sample in islice(upcoming, size + workers):
            waiting.append(pool.submit(_load, sample, prepares, pictures))
        while waiting:
            result = waiting.popleft().result()
            for sample in islice(upcoming, 1):
                waiting.append(pool.submit(_load, sample, prepares, pictures))
            yield result
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _load(sample: Sample, prepares: Prepares | PreparesFiles, pictures: bool) -> _Loaded | str:
    """What the network sees of a sample, or the sentence that says why it cannot be read."""
    try:
        if isinstance(prepares, PreparesFiles):
            seen, boxes = prepares.prepare_file(sample.path), sample.boxes
        else:
            image, boxes = open_sample(sample)
            seen = prepares.prepare(image)
        mapped = np.zeros((0, 4)) if seen.crop is None else seen.crop.to_input(boxes)
    except L2cafError as error:
        return str(error)
    # A picture that nobody wants must not wait in memory.
    return _Loaded(seen.input, mapped, seen.view if pictures else None, seen.crop)


def _batch(start: int, samples: Sequence[Sample], results: list[_Loaded | str]) -> Batch:
    seen = [(number, result) for number, result in enumerate(results) if isinstance(result, _Loaded)]
    bad = [
        Bad(start + number, samples[number].name, result)
        for number, result in enumerate(results)
        if isinstance(result, str)
    ]
    return Batch(
        indices=tuple(start + number for number, _ in seen),
        names=tuple(samples[number].name for number, _ in seen),
        paths=tuple(samples[number].path for number, _ in seen),
        labels=tuple(samples[number].label for number, _ in seen),
        each=tuple(result.input for _, result in seen),
        boxes=[result.boxes for _, result in seen],
        pictures=[result.picture for _, result in seen if result.picture is not None],
        crops=tuple(result.crop for _, result in seen),
        bad=tuple(bad),
    )
