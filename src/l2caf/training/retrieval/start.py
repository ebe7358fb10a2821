"""Before training: where the features come from, a start from their principal axes, and how good it is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ...datasets import Dataset, Sample
from ...errors import DatasetError
from ...networks.embedding import Backbone, EmbeddingNetwork
from ...progress import Progress, silent
from ..batches import Ints
from ..freezing import EVERYTHING, NOTHING, Cut
from ..sources import FeatureSource, LivePictures, Views, store_features
from .held_out import HeldOut, run_from_cut
from .projection import pca

ENOUGH = 4096  # pictures whose features tell the principal axes


def check_classes(dataset: Dataset, *, noun: str = "picture") -> None:
    """Refuse what has no pairs to learn from."""
    labels, counts = np.unique(labels_of(dataset.samples), return_counts=True)
    if len(labels) < 2:
        raise DatasetError(f"{dataset.name} has one class, which leaves nothing to tell apart: give two or more.")
    if counts.min() < 2:
        name = dataset.class_name(int(labels[counts.argmin()]))
        raise DatasetError(
            f"The class '{name}' has one {noun}, which makes no pair: add {noun}s to it, or leave the class out."
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
    known_by: str = "",
    progress: Progress = silent,
) -> FeatureSource:
    """Features at the cut: stored, of a few views per picture; or read anew each time where `views` is 0.

    A trunk of which nothing is frozen has nothing to store.
    """
    shown = Views(backbone.preprocessing)

    def lower(images: Tensor) -> Tensor:
        maps = cut.lower(images.to(device).contiguous(memory_format=torch.channels_last))
        if cut.at != EVERYTHING:
            return maps
        # Nothing but the mean over the map is left to do: a map of one cell has the same, in a fraction of the room.
        return maps.mean(dim=(1, 2) if backbone.channels_last else (2, 3), keepdim=True)

    if views == 0 or cut.at == NOTHING:
        return LivePictures(samples, shown, lower=lower, seed=seed)
    kept = frozenset(held_out.tolist())
    return store_features(
        samples, shown, views, lower=lower, seed=seed, plain_only=kept, known_by=known_by, progress=progress
    )


def start_from_backbone(
    network: EmbeddingNetwork, cut: Cut, source: FeatureSource, places: Ints, *, centred: bool, length: float
) -> None:
    """Make the linear layer the principal axes of what the backbone knows of the training pictures.

    The axes are evened out half-way: in many backbones a few of them outweigh all others, and say little about classes.
    """
    chosen = places[:: max(1, len(places) // ENOUGH)]
    device = network.embed.weight.device
    features = run_from_cut(lambda maps: network.pool(cut.upper(maps)), source, chosen, device=device)
    weight, bias = pca(features, network.dimension, whiten=0.5, centred=centred, length=length)
    with torch.no_grad():
        network.embed.weight.copy_(weight)
        network.embed.bias.copy_(bias)


def scores_before_training(network: EmbeddingNetwork, cut: Cut, held: HeldOut, *, seed: int) -> dict[str, float]:
    """R@1 on held-out pictures: of the start, of the backbone's pooled features, of a random linear layer on them."""
    if not held:
        return {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        random = torch.nn.Linear(network.embed.in_features, network.dimension).to(held.device)

    def all_three(maps: Tensor) -> Tensor:
        pooled = network.pool(cut.upper(maps))
        return torch.cat([network.embed(pooled), pooled, random(pooled)], dim=1)

    made = run_from_cut(all_three, held.source, held.places, device=held.device)
    sizes = [network.dimension, network.embed.in_features, network.dimension]
    parts = made.split(sizes, dim=1)
    names = ("embedding", "pooled", "random")
    return {name: held.recall_of(part.contiguous()) for name, part in zip(names, parts, strict=True)}
