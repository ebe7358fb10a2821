"""Where the numbers of a batch come from: maps that the frozen part made once, or pictures read anew each time.

Both give the features at the cut, and both are functions of the picture, the view, the iteration and the seed alone.
"""

from __future__ import annotations

import math
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ..datasets import Dataset, Sample
from ..errors import DatasetError, ExtraError, L2cafError
from ..images import open_image
from ..preprocessing import Preprocessing, resampling
from ..progress import Progress, silent
from .batches import Ints
from .kept import current

LARGEST_IN_MEMORY = 4 << 30  # bytes of stored maps; more than that goes to a file
NOTED = 16  # pictures after which it is written down that they are whole
TOGETHER = 32  # views that run through the frozen part at once


class Shown(Protocol):
    """How pictures, or clips, reach the network: numbered views of each."""

    def of(self, path: Path, numbers: Iterable[int], *, key: tuple[int, ...]) -> Tensor:
        """The views of these numbers of what lies at a path, (V, …); the same key and number give the same view."""


class FeatureSource(ABC):
    """The features of pictures at the cut, (B, C, H, W).

    views   how many a picture has in an iteration
    """

    views: int

    @abstractmethod
    def batch(self, places: Ints, numbers: Ints, iteration: int) -> Tensor:
        """For training: of each picture the view of that number."""

    @abstractmethod
    def plain(self, places: Ints) -> Tensor:
        """For measuring: what the network sees when it is used."""


def readable(
    dataset: Dataset, *, open_it: Callable[[Path], object] = open_image, noun: str = "picture"
) -> tuple[Dataset, Mapping[str, str]]:
    """The dataset without pictures that cannot be read or have no label, and the sentences that say why."""
    if not len(dataset):
        raise DatasetError(f"{dataset.name} has no {noun}s to train on: check the folder and the choice of classes.")
    with ThreadPoolExecutor(4) as pool:
        faults = list(pool.map(lambda sample: _fault(sample, open_it), dataset.samples))
    kept = tuple(sample for sample, fault in zip(dataset.samples, faults, strict=True) if not fault)
    bad = {sample.name: fault for sample, fault in zip(dataset.samples, faults, strict=True) if fault}
    if not kept:
        raise DatasetError(f"No {noun} of {dataset.name} can be read ({next(iter(bad.values()))}).")
    return replace(dataset, samples=kept), bad


def _fault(sample: Sample, open_it: Callable[[Path], object]) -> str:
    if sample.label is None:
        return "it has no label, so it belongs to no class"
    try:
        open_it(sample.path)
    except ExtraError:  # what is missing is no fault of the file
        raise
    except L2cafError as error:
        return str(error)
    return ""


class StoredFeatures(FeatureSource):
    """The frozen part runs once for a few views of every picture; its maps are kept as float16.

    maps   (N, V, C, H, W); view 0 is the plain one
    """

    def __init__(self, maps: Tensor) -> None:
        self.maps = maps
        self.views = maps.shape[1]

    def batch(self, places: Ints, numbers: Ints, iteration: int) -> Tensor:
        return self.maps[torch.from_numpy(places), torch.from_numpy(numbers)].float()

    def plain(self, places: Ints) -> Tensor:
        return self.maps[torch.from_numpy(places), 0].float()


class LivePictures(FeatureSource):
    """Pictures are read, and the frozen part runs, at every iteration, with cut-outs that no other iteration has."""

    views = 8  # so a quarter are what the network will be shown when it is used, or its mirror image

    def __init__(
        self, samples: Sequence[Sample], shown: Views, *, lower: Callable[[Tensor], Tensor], seed: int = 0
    ) -> None:
        self.samples = samples
        self.shown = shown
        self.lower = lower
        self.seed = seed

    def batch(self, places: Ints, numbers: Ints, iteration: int) -> Tensor:
        return self.lower(self._read(places, numbers, iteration))

    def plain(self, places: Ints) -> Tensor:
        return self.lower(self._read(places, np.zeros(len(places), np.int64), 0))

    def _read(self, places: Ints, numbers: Ints, iteration: int) -> Tensor:
        def one(place: int, number: int) -> Tensor:
            return self.shown(open_image(self.samples[place].path), number, key=(self.seed, iteration, place))

        with ThreadPoolExecutor(_readers()) as pool:
            return torch.stack(list(pool.map(one, places.tolist(), numbers.tolist())))


def store_features(
    samples: Sequence[Sample],
    views: Shown,
    count: int,
    *,
    lower: Callable[[Tensor], Tensor],
    seed: int = 0,
    plain_only: frozenset[int] = frozenset(),
    known_by: str = "",
    progress: Progress = silent,
) -> StoredFeatures:
    """Run the frozen part over `count` views of every picture.

    plain_only   places of pictures that are only measured with: view 0 is enough for them
    known_by     what the frozen part is known by, where the features are to be kept for a run that goes on
    """
    kept = current() if known_by else None
    found = kept.open(known := f"{known_by} {count} {seed} {sorted(plain_only)}") if kept else None
    maps, whole = (None, 0) if found is None else (torch.from_numpy(found[0]), found[1])
    for place, made in _in_order(samples, views, count, seed=seed, plain_only=plain_only, start=whole):
        features = torch.cat([lower(part) for part in made.split(TOGETHER)]).half()
        if maps is None:
            shape = (len(samples), count, *features.shape[1:])
            maps = torch.from_numpy(kept.create(shape)) if kept else _room(shape)
        maps[place, : len(features)] = features
        if kept and ((place + 1) % NOTED == 0 or place + 1 == len(samples)):
            kept.note(maps.numpy(), known, place + 1)
        progress("storing features", place + 1, len(samples))
    assert maps is not None
    return StoredFeatures(maps)


def _in_order(
    samples: Sequence[Sample], views: Shown, count: int, *, seed: int, plain_only: frozenset[int], start: int = 0
) -> Iterator[tuple[int, Tensor]]:
    """The views of each picture, (V, 3, H, W), while the next ones are read."""

    def one(place: int) -> Tensor:
        numbers = range(1 if place in plain_only else count)
        return views.of(samples[place].path, numbers, key=(seed, place))

    with ThreadPoolExecutor(_readers()) as pool:
        ahead = 2 * _readers()
        waiting = {place: pool.submit(one, place) for place in range(start, min(start + ahead, len(samples)))}
        for place in range(start, len(samples)):
            made = waiting.pop(place).result()
            if place + ahead < len(samples):
                waiting[place + ahead] = pool.submit(one, place + ahead)
            yield place, made


def _room(shape: tuple[int, ...]) -> Tensor:
    """Memory for the maps, or a file without a name where they are too large; the system removes it with the run."""
    if 2 * int(np.prod(shape)) <= LARGEST_IN_MEMORY:
        return torch.zeros(shape, dtype=torch.float16)
    with tempfile.NamedTemporaryFile(prefix="l2caf-features-") as file:
        return torch.from_numpy(np.memmap(Path(file.name), dtype=np.float16, mode="w+", shape=shape))


def _readers() -> int:
    return min(4, os.cpu_count() or 1)


# A cut-out has at least this share of the picture, and its sides differ by this factor at most.
SMALLEST, LONGEST = 0.5, 4 / 3


class Views:
    """Numbered views of pictures, as inputs of a network.

    View 0 is what the network sees when it is used; view 1 is that mirrored; those from 2 on are cut-outs, every
    other one mirrored. `key` decides which: the same key and number give the same view.
    """

    def __init__(self, preprocessing: Preprocessing) -> None:
        self.preprocessing = preprocessing
        self._normalise = replace(preprocessing, resize_size=preprocessing.input_size, fit="squash")

    def __call__(self, image: Image.Image, number: int, *, key: tuple[int, ...]) -> torch.Tensor:
        """One view, (3, H, W)."""
        seen = self.preprocessing.view(image) if number < 2 else self._cut_out(image, (*key, number))
        if number % 2:
            seen = seen.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return self._normalise(seen)

    def of(self, path: Path, numbers: Iterable[int], *, key: tuple[int, ...]) -> Tensor:
        """Several views of a picture on disk, (V, 3, H, W)."""
        image = open_image(path)
        return torch.stack([self(image, number, key=key) for number in numbers])

    def cut_out(self, image: Image.Image, key: tuple[int, ...]) -> torch.Tensor:
        """A part of a picture as input; of pictures of one size, the same key gives the same part."""
        return self._normalise(self._cut_out(image, key))

    def _cut_out(self, image: Image.Image, key: tuple[int, ...]) -> Image.Image:
        draw = np.random.default_rng(key)
        width, height = image.size
        area = draw.uniform(SMALLEST, 1) * width * height
        stretch = math.exp(draw.uniform(-math.log(LONGEST), math.log(LONGEST)))
        across = min(float(width), math.sqrt(area * stretch))
        down = min(float(height), math.sqrt(area / stretch))
        left, top = draw.uniform(0, width - across), draw.uniform(0, height - down)
        rows, columns = self.preprocessing.input_size
        method = resampling(self.preprocessing.interpolation)
        return image.resize((columns, rows), method, box=(left, top, left + across, top + down))
