"""The recipe for retrieval networks: learn the classes at hand without forgetting what the backbone knew.

- the linear layer starts as the principal axes of the backbone's own features, so the start is as good as those
- only what follows the cut moves, the trunk more slowly than the linear layer; batch statistics stay as they are
- what is shipped is the running mean of the weights, drawn half-way back to the start
- training ends when held-out pictures of the training classes are found no better for a while
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...datasets import Dataset
from ...errors import InputError, TrainingError
from ...networks.embedding import EmbeddingConfig, EmbeddingNetwork, load_backbone, pca, save_embedding
from ...retrieval.scores import recalled, retrieve
from ..batches import ClassBatches, Ints, hold_out, share_of
from ..curves import write_curves
from ..cutting import Cut, resolve
from ..losses import EmbeddingLoss, loss_by_name
from ..moving import Averages, Moving, all_finite, put, weights_of
from ..preparing import AT_ONCE, labels_of, pooled_features, probe_of, readable, source_of
from ..processes import gather, start
from ..resuming import RunState
from ..sources import Source

CHECKPOINT = "embedding.safetensors"
BATCH = 64  # pictures, where nothing else is asked for
Watch = Callable[[str, int, int, Mapping[str, float]], None]
"""Called with what is being done, how much of it, of how much, and numbers to show."""


@dataclass(frozen=True)
class RetrievalRecipe:
    """What is trained, and how. The defaults are the paper's where it says, and ours where it does not.

    classes, each    a batch: so many classes (None: up to 64 pictures in all), so many pictures of each (None: 4, and
                     2 for N-pair)
    rate, trunk_rate learning rates of the linear layer and of what moves in the trunk; None: what suits the loss
    freeze           auto, none, trunk, or the name of the last module that stays as it is
    views            stored views a picture; 0: pictures are read anew each time; None: 4 on a processor, else 0
    held_out         share of each training class that is only measured with
    keep             share of the start in the weights that are shipped
    patience         measurements without a better R@1 before training ends
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
    keep: float = 0.5
    decay: float = 0.98
    measure_every: int = 25
    patience: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("iterations", "dimension", "measure_every", "patience"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}: give 1 or more.")
        for name in ("keep", "decay"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}: give 0 or more, and less than 1.")
        if self.loss == "npair" and self.each not in (None, 2):
            raise InputError(f"N-pair takes one pair a class, not {self.each} pictures: leave that option away.")


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
    data, bad = readable(dataset)
    fabric = start(device, precision)
    run = _Run.prepare(data, recipe, loss, fabric, watch if fabric.is_global_zero else None)
    settings = {**asdict(recipe), "cut": run.cut.at, "dataset": data.name, "pictures": len(data)}
    del settings["iterations"], settings["patience"]  # a run may go on for longer
    state = RunState.load(out, settings) or RunState(settings, **run.first_state())
    try:
        run.go_on(state, out, until=None if minutes is None else began + 60 * minutes)
    finally:
        fabric.barrier()
    log = run.finish(state, out, bad=bad)
    if state.ended == "non_finite":
        raise TrainingError(
            f"The loss was not finite at iteration {state.iteration + 1}, so training stopped: {out / CHECKPOINT} "
            f"holds the network of iteration {state.best_log['iteration']}; try again with lower learning rates."
        )
    return TrainingResult(out / CHECKPOINT, log, bad)


@dataclass(eq=False)
class _Run:
    """One training: what stays the same from iteration to iteration."""

    recipe: RetrievalRecipe
    data: Dataset
    loss: EmbeddingLoss
    fabric: Any
    network: EmbeddingNetwork
    cut: Cut
    moving: Moving
    wrapped: Any
    optimizer: Any
    averages: Averages
    source: Source
    train: Ints
    held: Ints
    batches: ClassBatches
    before: Mapping[str, float]
    config: EmbeddingConfig
    watch: Watch | None

    @classmethod
    def prepare(
        cls, data: Dataset, recipe: RetrievalRecipe, loss: EmbeddingLoss, fabric: Any, watch: Watch | None
    ) -> _Run:
        labels = labels_of(data.samples)
        train, held = hold_out(labels, share=recipe.held_out, seed=recipe.seed)
        each = recipe.each or loss.each
        batches = ClassBatches(labels[train], recipe.classes or BATCH // each, each, recipe.seed)
        share_of(batches(0), rank=fabric.global_rank, processes=fabric.world_size)
        backbone = load_backbone(recipe.backbone)
        network = EmbeddingNetwork(
            backbone.trunk,
            channels=backbone.channels,
            dimension=recipe.dimension,
            channels_last=backbone.channels_last,
        ).eval()
        has_accelerator = fabric.device.type != "cpu"
        cut_at = resolve(recipe.freeze, network.trunk, probe_of(backbone), has_accelerator=has_accelerator)
        cut = Cut(network.trunk, cut_at, probe_of(backbone))
        network.to(fabric.device)
        views = recipe.views if recipe.views is not None else 0 if has_accelerator else 4
        source = source_of(
            data.samples,
            backbone,
            cut,
            views=views,
            held_out=held,
            device=fabric.device,
            seed=recipe.seed,
            watch=None if watch is None else lambda done, total: watch("storing features", done, total, {}),
        )
        features = pooled_features(network, cut, source, train)
        weight, bias = pca(features, recipe.dimension, whiten=0.5, centred=not loss.normalized, length=loss.length)
        with torch.no_grad():
            network.embed.weight.copy_(weight)
            network.embed.bias.copy_(bias)
        moving = Moving(network, cut)
        rates = [
            suited if given is None else given
            for given, suited in zip((recipe.rate, recipe.trunk_rate), loss.rates, strict=True)
        ]
        groups: list[dict[str, Any]] = [
            {"params": list(part.parameters()), "lr": rate, "full": rate}
            for part, rate in zip((moving.embed, moving.upper), rates, strict=True)
        ]
        optimizer = torch.optim.Adam([group for group in groups if group["params"]])
        wrapped, optimizer = fabric.setup(moving, optimizer)
        names = sorted({int(label) for label in labels})
        config = EmbeddingConfig(
            backbone=backbone.name,
            dimension=recipe.dimension,
            normalized=loss.normalized,
            loss=loss.name,
            preprocessing=backbone.preprocessing,
            dataset=data.name,
            classes=tuple(data.class_name(label) for label in names),
        )
        run = cls(
            recipe=recipe,
            data=data,
            loss=loss,
            fabric=fabric,
            network=network,
            cut=cut,
            moving=moving,
            wrapped=wrapped,
            optimizer=optimizer,
            averages=Averages(weights_of(moving), decay=recipe.decay, keep=recipe.keep),
            source=source,
            train=train,
            held=held,
            batches=batches,
            before={},
            config=config,
            watch=watch,
        )
        run.before = run.measure_start()
        return run

    def first_state(self) -> dict[str, Any]:
        """A run that has done nothing yet; the start is the first good network."""
        line = {"iteration": 0, "loss": None, "recall_at_1": self.before.get("embedding"), "seconds": 0.0}
        start = self.averages.start
        return {"moving": start, "mean": start, "best": start, "best_log": line, "log": [line]}

    def go_on(self, state: RunState, out: Path, *, until: float | None) -> None:
        """Train from where the state is; it is written at every measurement, and when a person stops the run."""
        self._restore(state)
        clock = time.monotonic() - state.seconds
        state.ended = ""
        try:
            while not state.ended:
                if state.iteration >= self.recipe.iterations:
                    state.ended = "iterations"
                elif self._over(until):
                    state.ended = "minutes"
                elif state.since_best >= self.recipe.patience:
                    state.ended = "no better"
                elif not self._step(state):
                    state.ended = "non_finite"
                elif state.iteration % self.recipe.measure_every == 0:
                    self._measure(state, out, seconds=time.monotonic() - clock)
        except KeyboardInterrupt:
            state.seconds = time.monotonic() - clock
            self._save(state, out)
            raise
        state.seconds = time.monotonic() - clock
        if state.ended != "non_finite":
            if state.log[-1]["iteration"] < state.iteration:
                self._measure(state, out, seconds=state.seconds)
            self._save(state, out)

    def finish(self, state: RunState, out: Path, *, bad: Mapping[str, str]) -> Mapping[str, Any]:
        """Write the best network and the curves."""
        put(state.best, self.moving)
        document = {
            "settings": state.settings,
            "ended": state.ended,
            "iterations": state.iteration,
            "seconds": round(state.seconds, 1),
            "before": dict(self.before),
            "best": state.best_log,
            "curve": state.log,
            "losses": state.losses,
            "held_out": [self.data.samples[place].name for place in self.held],
            "bad": dict(bad),
        }
        if self.fabric.is_global_zero:
            told = {key: value for key, value in document.items() if key not in ("curve", "losses", "bad")}
            save_embedding(out / CHECKPOINT, self.network, replace(self.config, training=told))
            write_curves(out, document)
        self.fabric.barrier()
        return document

    def measure_start(self) -> dict[str, float]:
        """R@1 on held-out pictures before training: of the start, of the pooled features, of a random layer."""
        if not len(self.held):
            return {}
        pooled = self._run(self.moving.pooled, self.held)
        random = torch.nn.Linear(pooled.shape[1], self.recipe.dimension)
        torch.manual_seed(self.recipe.seed)
        random.reset_parameters()
        with torch.no_grad():
            return {
                "embedding": self._recall(self.moving.embed(pooled.to(self.fabric.device)).cpu()),
                "pooled": self._recall(pooled),
                "random": self._recall(random(pooled)),
            }

    def _step(self, state: RunState) -> bool:
        """One iteration; False, with nothing changed, where the loss is not finite."""
        iteration = state.iteration
        batch = self.batches(iteration)
        mine, numbers = (
            share_of(whole, rank=self.fabric.global_rank, processes=self.fabric.world_size)
            for whole in (self.train[batch], self.batches.views(iteration, self.source.views))
        )
        features = self.source.batch(mine, numbers, iteration).to(self.fabric.device)
        for group in self.optimizer.param_groups:
            group["lr"] = group["full"] * min(1.0, (iteration + 1) / max(1, self.recipe.warmup))
        embeddings = gather(self.fabric, self.wrapped(features)).float()
        labels = torch.from_numpy(self.batches.labels[batch]).to(embeddings.device)
        loss = self.loss(embeddings, labels)
        value = float(loss.detach())
        if not torch.isfinite(loss.detach()):
            return False
        self.optimizer.zero_grad()
        self.fabric.backward(loss)
        self.optimizer.step()
        self.averages.add(self.moving, iteration)
        state.iteration += 1
        state.losses.append(value)
        if self.watch is not None:
            score = state.log[-1]["recall_at_1"]
            told = {"loss": value} if score is None else {"loss": value, "R@1": score}
            self.watch("training", state.iteration, self.recipe.iterations, told)
        return True

    def _measure(self, state: RunState, out: Path, *, seconds: float) -> None:
        """R@1 of the network as it would be shipped now; the better one is kept."""
        shipped = self.averages.shipped()
        if not all_finite(shipped):
            state.ended = "non_finite"
            return
        score = None
        if len(self.held):
            current = weights_of(self.moving)
            put(shipped, self.moving)
            score = self._recall(self._run(self.moving, self.held))
            put(current, self.moving)
        since = state.losses[state.log[-1]["iteration"] :]
        line = {
            "iteration": state.iteration,
            "loss": sum(since) / max(1, len(since)),
            "recall_at_1": score,
            "seconds": round(seconds, 1),
        }
        state.log.append(line)
        best = state.best_log["recall_at_1"]
        if score is None or best is None or score > best:
            state.best, state.best_log, state.since_best = shipped, line, 0
        else:
            state.since_best += 1
        state.seconds = seconds
        self._save(state, out)

    def _run(self, part: Callable[[Tensor], Tensor], places: Ints) -> Tensor:
        with torch.inference_mode():
            parts = [
                part(self.source.plain(places[first : first + AT_ONCE]).to(self.fabric.device)).float().cpu()
                for first in range(0, len(places), AT_ONCE)
            ]
        return torch.cat(parts).clone()

    def _recall(self, embeddings: Tensor) -> float:
        labels = labels_of([self.data.samples[place] for place in self.held])
        found = retrieve(embeddings.numpy(), labels, normalized=self.loss.normalized, top=1)
        return float(recalled(found, labels, rank=1).mean())

    def _restore(self, state: RunState) -> None:
        put(state.moving, self.moving)
        self.averages.mean = {name: value.clone() for name, value in state.mean.items()}
        if state.optimizer:
            self.optimizer.load_state_dict(state.optimizer)

    def _save(self, state: RunState, out: Path) -> None:
        state.moving = weights_of(self.moving)
        state.mean = {name: value.clone() for name, value in self.averages.mean.items()}
        state.optimizer = self.optimizer.state_dict()
        if self.fabric.is_global_zero:
            state.save(out)

    def _over(self, until: float | None) -> bool:
        """Whether the time is up, by the clock of the first process, so that all stop together."""
        if until is None:
            return False
        return bool(self.fabric.broadcast(time.monotonic() >= until))
