"""The loop: iterations, measurements, and when to stop. What is trained, and what is measured, is a `Job`'s affair."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..errors import Cancelled, TrainingError
from ..networks.identity import hash_of
from ..progress import Progress, silent
from ..runs.contents import code_version, entries_of
from ..runs.lock import alone_in
from ..runs.rows import FILES
from .curves import draw_curves, write_log
from .job import Ended, Job, TrainingResult
from .kept import kept_in
from .processes import everyone, interrupts_deferred, start
from .recipe import Limits, Recipe
from .state import (
    LogLine,
    RunState,
    State,
    all_finite,
    fits,
    put,
    random_numbers,
    random_numbers_kept,
    set_random_numbers,
    state_of,
    unreadable,
)

if TYPE_CHECKING:
    from ..datasets import Dataset


def follow(
    recipe: Recipe,
    data: Dataset,
    out: Path,
    *,
    device: str = "auto",
    precision: str | None = None,
    minutes: float | None = None,
    progress: Progress = silent,
) -> TrainingResult:
    """Train by a recipe, or go on with the run that `out` holds; leave the network, log.json and curves.png there."""
    fabric = start(device, precision)
    with alone_in(out) if fabric.is_global_zero else nullcontext():  # the processes of one run are one run
        contents = {FILES: [*map(list, entries_of(data.samples))], "code": code_version()}
        with kept_in(out, run=hash_of([json.dumps(contents)]), process=fabric.global_rank) as kept:
            job = recipe.prepare(data, fabric, progress if fabric.is_global_zero else silent)
            result = train(job, job.limits or recipe.limits, out, minutes=minutes, progress=progress, contents=contents)
        if result.ended is not Ended.MINUTES:  # else it goes on when the same command is given again
            kept.remove()
        return result


def train(
    job: Job,
    limits: Limits,
    out: Path,
    *,
    minutes: float | None = None,
    progress: Progress = silent,
    contents: Mapping[str, Any] = MappingProxyType({}),
) -> TrainingResult:
    """Train, or go on with the run that `out` holds. The module is then the best network that was measured.

    The state is written at every measurement. After Ctrl-C, or `Cancelled` from `progress`, it is also written between
    two iterations; wherever a run was stopped or killed, it goes on to the very numbers of an uninterrupted one.

    minutes    after which to end, counted from the first iteration of this call, of which there is at least one
    contents   what the run is known by, beside the settings and contents of the job
    """
    known = {**job.contents, **contents}
    run = _Run(job, limits, Path(out), progress if job.fabric.is_global_zero else silent, known)
    ended = run.go_on(None if minutes is None else time.monotonic() + 60 * minutes)
    state = run.state
    put(state.best, job.module)
    result = TrainingResult(
        Path(out), job.score, state.settings, ended, state.iteration, state.seconds, job.before,
        state.best_line, tuple(state.log), tuple(state.losses), job.bad, job.notes, limits.worth,
    )  # fmt: skip
    if job.fabric.is_global_zero:
        result = replace(result, checkpoint=job.save(run.out, result.summary()))
        write_log(run.out, result.as_dict())
        draw_curves(run.out, result.losses, result.curve, job.score, saved=result.best.iteration)
    result = replace(result, checkpoint=job.fabric.broadcast(result.checkpoint))
    if ended is Ended.NON_FINITE:
        raise TrainingError(
            f"The loss was not finite at iteration {state.iteration + 1}, so training stopped: {result.checkpoint} "
            f"holds the network of iteration {state.best_line.iteration}; try again with lower learning rates."
        )
    return result


class _Run:
    """A job on its way."""

    def __init__(self, job: Job, limits: Limits, out: Path, progress: Progress, contents: dict[str, Any]) -> None:
        self.job = job
        self.limits = limits
        self.out = out
        self.progress = progress
        self.stop: BaseException | None = None
        for group in job.optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        stored = RunState.load(out, job.settings, contents)
        self.state = stored or self._first_state(contents)
        self.clock = time.monotonic() - self.state.seconds
        if stored is None:
            self._save()
        else:
            try:
                self._restore()
            except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
                raise unreadable(out, error) from error

    def go_on(self, until: float | None) -> Ended:
        """Iterate from where the state is."""
        state = self.state
        self.began = state.iteration
        with interrupts_deferred(self._interrupted):
            while True:
                self._leave_if_stopped()
                if state.iteration % self.limits.measure_every == 0 and not self._measured:
                    if not self._measure():
                        return Ended.NON_FINITE
                elif ended := self._ended(until):
                    break
                elif not self._step():
                    return Ended.NON_FINITE
            if not self._measured and not self._measure():
                return Ended.NON_FINITE
        return ended

    @property
    def _measured(self) -> bool:
        return self.state.log[-1].iteration == self.state.iteration

    def _ended(self, until: float | None) -> Ended | None:
        if self.state.iteration >= self.limits.iterations:
            return Ended.ITERATIONS
        # By the clock of the first process, so that all stop together.
        up = until is not None and self.state.iteration > self.began
        if up and self.job.fabric.broadcast(time.monotonic() >= (until or 0.0)):
            return Ended.MINUTES
        return Ended.NO_BETTER if self.state.since_best >= self.limits.patience else None

    def _step(self) -> bool:
        """One iteration; False, with no parameter changed, where the loss is not finite."""
        job, state = self.job, self.state
        iteration = state.iteration
        for group in job.optimizer.param_groups:
            group["lr"] = group["initial_lr"] * self.limits.rate(iteration)
        loss = job.loss(iteration)
        losses = everyone(job.fabric, float(loss.detach()))
        if not all(map(math.isfinite, losses)):
            return False
        job.optimizer.zero_grad()
        job.fabric.backward(loss)
        job.optimizer.step()
        if job.averages is not None:
            job.averages.add(job.module, iteration)
        state.iteration += 1
        state.losses.append(sum(losses) / len(losses))
        self._tell()
        return True

    def _tell(self) -> None:
        score = self.state.log[-1].numbers.get(self.job.score.key)
        numbers = {"loss": self.state.losses[-1], **({} if score is None else {self.job.score.short: score})}
        try:
            self.progress("training", self.state.iteration, self.limits.iterations, numbers)
        except (Cancelled, KeyboardInterrupt) as reason:
            self.stop = reason

    def _interrupted(self) -> None:
        self.stop = KeyboardInterrupt()

    def _leave_if_stopped(self) -> None:
        """Processes leave together, since each would wait for the others for ever."""
        if any(everyone(self.job.fabric, self.stop is not None)):
            self._save()
            raise self.stop or KeyboardInterrupt

    def _measure(self) -> bool:
        """Measure the network as it would be shipped now, and keep the better one; False where it is not finite."""
        state, shipped = self.state, self._shipped()
        if not all_finite(shipped):
            return False
        since = state.losses[state.log[-1].iteration :]
        mean = sum(since) / max(1, len(since))
        line = LogLine(state.iteration, mean, self._numbers(shipped), time.monotonic() - self.clock)
        state.log.append(line)
        if self._better(line):
            state.best, state.best_line, state.since_best = shipped, line, 0
        else:
            state.since_best += 1
        self._save()
        return True

    def _better(self, line: LogLine) -> bool:
        score, best = (one.numbers[self.job.score.key] for one in (line, self.state.best_line))
        # With nothing measured, the last network is the best that is known of.
        return score is None or best is None or math.isnan(best) or score > best + self.limits.worth

    def _shipped(self) -> State:
        return state_of(self.job.module) if self.job.averages is None else self.job.averages.shipped()

    def _numbers(self, shipped: State) -> dict[str, float | None]:
        module, fabric = self.job.module, self.job.fabric
        current = state_of(module)
        put(shipped, module)
        try:
            with random_numbers_kept(fabric.device):
                measured = fabric.broadcast(dict(self.job.measure()))
        finally:
            put(current, module)
        return {self.job.score.key: None, **measured}

    def _first_state(self, contents: dict[str, Any]) -> RunState:
        """A run that has done nothing yet; the start is its first good network."""
        shipped = self._shipped()
        line = LogLine(0, None, self._numbers(shipped), 0.0)
        settings = json.loads(json.dumps(self.job.settings))
        return RunState(settings, current=shipped, best=shipped, best_line=line, log=[line], contents=contents)

    def _restore(self) -> None:
        job, state, fabric = self.job, self.state, self.job.fabric
        averages = () if job.averages is None else (state.start, state.mean)
        if not all(fits(one, job.module) for one in (state.current, state.best, *averages)):
            raise ValueError("the tensors are not those of the module")
        put(state.current, job.module)
        if job.averages is not None:
            job.averages.start, job.averages.mean = state.start, state.mean
        job.optimizer.load_state_dict(state.optimizer)
        fabric.strategy.precision.load_state_dict(state.precision)
        if fabric.global_rank < len(state.random):  # else one of more processes than there were
            set_random_numbers(state.random[fabric.global_rank], fabric.device)

    def _save(self) -> None:
        job, state, fabric = self.job, self.state, self.job.fabric
        state.current = state_of(job.module)
        if job.averages is not None:
            state.start, state.mean = job.averages.start, job.averages.mean
        state.optimizer = job.optimizer.state_dict()
        state.precision = fabric.strategy.precision.state_dict()
        state.random = everyone(fabric, random_numbers(fabric.device))
        state.seconds = time.monotonic() - self.clock
        if fabric.is_global_zero:
            state.save(self.out)
