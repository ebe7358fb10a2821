"""Retrieval as the trainer sees it: what moves, the loss of a batch, R@1 on held-out pictures, the checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ...datasets import Dataset
from ...networks.embedding import Backbone, EmbeddingConfig, EmbeddingNetwork, load_backbone, save_embedding
from ...networks.identity import preprocessing_of, weights_of
from ...progress import Progress
from ..batches import ClassBatches, Ints, share_of
from ..curves import Score
from ..freezing import Cut, resolve
from ..job import Job
from ..processes import gather
from ..sources import FeatureSource, readable
from ..state import Averages, state_of
from .held_out import HeldOut, hold_out
from .losses import EmbeddingLoss
from .start import check_classes, labels_of, probe_of, scores_before_training, source_of, start_from_backbone

if TYPE_CHECKING:
    from .recipe import RetrievalRecipe

CHECKPOINT = "embedding.safetensors"
SCORE = Score("recall_at_1", "R@1", "R@1 on held-out pictures, %", scale=100)
STORED_VIEWS = 4  # stored per picture, where nothing else is asked for


class Trainable(nn.Module):
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

    def forward(self, features: Tensor) -> Tensor:
        return self.embed(self.pool(self.upper(features)))


@dataclass(kw_only=True, eq=False)
class EmbeddingJob(Job):
    """Embeddings on their way, of pictures or of clips: batches of features in, a loss that compares embeddings.

    module    what is trained; `wrapped` is the same, as Fabric runs it in one process or several
    train     places in the source of the pictures that the batches number
    """

    wrapped: Any
    criterion: EmbeddingLoss
    source: FeatureSource
    train: Ints
    batches: ClassBatches
    held: HeldOut

    def loss(self, iteration: int) -> Tensor:
        batch = self.batches(iteration)
        mine, views = (
            share_of(whole, rank=self.fabric.global_rank, processes=self.fabric.world_size)
            for whole in (self.train[batch], self.batches.views(iteration, self.source.views))
        )
        features = self.source.batch(mine, views, iteration).to(self.fabric.device)
        embeddings = gather(self.fabric, self.wrapped(features)).float()
        return self.criterion(embeddings, torch.from_numpy(self.batches.labels[batch]).to(embeddings.device))

    def measure(self) -> Mapping[str, float]:
        return {self.score.key: self.held.recall(self.module)} if self.held else {}


@dataclass(kw_only=True, eq=False)
class RetrievalJob(EmbeddingJob):
    """A retrieval network on its way; the module is what moves of `network`."""

    network: EmbeddingNetwork
    config: EmbeddingConfig

    def save(self, out: Path, run: Mapping[str, Any]) -> Path:
        return save_embedding(out / CHECKPOINT, self.network, replace(self.config, training=run))


def prepare(
    data: Dataset, recipe: RetrievalRecipe, loss: EmbeddingLoss, fabric: Any, progress: Progress
) -> RetrievalJob:
    """Read the pictures, cut the trunk, store features, and start from the principal axes."""
    data, bad = readable(data)
    check_classes(data)
    labels = labels_of(data.samples)
    train, held_out = hold_out(labels, share=recipe.held_out, seed=recipe.seed)
    batches = ClassBatches(labels[train], recipe.classes or 0, recipe.each or 0, recipe.seed)
    share_of(batches(0), rank=fabric.global_rank, processes=fabric.world_size)  # refused before anything is computed
    has_accelerator = fabric.device.type != "cpu"
    backbone = load_backbone(recipe.backbone)
    weights = weights_of(backbone.trunk)
    probe = probe_of(backbone)
    cut = Cut(backbone.trunk, resolve(recipe.freeze, backbone.trunk, probe, has_accelerator=has_accelerator), probe)
    # With channels last in memory the frozen part takes half the time on a processor.
    network: EmbeddingNetwork = _network(backbone, recipe.dimension).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    network.to(fabric.device)
    source = source_of(
        data.samples,
        backbone,
        cut,
        views=recipe.views if recipe.views is not None else 0 if has_accelerator else STORED_VIEWS,
        held_out=held_out,
        device=fabric.device,
        seed=recipe.seed,
        known_by=f"{weights} {cut.at} {preprocessing_of(backbone.preprocessing)} {len(data)}",
        progress=progress,
    )
    start_from_backbone(network, cut, source, train, centred=not loss.normalized, length=loss.length)
    held = HeldOut(source, held_out, labels[held_out], loss.normalized, fabric.device)
    before = scores_before_training(network, cut, held, seed=recipe.seed)
    module = Trainable(network, cut)
    wrapped, optimizer = fabric.setup(module, _optimizer(module, recipe))
    return RetrievalJob(
        fabric=fabric,
        score=SCORE,
        module=module,
        wrapped=wrapped,
        optimizer=optimizer,
        averages=Averages(state_of(module), decay=recipe.decay, keep=recipe.keep or 0.0),
        network=network,
        config=_config(data, labels, backbone, recipe, loss),
        criterion=loss,
        source=source,
        train=train,
        batches=batches,
        held=held,
        settings=_settings(recipe, cut, data),
        before=before,
        bad=bad,
        notes={"held_out": [data.samples[place].name for place in held_out]},
        contents={"weights": weights, "preprocessing": preprocessing_of(backbone.preprocessing)},
    )


def _network(backbone: Backbone, dimension: int) -> EmbeddingNetwork:
    return EmbeddingNetwork(
        backbone.trunk, channels=backbone.channels, dimension=dimension, channels_last=backbone.channels_last
    ).eval()


def _optimizer(module: Trainable, recipe: RetrievalRecipe) -> torch.optim.Optimizer:
    rates = (recipe.lr or 0.0, recipe.backbone_lr or 0.0)
    groups: list[dict[str, Any]] = [
        {"params": list(part.parameters()), "lr": rate}
        for part, rate in zip((module.embed, module.upper), rates, strict=True)
    ]
    return torch.optim.Adam([group for group in groups if group["params"]])


def _settings(recipe: RetrievalRecipe, cut: Cut, data: Dataset) -> dict[str, Any]:
    settings = {**asdict(recipe), "cut": cut.at, "dataset": data.name, "pictures": len(data)}
    del settings["iterations"], settings["patience"]  # a run may go on for longer
    return settings


def _config(
    data: Dataset, labels: Ints, backbone: Backbone, recipe: RetrievalRecipe, loss: EmbeddingLoss
) -> EmbeddingConfig:
    return EmbeddingConfig(
        backbone=backbone.name,
        dimension=recipe.dimension,
        normalized=loss.normalized,
        loss=loss.name,
        preprocessing=backbone.preprocessing,
        dataset=data.name,
        classes=tuple(data.class_name(label) for label in sorted(set(labels.tolist()))),
    )
