"""The recipe for retrieval networks: learn the classes at hand without forgetting what the backbone knew.

- the linear layer starts as the principal axes of the backbone's own features, so the start is as good as those
- only what follows the cut moves, the trunk more slowly than the linear layer; batch statistics stay as they are
- what is shipped is the running mean of the weights, drawn about half-way back to the start
- training ends when held-out pictures of the training classes are found no better for a while
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ...datasets import Dataset
from ...errors import InputError, TrainingError
from ...networks.embedding import Backbone, EmbeddingConfig, EmbeddingNetwork, load_backbone, save_embedding
from ..batches import ClassBatches, Ints, hold_out, share_of
from ..curves import write_curves
from ..freezing import Cut, resolve
from ..processes import start
from ..state import Averages, RunState, put, weights_of
from ..trainer import Limits, Trainer, Watch
from .losses import EmbeddingLoss, loss_by_name
from .start import (
    HeldOut,
    Moving,
    labels_of,
    probe_of,
    readable,
    scores_before_training,
    source_of,
    start_from_backbone,
)

CHECKPOINT = "embedding.safetensors"
BATCH = 64  # pictures, where nothing else is asked for
VIEWS = 4  # stored a picture, where nothing else is asked for


@dataclass(frozen=True)
class RetrievalRecipe:
    """What is trained, and how. The defaults are the paper's where it says, and ours where it does not.

    classes, each    a batch: so many classes (None: up to 64 pictures in all), so many pictures of each (None: 4, and
                     2 for N-pair)
    rate, trunk_rate learning rates of the linear layer and of what moves in the trunk; None: what suits the loss
    freeze           auto, none, trunk, or the name of the last module that stays as it is
    views            stored views a picture; 0: pictures are read anew each time; None: 4 on a processor, else 0
    held_out         share of each training class that is only measured with
    keep             share of the start in the weights that are shipped; None: what suits the loss
    patience         measurements without a better R@1, by a hundredth, before training ends
    """

    backbone: str = "efficientnet_lite0"
    loss: str = "triplet"
    dimension: int = 128
    iterations: int = 5000
    classes: int | None = None
    each: int | None = None
    rate: float | None = None
    trunk_rate: float | None = None
    warmup: int = 20
    freeze: str = "auto"
    views: int | None = None
    held_out: float = 0.3
    keep: float | None = None
    decay: float = 0.98
    measure_every: int = 25
    patience: int = 6
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("iterations", "dimension", "measure_every", "patience"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}: give 1 or more.")
        for name in ("keep", "decay"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise InputError(f"{name} is {value}: give 0 or more, and less than 1.")
        if self.loss == "npair" and self.each not in (None, 2):
            raise InputError(f"N-pair takes one pair a class, not {self.each} pictures: leave that option away.")

    def suited_to(self, loss: EmbeddingLoss) -> RetrievalRecipe:
        """The same with all that was left open as it suits the loss."""
        each = self.each or loss.each
        return replace(
            self,
            each=each,
            classes=self.classes or BATCH // each,
            rate=loss.rates[0] if self.rate is None else self.rate,
            trunk_rate=loss.rates[1] if self.trunk_rate is None else self.trunk_rate,
            keep=loss.keep if self.keep is None else self.keep,
        )


@dataclass(frozen=True)
class TrainingResult:
    """Where the network is, and what was measured; all of it also stands in log.json."""

    checkpoint: Path
    log: Mapping[str, Any]
    bad: Mapping[str, str]


def train_retrieval(
    dataset: Dataset,
    recipe: RetrievalRecipe,
    out: Path,
    *,
    device: str = "auto",
    precision: str | None = None,
    minutes: float | None = None,
    watch: Watch | None = None,
) -> TrainingResult:
    """Train, or go on with the run that `out` holds; leave embedding.safetensors, log.json and curves.png there."""
    began = time.monotonic()
    loss = loss_by_name(recipe.loss)
    recipe = recipe.suited_to(loss)
    data, bad = readable(dataset)
    fabric = start(device, precision)
    job = _prepare(data, recipe, loss, fabric, watch if fabric.is_global_zero else None)
    settings = {**asdict(recipe), "cut": job.cut.at, "dataset": data.name, "pictures": len(data)}
    del settings["iterations"], settings["patience"]  # a run may go on for longer
    state = RunState.load(out, settings) or job.trainer.first_state(settings, job.before.get("embedding"))
    job.trainer.go_on(state, out, until=None if minutes is None else began + 60 * minutes)
    log = _document(job, state, bad)
    put(state.best, job.trainer.moving)
    if fabric.is_global_zero:
        told = {key: value for key, value in log.items() if key not in ("curve", "losses", "bad")}
        save_embedding(out / CHECKPOINT, job.network, replace(job.config, training=told))
        write_curves(out, log)
    fabric.barrier()
    if state.ended == "non_finite":
        raise TrainingError(
            f"The loss was not finite at iteration {state.iteration + 1}, so training stopped: {out / CHECKPOINT} "
            f"holds the network of iteration {state.best_log['iteration']}; try again with lower learning rates."
        )
    return TrainingResult(out / CHECKPOINT, log, bad)


@dataclass(frozen=True, eq=False)
class _Job:
    """A training, ready to go."""

    network: EmbeddingNetwork
    cut: Cut
    config: EmbeddingConfig
    trainer: Trainer
    before: Mapping[str, float]
    held_out: tuple[str, ...]


def _prepare(data: Dataset, recipe: RetrievalRecipe, loss: EmbeddingLoss, fabric: Any, watch: Watch | None) -> _Job:
    labels = labels_of(data.samples)
    train, held_out = hold_out(labels, share=recipe.held_out, seed=recipe.seed)
    batches = ClassBatches(labels[train], recipe.classes or 0, recipe.each or 0, recipe.seed)
    share_of(batches(0), rank=fabric.global_rank, processes=fabric.world_size)  # refused before anything is computed
    has_accelerator = fabric.device.type != "cpu"
    backbone = load_backbone(recipe.backbone)
    probe = probe_of(backbone)
    cut = Cut(backbone.trunk, resolve(recipe.freeze, backbone.trunk, probe, has_accelerator=has_accelerator), probe)
    # With channels last in memory the frozen part takes half the time on a processor.
    network: EmbeddingNetwork = _network(backbone, recipe.dimension).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    network.to(fabric.device)
    source = source_of(
        data.samples,
        backbone,
        cut,
        views=recipe.views if recipe.views is not None else 0 if has_accelerator else VIEWS,
        held_out=held_out,
        device=fabric.device,
        seed=recipe.seed,
        watch=None if watch is None else lambda done, total: watch("storing features", done, total, {}),
    )
    start_from_backbone(network, cut, source, train, centred=not loss.normalized, length=loss.length)
    held = HeldOut(source, held_out, labels[held_out], loss.normalized, fabric.device)
    before = scores_before_training(network, cut, held, seed=recipe.seed)
    moving = Moving(network, cut)
    wrapped, optimizer = fabric.setup(moving, _optimizer(moving, recipe))
    trainer = Trainer(
        fabric=fabric,
        moving=moving,
        wrapped=wrapped,
        optimizer=optimizer,
        averages=Averages(
            weights_of(moving), decay=recipe.decay, keep=loss.keep if recipe.keep is None else recipe.keep
        ),
        loss=loss,
        source=source,
        train=train,
        batches=batches,
        held=held,
        limits=Limits(recipe.iterations, recipe.warmup, recipe.measure_every, recipe.patience),
        watch=watch,
    )
    names = tuple(data.samples[place].name for place in held_out)
    return _Job(network, cut, _config(data, labels, backbone, recipe, loss), trainer, before, names)


def _network(backbone: Backbone, dimension: int) -> EmbeddingNetwork:
    return EmbeddingNetwork(
        backbone.trunk, channels=backbone.channels, dimension=dimension, channels_last=backbone.channels_last
    ).eval()


def _optimizer(moving: Moving, recipe: RetrievalRecipe) -> torch.optim.Optimizer:
    rates = (recipe.rate or 0.0, recipe.trunk_rate or 0.0)
    groups: list[dict[str, Any]] = [
        {"params": list(part.parameters()), "lr": rate, "full": rate}
        for part, rate in zip((moving.embed, moving.upper), rates, strict=True)
    ]
    return torch.optim.Adam([group for group in groups if group["params"]])


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


def _document(job: _Job, state: RunState, bad: Mapping[str, str]) -> dict[str, Any]:
    return {
        "settings": state.settings,
        "ended": state.ended,
        "iterations": state.iteration,
        "seconds": round(state.seconds, 1),
        "before": dict(job.before),
        "best": state.best_log,
        "curve": state.log,
        "losses": state.losses,
        "held_out": list(job.held_out),
        "bad": dict(bad),
    }
