"""Before training: readable pictures, the part that moves, a start from the principal axes, held-out R@1."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from ...datasets import Dataset, Sample
from ...errors import DatasetError, L2cafError
from ...images import open_image
from ...networks.embedding import Backbone, EmbeddingNetwork
from ...retrieval.scores import recalled, retrieve
from ..batches import Ints
from ..freezing import EVERYTHING, NOTHING, Cut
from ..sources import LivePictures, Source, Views, store_features
from .projection import pca


class Moving(nn.Module):
    """From features at the cut to embeddings; its parameters are the network's own.

    It stays in eval mode: the batches are small and of few classes, and statistics taken from them would be worse
    than those that the backbone brings.
    """

    def __init__(self, network: EmbeddingNetwork, cut: Cut) -> None:
        super().__init__()
        self.upper = cut.upper
        self.pool = network.pool
        self.embed = network.embed
        self.eval()

    def pooled(self, features: Tensor) -> Tensor:
        return self.pool(self.upper(features))

    def forward(self, features: Tensor) -> Tensor:
        return self.embed(self.pooled(features))


AT_ONCE = 64  # pictures that run through a network together


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Pictures by their places in a source, their labels, and how embeddings of them are compared."""

    source: Source
    places: Ints
    labels: Ints
    normalized: bool
    device: torch.device

    def __bool__(self) -> bool:
        return len(self.places) > 0

    def recall(self, part: Callable[[Tensor], Tensor]) -> float:
        """The share of the pictures whose nearest other one is of their class; `part` goes on from the cut."""
        embeddings = run_from_cut(part, self.source, self.places, device=self.device)
        found = retrieve(embeddings.numpy(), self.labels, normalized=self.normalized, top=1)
        return float(recalled(found, self.labels, rank=1).mean())


def run_from_cut(part: Callable[[Tensor], Tensor], source: Source, places: Ints, *, device: torch.device) -> Tensor:
    """What a part of a network makes of the plain view of pictures, without gradients, on the processor."""
    with torch.no_grad():
        made = [
            part(source.plain(places[first : first + AT_ONCE]).to(device)).float().cpu()
            for first in range(0, len(places), AT_ONCE)
        ]
    return torch.cat(made)


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
        maps = cut.lower(images.to(device).contiguous(memory_format=torch.channels_last))
        if cut.at != EVERYTHING:
            return maps
        # Nothing but the mean over the map is left to do: a map of one cell has the same, in a fraction of the room.
        return maps.mean(dim=(1, 2) if backbone.channels_last else (2, 3), keepdim=True)

    if views == 0 or cut.at == NOTHING:
        return LivePictures(samples, shown, lower=lower, seed=seed)
    kept = frozenset(held_out.tolist())
    return store_features(samples, shown, views, lower=lower, seed=seed, plain_only=kept, watch=watch)


def start_from_backbone(
    network: EmbeddingNetwork, cut: Cut, source: Source, places: Ints, *, centred: bool, length: float
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

    def pooled(maps: Tensor) -> Tensor:
        return network.pool(cut.upper(maps))

    return {
        "embedding": held.recall(lambda maps: network.embed(pooled(maps))),
        "pooled": held.recall(pooled),
        "random": held.recall(lambda maps: random(pooled(maps))),
    }
