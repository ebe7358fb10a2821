"""What a recipe starts from: readable pictures, parted; a network that has seen no labels; features at its cut."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ..datasets import Dataset, Sample
from ..errors import DatasetError, L2cafError
from ..images import open_image
from ..networks.embedding import Backbone, EmbeddingNetwork
from .augmenting import Views
from .batches import Ints
from .cutting import NOTHING, Cut
from .sources import LivePictures, Source, store_features

AT_ONCE = 64
ENOUGH = 4096  # pictures whose features tell the principal axes


def readable(dataset: Dataset) -> tuple[Dataset, Mapping[str, str]]:
    """The dataset without pictures that cannot be read or have no label, and the sentences that say why."""
    if not len(dataset):
        raise DatasetError(f"{dataset.name} has no pictures to train on: check the folder and the choice of classes.")
    with ThreadPoolExecutor(4) as pool:
        faults = list(pool.map(_fault, dataset.samples))
    kept = tuple(sample for sample, fault in zip(dataset.samples, faults, strict=True) if not fault)
    bad = {sample.name: fault for sample, fault in zip(dataset.samples, faults, strict=True) if fault}
    if not kept:
        raise DatasetError(f"No picture of {dataset.name} can be read ({next(iter(bad.values()))}).")
    _check_classes(dataset, kept)
    return replace(dataset, samples=kept), bad


def _fault(sample: Sample) -> str:
    if sample.label is None:
        return "it has no label, so it belongs to no class"
    try:
        open_image(sample.path)
    except L2cafError as error:
        return str(error)
    return ""


def _check_classes(dataset: Dataset, kept: Sequence[Sample]) -> None:
    labels, counts = np.unique([sample.label or 0 for sample in kept], return_counts=True)
    if len(labels) < 2:
        raise DatasetError(f"{dataset.name} has one class, which leaves nothing to tell apart: give two or more.")
    if counts.min() < 2:
        name = dataset.class_name(int(labels[counts.argmin()]))
        raise DatasetError(
            f"The class '{name}' has one picture, which makes no pair: add pictures to it, or leave the class out."
        )


def labels_of(samples: Sequence[Sample]) -> Ints:
    """The labels of samples that all have one."""
    return np.array([sample.label for sample in samples], np.int64)


def probe_of(backbone: Backbone) -> Tensor:
    """An input of the right size, on which to try things."""
    return torch.randn(1, 3, *backbone.preprocessing.input_size, generator=torch.Generator().manual_seed(0))


def source_of(
    samples: Sequence[Sample],
    backbone: Backbone,
    cut: Cut,
    *,
    views: int,
    held_out: Ints,
    device: torch.device,
    seed: int,
    watch: Callable[[int, int], None] | None = None,
) -> Source:
    """Features at the cut: stored, of a few views a picture; or read anew each time where `views` is 0.

    A trunk of which nothing is frozen has nothing to store.
    """
    shown = Views(backbone.preprocessing)

    def lower(images: Tensor) -> Tensor:
        return cut.lower(images.to(device))

    if views == 0 or cut.at == NOTHING:
        return LivePictures(samples, shown, lower=lower, seed=seed)
    kept = frozenset(held_out.tolist())
    return store_features(samples, shown, views, lower=lower, seed=seed, plain_only=kept, watch=watch)


def pooled_features(network: EmbeddingNetwork, cut: Cut, source: Source, places: Ints) -> Tensor:
    """What the backbone knows of pictures, (N, C), from their features at the cut."""
    chosen = places[:: max(1, len(places) // ENOUGH)]
    device = network.embed.weight.device
    with torch.inference_mode():
        parts = [
            network.pool(cut.upper(source.plain(chosen[start : start + AT_ONCE]).to(device))).float().cpu()
            for start in range(0, len(chosen), AT_ONCE)
        ]
    return torch.cat(parts).clone()
