"""What changes while a network is trained: weights, their running mean, and the state of a run on disk."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import FileError, WeightsError
from ..files import write_whole

State = dict[str, Tensor]


def weights_of(module: nn.Module) -> State:
    """A copy of the parameters, on the processor. Buffers do not move."""
    return {name: value.detach().cpu().clone() for name, value in module.named_parameters()}


def put(weights: Mapping[str, Tensor], module: nn.Module) -> None:
    """Set the parameters."""
    with torch.no_grad():
        for name, value in module.named_parameters():
            value.copy_(weights[name])


class Averages:
    """A running mean of the weights, and the same drawn back towards where they started.

    What a backbone knew of other classes is lost little by little as its weights leave their start. Half-way between
    start and goal a network keeps nearly all of the old and has most of the new (Wortsman et al., CVPR 2022).

    decay   of the running mean, an iteration; smaller at first, so that the start does not linger by accident
    keep    share of the start in what is shipped: 0 is the running mean itself, 1 would be the start
    """

    def __init__(self, start: State, *, decay: float, keep: float) -> None:
        self.start = start
        self.mean = {name: value.clone() for name, value in start.items()}
        self.decay = decay
        self.keep = keep

    def add(self, module: nn.Module, iteration: int) -> None:
        """Take in the weights after an iteration."""
        rate = 1 - min(self.decay, (1 + iteration) / (10 + iteration))
        for name, value in module.named_parameters():
            self.mean[name].lerp_(value.detach().to(self.mean[name].device), rate)

    def shipped(self) -> State:
        """keep · start + (1 − keep) · mean."""
        return {name: torch.lerp(value, self.start[name], self.keep) for name, value in self.mean.items()}


def all_finite(weights: Mapping[str, Tensor]) -> bool:
    """Whether there is no NaN and no infinity among them."""
    return all(bool(value.isfinite().all()) for value in weights.values())


FILE = "resume.pt"


@dataclass
class RunState:
    """What a run has come to after `iteration` iterations.

    settings   all that decides what the run does; another run must not go on from here
    moving     the weights being trained; `mean` their running mean
    best       those to be shipped, as they were at the best measurement so far; `best_log` is its line
    log        one line a measurement
    losses     one number an iteration
    seconds    that training took so far, over all interruptions
    """

    settings: dict[str, Any]
    iteration: int = 0
    moving: State = field(default_factory=dict)
    mean: State = field(default_factory=dict)
    optimizer: dict[str, Any] = field(default_factory=dict)
    best: State = field(default_factory=dict)
    best_log: dict[str, Any] = field(default_factory=dict)
    since_best: int = 0
    log: list[dict[str, Any]] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    random: torch.Tensor = field(default_factory=torch.get_rng_state)
    seconds: float = 0.0
    ended: str = ""

    def save(self, folder: Path) -> None:
        """Write it, whole or not at all."""
        self.random = torch.get_rng_state()
        with write_whole(folder / FILE) as temporary:
            torch.save(vars(self), temporary)

    @classmethod
    def load(cls, folder: Path, settings: Mapping[str, Any]) -> RunState | None:
        """The state that is there, if it is one of the same run; None where there is none."""
        path = folder / FILE
        if not path.is_file():
            return None
        try:
            state = cls(**torch.load(path, map_location="cpu", weights_only=True))
        except Exception as error:  # on unknown bytes the reader raises anything
            raise WeightsError(
                f"{path} cannot be read ({type(error).__name__}), so the run cannot go on from it: "
                "remove it to start anew, or copy it again."
            ) from error
        wanted = json.loads(json.dumps(settings))
        differing = sorted(key for key in {*wanted, *state.settings} if wanted.get(key) != state.settings.get(key))
        if differing:
            raise FileError(
                f"{folder} holds a run with another {', '.join(differing)}: "
                "choose another --out, or remove that folder."
            )
        torch.set_rng_state(state.random)
        return state
