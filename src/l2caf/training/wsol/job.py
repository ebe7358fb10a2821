"""A localiser as the trainer sees it: what moves, the loss of a batch, top-1 on held-out pictures, the checkpoint."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from ...datasets import Dataset, Sample
from ...errors import DatasetError
from ...networks.embedding import Backbone
from ...networks.identity import preprocessing_of, weights_of
from ...networks.localiser import (
    VGG,
    WIDTH,
    Localiser,
    LocaliserConfig,
    build,
    localiser_backbone,
    probe_of,
    save_localiser,
)
from ...progress import Progress
from ..batches import EpochBatches, Ints, share_of
from ..curves import Score
from ..freezing import NOTHING, Cut, resolve
from ..job import Job
from ..retrieval.held_out import hold_out, run_from_cut
from ..sources import FeatureSource, LivePictures, Views, readable, store_features
from .budget import plan_iterations
from .places import put_layers

if TYPE_CHECKING:
    from .recipe import WsolRecipe

CHECKPOINT = "localiser.safetensors"
SCORE = Score("top1", "top-1", "top-1 on held-out pictures, %", scale=100)
LINEAR_RATE, DEEP_RATE, SLOWER = 0.1, 0.01, 10
STORED_VIEWS = 4  # stored per picture, where nothing else is asked for


class Trainable(nn.Module):
    """From features at the cut to scores; with labels, all that is trained to tell the class, (K, B, classes)."""

    def __init__(self, network: Localiser, cut: Cut) -> None:
        super().__init__()
        self.upper = cut.upper
        self.head = network.head

    def forward(self, features: Tensor, labels: Tensor | None = None) -> Tensor:
        made = self.upper(features)
        return self.head(made) if labels is None else self.head.scores(made, labels)


@dataclass(kw_only=True, eq=False)
class WsolJob(Job):
    """A localiser on its way; the module is what moves of `network`.

    train, held   places in the source of pictures that are learned from, and that are only measured with
    labels        of all places, as numbers of the network's outputs
    """

    wrapped: Any
    network: Localiser
    config: LocaliserConfig
    source: FeatureSource
    labels: Ints
    train: Ints
    held: Ints
    batches: EpochBatches
    seed: int
    measure_every: int = 25

    def loss(self, iteration: int) -> Tensor:
        rank, processes = self.fabric.global_rank, self.fabric.world_size
        mine, views = (
            share_of(whole, rank=rank, processes=processes)
            for whole in (self.train[self.batches(iteration)], self.batches.views(iteration, self.source.views))
        )
        features = self.source.batch(mine, views, iteration).to(self.fabric.device)
        labels = torch.from_numpy(self.labels[mine]).to(features.device)
        self.module.train()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed((self.seed << 32) + iteration)  # what ADL draws, the same in all processes
            scores = self.wrapped(features, labels).float()
        return torch.stack([nn.functional.cross_entropy(one, labels) for one in scores]).sum()

    def measure(self) -> Mapping[str, float]:
        if not len(self.held):
            return {}
        self.module.eval()
        made = run_from_cut(self.module, self.source, self.held, device=self.fabric.device)
        return {self.score.key: float((made.argmax(dim=1).numpy() == self.labels[self.held]).mean())}

    def save(self, out: Path, run: Mapping[str, Any]) -> Path:
        self.module.eval()
        return save_localiser(out / CHECKPOINT, self.network, replace(self.config, training=run))


def prepare(data: Dataset, recipe: WsolRecipe, fabric: Any, progress: Progress) -> WsolJob:
    """Read the pictures, cut the trunk, store features, and find out what the budget has room for."""
    began = time.monotonic()
    data, bad = readable(data)
    known, labels = np.unique([sample.label for sample in data.samples], return_inverse=True)
    if len(known) < 2:
        raise DatasetError(f"{data.name} has one class, which leaves nothing to tell apart: give two or more.")
    train, held = hold_out(labels, share=recipe.held_out, seed=recipe.seed)
    batches = EpochBatches(len(train), recipe.batch, recipe.seed)
    share_of(batches(0), rank=fabric.global_rank, processes=fabric.world_size)  # refused before anything is computed
    accelerated = fabric.device.type != "cpu"
    backbone = localiser_backbone(recipe.backbone, stride=recipe.stride)
    weights, probe = weights_of(backbone.trunk), probe_of(backbone)
    cut = Cut(backbone.trunk, resolve(recipe.freeze, backbone.trunk, probe, has_accelerator=accelerated), probe)
    config = LocaliserConfig(
        backbone=backbone.name,
        recipe=recipe.recipe,
        stride=recipe.stride,
        width=_width(recipe, accelerated=accelerated),
        threshold=recipe.erase_threshold,
        preprocessing=backbone.preprocessing,
        dataset=data.name,
        classes=tuple(data.class_name(label) for label in known.tolist()),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        network = build(backbone, config)
    network.to(fabric.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    shortened = put_layers(recipe, backbone, cut, network.head, probe) if recipe.recipe == "adl" else []
    source = _source(data.samples, backbone, cut, recipe, held, fabric, weights, progress)
    module = Trainable(network, cut)
    wrapped, optimizer = fabric.setup(module, _optimizer(module, recipe))
    settings = {**asdict(recipe), "cut": cut.at, "width": config.width, "dataset": data.name, "pictures": len(data)}
    del settings["budget"]  # the iterations that came of it decide
    wanted = recipe.epochs * batches.per_epoch
    job = WsolJob(
        fabric=fabric,
        score=SCORE,
        module=module,
        wrapped=wrapped,
        optimizer=optimizer,
        network=network,
        config=config,
        source=source,
        labels=labels,
        train=train,
        held=held,
        batches=batches,
        seed=recipe.seed,
        settings=settings,
        bad=bad,
        contents={"weights": weights, "preprocessing": preprocessing_of(backbone.preprocessing)},
        measure_every=max(10, batches.per_epoch),
    )
    iterations = plan_iterations(recipe.budget, wanted, job, began=began)
    shortened += _shortened(recipe, iterations, wanted, cut, config, source)
    job.settings = {**settings, "iterations": iterations}
    job.notes = {"held_out": [data.samples[place].name for place in held], "cut": shortened}
    job.limits = recipe.limits_of(iterations, measure_every=job.measure_every)
    return job


def _source(
    samples: Sequence[Sample],
    backbone: Backbone,
    cut: Cut,
    recipe: WsolRecipe,
    held: Ints,
    fabric: Any,
    weights: str,
    progress: Progress,
) -> FeatureSource:
    """Features at the cut: stored, of a few views per picture; or read anew each time."""
    accelerated = fabric.device.type != "cpu"
    count = recipe.views if recipe.views is not None else 0 if accelerated else STORED_VIEWS
    shown = Views(backbone.preprocessing)

    def lower(images: Tensor) -> Tensor:
        return cut.lower(images.to(fabric.device).contiguous(memory_format=torch.channels_last))

    if count == 0 or cut.at == NOTHING:
        return LivePictures(samples, shown, lower=lower, seed=recipe.seed)
    return store_features(
        samples,
        shown,
        count,
        lower=lower,
        seed=recipe.seed,
        plain_only=frozenset(held.tolist()),
        known_by=f"{weights} {cut.at} {recipe.stride} {preprocessing_of(backbone.preprocessing)} {len(samples)}",
        progress=progress,
    )


def _width(recipe: WsolRecipe, *, accelerated: bool) -> int:
    if recipe.width is not None:
        return recipe.width
    if recipe.recipe == "acol":
        return WIDTH if accelerated or recipe.backbone == VGG else 0
    return WIDTH if recipe.backbone == VGG else 0


def _optimizer(module: Trainable, recipe: WsolRecipe) -> torch.optim.Optimizer:
    # Convolutions from random numbers bear less than one linear layer on features that are good already.
    lr = (LINEAR_RATE if module.head.is_linear else DEEP_RATE) if recipe.lr is None else recipe.lr
    parts = ((module.head, lr), (module.upper, lr / SLOWER if recipe.backbone_lr is None else recipe.backbone_lr))
    groups: list[dict[str, Any]] = [{"params": list(part.parameters()), "lr": rate} for part, rate in parts]
    return torch.optim.SGD(
        [group for group in groups if group["params"]],
        momentum=recipe.momentum,
        weight_decay=recipe.weight_decay,
        nesterov=recipe.momentum > 0,
    )


def _shortened(
    recipe: WsolRecipe, iterations: int, wanted: int, cut: Cut, config: LocaliserConfig, source: FeatureSource
) -> list[str]:
    """What is less than published, in sentences."""
    found = []
    if iterations < wanted:
        found.append(
            f"{iterations} iterations of {wanted} ({recipe.epochs} epochs): the budget {recipe.budget} has room for no"
            " more; the learning rates fall in proportion"
        )
    if cut.at != NOTHING:
        found.append(f"the backbone is frozen up to {cut.at}; published recipes train all of it")
    if not isinstance(source, LivePictures):
        found.append(f"{source.views} stored views of each picture take the place of cut-outs drawn anew")
    if recipe.recipe == "acol" and config.width < WIDTH:
        inside = f"convolutions of {config.width} channels" if config.width else "no convolutions before their last one"
        found.append(f"the classifiers of ACoL have {inside}; published: two of {WIDTH}")
    return found
