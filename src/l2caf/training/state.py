"""What changes while a network is trained, in memory and on disk: enough to go on as if nothing had happened."""

from __future__ import annotations

import io
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import WeightsError
from ..files import write_whole
from ..runs.rows import Identity, refused

State = dict[str, Tensor]

FILE = "resume.pt"
FORMAT = 3  # 1 had neither buffers nor the random numbers of numpy, Python and further processes, 2 no contents


def state_of(module: nn.Module) -> State:
    """A copy of parameters and buffers, on the processor: statistics of batch norms are part of what is learned."""
    return {name: value.detach().cpu().clone() for name, value in _tensors(module)}


def put(state: Mapping[str, Tensor], module: nn.Module) -> None:
    """Set parameters and buffers, in place."""
    with torch.no_grad():
        for name, value in _tensors(module):
            value.copy_(state[name])


def all_finite(state: Mapping[str, Tensor]) -> bool:
    """Whether there is no NaN and no infinity among them."""
    return all(bool(value.isfinite().all()) for value in state.values())


def fits(state: Mapping[str, Tensor], module: nn.Module) -> bool:
    """Whether it has what the module has, in the same shapes."""
    return {name: value.shape for name, value in state.items()} == {n: value.shape for n, value in _tensors(module)}


def _tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()


class Averages:
    """A running mean of the weights and statistics, and the same drawn back towards where they started.

    What a backbone knew of other classes is lost little by little as its weights leave their start. Half-way between
    start and goal a network keeps nearly all of the old and has most of the new (Wortsman et al., CVPR 2022).

    decay   of the running mean, per iteration; smaller at first, so that the start does not linger by accident
    keep    share of the start in what is shipped: 0 is the running mean itself, 1 would be the start
    """

    def __init__(self, start: State, *, decay: float, keep: float = 0.0) -> None:
        self.start = start
        self.mean = {name: value.clone() for name, value in start.items()}
        self.decay = decay
        self.keep = keep

    def add(self, module: nn.Module, iteration: int) -> None:
        """Take in the weights after an iteration; a buffer that counts has no mean, and is copied."""
        rate = 1 - min(self.decay, (1 + iteration) / (10 + iteration))
        for name, value in _tensors(module):
            mean, now = self.mean[name], value.detach().to(self.mean[name].device)
            if mean.is_floating_point():
                mean.lerp_(now, rate)
            else:
                mean.copy_(now)

    def shipped(self) -> State:
        """keep · start + (1 − keep) · mean."""
        return {
            name: torch.lerp(value, self.start[name], self.keep) if value.is_floating_point() else value.clone()
            for name, value in self.mean.items()
        }


def random_numbers(device: torch.device) -> dict[str, Any]:
    """Where the generators of this process stand, as plain values and tensors."""
    name, keys, *rest = np.random.get_state(legacy=True)  # noqa: NPY002 - the shared generator that others draw from
    return {
        "torch": torch.get_rng_state(),
        "device": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
        "numpy": (name, torch.from_numpy(keys.astype(np.int64)), *rest),  # type: ignore[union-attr]
        "python": random.getstate(),
    }


def set_random_numbers(state: Mapping[str, Any], device: torch.device) -> None:
    """Let all generators go on from there."""
    torch.set_rng_state(state["torch"])
    if device.type == "cuda" and state["device"] is not None:
        torch.cuda.set_rng_state(state["device"], device)
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))  # noqa: NPY002
    random.setstate(state["python"])


@contextmanager
def random_numbers_kept(device: torch.device) -> Iterator[None]:
    """What is drawn inside is as if it had not been: how often it is measured changes no training."""
    before = random_numbers(device)
    try:
        yield
    finally:
        set_random_numbers(before, device)


@dataclass(frozen=True)
class LogLine:
    """One measurement: mean loss since the one before, what the job measured, seconds of training so far."""

    iteration: int
    loss: float | None
    numbers: Mapping[str, float | None]
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """One flat line of the log; JSON knows no NaN."""
        numbers = {
            name: value if value is not None and math.isfinite(value) else None for name, value in self.numbers.items()
        }
        return {"iteration": self.iteration, "loss": self.loss, **numbers, "seconds": round(self.seconds, 1)}


@dataclass
class RunState:
    """What a run has come to after `iteration` iterations.

    settings   all that decides what the run does; another run must not go on from here
    contents   hashes of what it learns from: pictures and labels, the weights that it starts with, the code
    current    parameters and buffers being trained; where the job has averages, `start` and `mean` are theirs
    best       those to be shipped, as they were at the best measurement so far; `best_line` is its line
    log        one line per measurement
    losses     one number per iteration
    random     where the random numbers of each process stand
    precision  scale of the gradients in half precision, where there is one
    seconds    that training took so far, over all interruptions
    """

    settings: dict[str, Any]
    current: State
    best: State
    best_line: LogLine
    log: list[LogLine]
    start: State = field(default_factory=dict)
    mean: State = field(default_factory=dict)
    iteration: int = 0
    optimizer: dict[str, Any] = field(default_factory=dict)
    precision: dict[str, Any] = field(default_factory=dict)
    random: Sequence[Mapping[str, Any]] = ()
    since_best: int = 0
    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0
    contents: dict[str, Any] = field(default_factory=dict)

    def save(self, folder: Path) -> None:
        """Write it, whole or not at all."""
        lines = {"log": [asdict(line) for line in self.log], "best_line": asdict(self.best_line)}
        stored = io.BytesIO()  # torch's own writer says in a page of its own that a disk is full
        torch.save({"format": FORMAT, **vars(self), **lines}, stored)
        with write_whole(folder / FILE) as temporary:
            temporary.write_bytes(stored.getbuffer())

    @classmethod
    def load(cls, folder: Path, settings: Mapping[str, Any], contents: Mapping[str, Any]) -> RunState | None:
        """The state that is there, if it is one of the same run; None where there is none."""
        path = folder / FILE
        if not path.is_file():
            return None
        stored = _read(path)
        if stored.pop("format", None) != FORMAT:
            raise WeightsError(
                f"{path} is the state of a run by another version of l2caf, from which it cannot go on exactly: "
                "choose another folder for the result, or remove that file to start anew.",
                field="out",
            )
        try:
            stored["log"] = [LogLine(**line) for line in stored["log"]]
            state = cls(**{**stored, "best_line": LogLine(**stored["best_line"])})
            differing = Identity({**settings, **contents}).differing({**state.settings, **state.contents})
        except (KeyError, TypeError, AttributeError) as error:
            raise unreadable(folder, error) from error
        if differing:
            raise refused(folder, differing)
        return state


def _read(path: Path) -> dict[str, Any]:
    try:
        return dict(torch.load(path, map_location="cpu", weights_only=True))
    except Exception as error:  # on unknown bytes the reader raises anything
        raise unreadable(path.parent, error) from error


def unreadable(folder: Path, error: Exception) -> WeightsError:
    """The error of a state that is damaged."""
    return WeightsError(
        f"{folder / FILE} cannot be read ({type(error).__name__}), so the run cannot go on from it: "
        "remove it to start anew, or copy it again.",
        field="out",
    )
