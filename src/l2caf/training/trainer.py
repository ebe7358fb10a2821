"""The loop: iterations, measurements, and when to stop."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .batches import ClassBatches, Ints, share_of
from .processes import gather
from .retrieval.losses import EmbeddingLoss
from .retrieval.start import HeldOut, Moving
from .sources import Source
from .state import Averages, RunState, all_finite, put, weights_of

Watch = Callable[[str, int, int, Mapping[str, float]], None]
"""Called with what is being done, how much of it, of how much, and numbers to show."""


@dataclass(frozen=True)
class Limits:
    """When things happen, in iterations; `patience` is in measurements, and `worth` is by how much R@1 must be better.

    With some hundred held-out pictures the largest of many scores is a matter of luck, and the longer it is waited for
    the more is forgotten.
    """

    iterations: int
    warmup: int
    measure_every: int
    patience: int
    worth: float = 0.01


@dataclass(eq=False)
class Trainer:
    """What stays the same from iteration to iteration; what changes is in a RunState.

    wrapped   `moving`, as Fabric runs it in one process or several
    train     places in the source of the pictures that the batches number
    """

    fabric: Any
    moving: Moving
    wrapped: Any
    optimizer: Any
    averages: Averages
    loss: EmbeddingLoss
    source: Source
    train: Ints
    batches: ClassBatches
    held: HeldOut
    limits: Limits
    watch: Watch | None = None

    def first_state(self, settings: dict[str, Any], score: float | None) -> RunState:
        """A run that has done nothing yet; the start is its first good network."""
        line = {"iteration": 0, "loss": None, "recall_at_1": score, "seconds": 0.0}
        start = self.averages.start
        return RunState(settings, moving=start, mean=start, best=start, best_log=line, log=[line])

    def go_on(self, state: RunState, out: Path, *, until: float | None = None) -> None:
        """Train from where the state is; it is written at every measurement, and when a person stops the run.

        until   time.monotonic() at which to end
        """
        self._restore(state)
        clock = time.monotonic() - state.seconds
        state.ended = ""
        try:
            while not state.ended:
                if state.iteration >= self.limits.iterations:
                    state.ended = "iterations"
                elif self._over(until):
                    state.ended = "minutes"
                elif state.since_best >= self.limits.patience:
                    state.ended = "no better"
                elif not self._step(state):
                    state.ended = "non_finite"
                elif state.iteration % self.limits.measure_every == 0:
                    self._measure(state, out, seconds=time.monotonic() - clock)
        except KeyboardInterrupt:
            state.seconds = time.monotonic() - clock
            self._save(state, out)
            raise
        state.seconds = time.monotonic() - clock
        if state.ended != "non_finite":  # what is on disk then is the last good state
            if state.log[-1]["iteration"] < state.iteration:
                self._measure(state, out, seconds=state.seconds)
            self._save(state, out)

    def _step(self, state: RunState) -> bool:
        """One iteration; False, with nothing changed, where the loss is not finite."""
        iteration = state.iteration
        batch = self.batches(iteration)
        mine, views = (
            share_of(whole, rank=self.fabric.global_rank, processes=self.fabric.world_size)
            for whole in (self.train[batch], self.batches.views(iteration, self.source.views))
        )
        for group in self.optimizer.param_groups:
            group["lr"] = group["full"] * min(1.0, (iteration + 1) / max(1, self.limits.warmup))
        features = self.source.batch(mine, views, iteration).to(self.fabric.device)
        embeddings = gather(self.fabric, self.wrapped(features)).float()
        loss = self.loss(embeddings, torch.from_numpy(self.batches.labels[batch]).to(embeddings.device))
        if not torch.isfinite(loss.detach()):
            return False
        self.optimizer.zero_grad()
        self.fabric.backward(loss)
        self.optimizer.step()
        self.averages.add(self.moving, iteration)
        state.iteration += 1
        state.losses.append(float(loss.detach()))
        self._tell(state)
        return True

    def _tell(self, state: RunState) -> None:
        if self.watch is None:
            return
        score = state.log[-1]["recall_at_1"]
        numbers = {"loss": state.losses[-1], **({} if score is None else {"R@1": score})}
        self.watch("training", state.iteration, self.limits.iterations, numbers)

    def _measure(self, state: RunState, out: Path, *, seconds: float) -> None:
        """R@1 of the network as it would be shipped now; the better one is kept."""
        shipped = self.averages.shipped()
        if not all_finite(shipped):
            state.ended = "non_finite"
            return
        score = self._score(shipped) if self.held else None
        since = state.losses[state.log[-1]["iteration"] :]
        line = {
            "iteration": state.iteration,
            "loss": sum(since) / max(1, len(since)),
            "recall_at_1": score,
            "seconds": round(seconds, 1),
        }
        state.log.append(line)
        best = state.best_log["recall_at_1"]
        if score is None or best is None or score > best + self.limits.worth:
            state.best, state.best_log, state.since_best = shipped, line, 0
        else:
            state.since_best += 1
        state.seconds = seconds
        self._save(state, out)

    def _score(self, shipped: Mapping[str, torch.Tensor]) -> float:
        current = weights_of(self.moving)
        put(shipped, self.moving)
        try:
            return self.held.recall(self.moving)
        finally:
            put(current, self.moving)

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
