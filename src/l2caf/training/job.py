"""`Job`: what the trainer has to know of a training, and `TrainingResult`: what it came to."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from .curves import Score
from .recipe import Limits
from .state import Averages, LogLine


@dataclass(kw_only=True, eq=False)
class Job(ABC):
    """A training, ready to go; a recipe prepares it.

    fabric      device, precision and processes
    module      what is trained; its parameters and buffers are the state of the run
    optimizer   of the module's parameters, as `fabric.setup` gave it
    score       decides which network is the best, and when it gets no better
    settings    all that decides what the run does, as JSON values; another run must not go on from its state
    averages    a running mean of the weights, which is then measured and shipped in place of the weights themselves
    before      the same score of other networks, such as the start, to compare with
    bad         pictures that were left out, and why
    notes       what else should stand in the log, as JSON values
    limits      where the recipe could only tell them once all was prepared; else those of the recipe hold
    contents    hashes of what the run starts from beside the pictures, such as weights; another run must not go on

    >>> sorted(Job.__abstractmethods__)  # what a job of one's own gives
    ['loss', 'measure', 'save']
    """

    fabric: Any
    module: nn.Module
    optimizer: Any
    score: Score
    settings: Mapping[str, Any]
    averages: Averages | None = None
    before: Mapping[str, float] = field(default_factory=dict)
    bad: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)
    contents: Mapping[str, str] = field(default_factory=dict)
    limits: Limits | None = None

    @abstractmethod
    def loss(self, iteration: int) -> Tensor:
        """One number with a gradient, a function of the module, the iteration and the random numbers alone."""

    @abstractmethod
    def measure(self) -> Mapping[str, float]:
        """Numbers of the module as it is now, without gradients; the score is missing where nothing can tell it."""

    @abstractmethod
    def save(self, out: Path, run: Mapping[str, Any]) -> Path:
        """Write the module as it is now into a folder; `run` is what the run came to, to be kept with it."""


class Ended(StrEnum):
    """Why a run ended."""

    ITERATIONS = "iterations"
    MINUTES = "minutes"
    NO_BETTER = "no better"
    NON_FINITE = "non_finite"


@dataclass(frozen=True)
class TrainingResult:
    """Where the network is, and what was measured; all of it also stands in log.json."""

    checkpoint: Path
    score: Score
    settings: Mapping[str, Any]
    ended: Ended
    iterations: int
    seconds: float
    before: Mapping[str, float]
    best: LogLine
    curve: tuple[LogLine, ...]
    losses: tuple[float, ...]
    bad: Mapping[str, str]
    notes: Mapping[str, Any]
    worth: float = 0.0  # by how much a score has to be higher for its network to be saved

    @property
    def highest(self) -> LogLine:
        """The measurement with the highest score; the network that is saved may be an earlier one."""
        key = self.score.key
        return max(
            self.curve, key=lambda line: -math.inf if line.numbers.get(key) is None else line.numbers[key] or 0.0
        )

    @property
    def choice(self) -> str:
        """Which network was saved, and why, in one sentence."""
        key, scale, short = self.score.key, self.score.scale, self.score.short
        best, highest = self.best.numbers.get(key), self.highest.numbers.get(key)
        saved = f"The network of iteration {self.best.iteration} is saved"
        if best is None or highest is None:
            return f"{saved}: nothing was set aside to compare with."
        if highest <= best:
            start = ", the start: no measurement was better" if self.best.iteration == 0 else f", the best by {short}"
            return f"{saved}{start}."
        return (
            f"{saved} ({short} {scale * best:.1f}): iteration {self.highest.iteration} measured {scale * highest:.1f},"
            f" but a later one takes its place only if it is better by more than {scale * self.worth:g}, since of many"
            " scores on few pictures the largest is luck, and the more is trained the more is forgotten."
        )

    def summary(self) -> dict[str, Any]:
        """All but the curves, as JSON values."""
        return {
            "settings": dict(self.settings),
            "ended": str(self.ended),
            "iterations": self.iterations,
            "seconds": round(self.seconds, 1),
            "before": dict(self.before),
            "best": self.best.as_dict(),
            "highest": self.highest.as_dict(),
            "choice": self.choice,
            **self.notes,
        }

    def as_dict(self) -> dict[str, Any]:
        """The document of a run."""
        curve = [line.as_dict() for line in self.curve]
        return {**self.summary(), "bad": dict(self.bad), "curve": curve, "losses": list(self.losses)}
