"""A recurrent network for clips as the trainer sees it: what moves, R@1 on held-out clips, the checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ...datasets import Dataset
from ...networks.clip_embedding import ClipConfig, ClipNetwork, build, clip_backbone, save_clip_embedding
from ...networks.identity import preprocessing_of, weights_of
from ...progress import Progress
from ..batches import ClassBatches, Ints, share_of
from ..curves import Score
from ..retrieval.held_out import HeldOut, hold_out, run_from_cut
from ..retrieval.job import EmbeddingJob
from ..retrieval.losses import SemiHardTriplet
from ..retrieval.start import check_classes, labels_of
from ..sources import FeatureSource, readable, store_features
from ..state import Averages, state_of
from .views import ClipViews

if TYPE_CHECKING:
    from .recipe import VideoRecipe

CHECKPOINT = "clips.safetensors"
SCORE = Score("recall_at_1", "R@1", "R@1 on held-out clips, %", scale=100)
TOGETHER = 32  # frames that run through the frozen part at once
ENOUGH = 64  # clips that tell the size of the features


class Trainable(nn.Module):
    """From the frozen features of frames, (B, T, C, H, W), to embeddings; its parameters are the network's own.

    It stays in training mode, which changes nothing in it: in the other, cuDNN's LSTM refuses to be trained.
    """

    def __init__(self, network: ClipNetwork) -> None:
        super().__init__()
        self.shallow, self.recurrent, self.embed = network.shallow, network.recurrent, network.embed
        self.__dict__["network"] = network  # not as a module: the trunk is no part of what moves
        self.train()

    def forward(self, features: Tensor) -> Tensor:
        made: Tensor = self.__dict__["network"].from_features(features)
        return made


@dataclass(kw_only=True, eq=False)
class VideoJob(EmbeddingJob):
    """A network for clips on its way; the module is what moves of `network`."""

    network: ClipNetwork
    config: ClipConfig

    def save(self, out: Path, run: Mapping[str, Any]) -> Path:
        return save_clip_embedding(out / CHECKPOINT, self.network, replace(self.config, training=run))


def prepare(data: Dataset, recipe: VideoRecipe, fabric: Any, progress: Progress) -> VideoJob:
    """Read the clips, store the features of their frames, and start from a network of the right scale."""
    loss = SemiHardTriplet()
    backbone = clip_backbone(recipe.backbone, recipe.layer, size=recipe.size)
    shown = ClipViews(backbone.preprocessing, recipe.frames)
    data, bad = readable(data, open_it=shown.check, noun="clip")
    check_classes(data, noun="clip")
    labels = labels_of(data.samples)
    train, held_out = hold_out(labels, share=recipe.held_out, seed=recipe.seed)
    batches = ClassBatches(labels[train], recipe.classes, recipe.each, recipe.seed)
    share_of(batches(0), rank=fabric.global_rank, processes=fabric.world_size)  # refused before anything is computed
    weights = weights_of(backbone.trunk)
    config = ClipConfig(
        backbone=backbone.name,
        layer=backbone.layer,
        frames=recipe.frames,
        dimension=recipe.dimension,
        width=recipe.width,
        hidden=recipe.hidden,
        motion=recipe.motion,
        normalized=loss.normalized,
        loss=loss.name,
        preprocessing=backbone.preprocessing,
        dataset=data.name,
        classes=tuple(data.class_name(label) for label in sorted(set(labels.tolist()))),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        network = build(backbone, config)
    network.trunk.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    network.to(fabric.device)

    def lower(clips: Tensor) -> Tensor:
        frames = clips.flatten(0, 1).to(fabric.device).contiguous(memory_format=torch.channels_last)
        with torch.no_grad():
            made = torch.cat([network.trunk(part) for part in frames.split(TOGETHER)])
        return made.unflatten(0, clips.shape[:2])

    source = store_features(
        data.samples,
        shown,
        recipe.views,
        lower=lower,
        seed=recipe.seed,
        plain_only=frozenset(held_out.tolist()),
        known_by=f"{weights} {backbone.layer} {preprocessing_of(backbone.preprocessing)} {recipe.frames} {len(data)}",
        progress=progress,
    )
    scale_to(network, source, train)
    held = HeldOut(source, held_out, labels[held_out], loss.normalized, fabric.device)
    module = Trainable(network)
    optimizer = torch.optim.AdamW(module.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay)
    wrapped, optimizer = fabric.setup(module, optimizer)
    settings = {**asdict(recipe), "layer": backbone.layer, "dataset": data.name, "clips": len(data)}
    del settings["iterations"], settings["patience"]  # a run may go on for longer
    return VideoJob(
        fabric=fabric,
        score=SCORE,
        module=module,
        wrapped=wrapped,
        optimizer=optimizer,
        averages=Averages(state_of(module), decay=recipe.decay),
        network=network,
        config=config,
        criterion=loss,
        source=source,
        train=train,
        batches=batches,
        held=held,
        settings=settings,
        before=scores_before_training(module, held),
        bad=bad,
        notes={"held_out": [data.samples[place].name for place in held_out]},
        contents={"weights": weights, "preprocessing": preprocessing_of(backbone.preprocessing)},
    )


def scale_to(network: ClipNetwork, source: FeatureSource, places: Ints) -> None:
    """Bring what the shallow CNN's convolutions give to mean 0 and deviation 1, channel by channel.

    Features of backbones differ in size by orders; one rate of learning then suits all of them.
    """
    device = network.embed.weight.device
    maps = source.plain(places[:: max(1, len(places) // ENOUGH)]).to(device).flatten(0, 1)
    with torch.no_grad():
        for layer in network.shallow:
            made = layer(maps)
            if isinstance(layer, nn.Conv2d):
                mean, deviation = made.mean(dim=(0, 2, 3)), made.std(dim=(0, 2, 3)).clamp_min(1e-6)
                layer.weight.div_(deviation[:, None, None, None])
                assert layer.bias is not None
                layer.bias.sub_(mean).div_(deviation)
                made = layer(maps)
            maps = made


def scores_before_training(module: Trainable, held: HeldOut) -> dict[str, float]:
    """R@1 on held-out clips: of the network as it starts, and of the backbone's features, averaged over each clip."""
    if not held:
        return {}
    pooled = run_from_cut(lambda features: features.mean(dim=(1, 3, 4)), held.source, held.places, device=held.device)
    return {"embedding": held.recall(module), "pooled": held.recall_of(pooled)}
