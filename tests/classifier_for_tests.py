"""A second recipe, as small as can be: stripes by their class, with all that makes resuming hard.

Batch norm in training mode, dropout, and pictures turned by the random numbers of numpy and Python. Run as a program it
trains in a folder, and can be told to kill itself on the way.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from l2caf.datasets import Dataset
from l2caf.images import open_image
from l2caf.progress import NONE, Progress
from l2caf.training.batches import share_of
from l2caf.training.curves import Score
from l2caf.training.job import Job
from l2caf.training.recipe import Limits, Recipe, option
from l2caf.training.state import Averages, state_of


class Classifier(nn.Sequential):
    def __init__(self, classes: int) -> None:
        super().__init__(
            nn.Conv2d(3, 8, 5, padding=2),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Dropout2d(0.2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, classes),
        )


@dataclass(frozen=True)
class ClassifierRecipe(Recipe):
    """`seed` decides the start, and is no setting of the run: one that goes on must not depend on it."""

    name: ClassVar[str] = "classifier"
    about: ClassVar[str] = "For tests."

    rate: float = option(0.05, "Learning rate of everything.")
    iterations: int = option(12, "At most.")
    measure_every: int = 5
    patience: int = 100
    averaged: bool = True
    seed: int = 0

    @property
    def limits(self) -> Limits:
        return Limits(self.iterations, self.measure_every, self.patience, warmup=4)

    def prepare(self, data: Dataset, fabric: Any, progress: Progress) -> ClassifierJob:
        for seed in (torch.manual_seed, np.random.seed, random.seed):
            seed(self.seed + fabric.global_rank)
        pictures = np.stack([np.asarray(open_image(sample.path), np.float32) for sample in data.samples])
        labels = np.array([sample.label for sample in data.samples])
        progress("reading", len(pictures), len(pictures))
        module = Classifier(int(labels.max()) + 1)
        wrapped, optimizer = fabric.setup(module, torch.optim.SGD(module.parameters(), lr=self.rate, momentum=0.9))
        return ClassifierJob(
            fabric=fabric,
            module=module,
            optimizer=optimizer,
            score=Score("accuracy"),
            settings={"rate": self.rate, "shape": pictures.shape},
            averages=Averages(state_of(module), decay=0.9, keep=0.1) if self.averaged else None,
            wrapped=wrapped,
            pictures=torch.from_numpy(pictures).permute(0, 3, 1, 2) / 128 - 1,
            labels=torch.from_numpy(labels),
        )


@dataclass(kw_only=True, eq=False)
class ClassifierJob(Job):
    wrapped: Any
    pictures: Tensor
    labels: Tensor

    def loss(self, iteration: int) -> Tensor:
        self.wrapped.train()
        batch = np.random.default_rng(iteration).permutation(len(self.labels))[:16]
        mine = share_of(batch, rank=self.fabric.global_rank, processes=self.fabric.world_size)
        pictures = self.pictures[mine]
        if np.random.rand() < 0.5:  # noqa: NPY002 - the shared generator is what is to be resumed
            pictures = pictures.flip(-1)
        pictures = pictures * random.uniform(0.9, 1.1)
        return nn.functional.cross_entropy(self.wrapped(pictures), self.labels[mine])

    def measure(self) -> Mapping[str, float]:
        self.wrapped.eval()
        torch.rand(3)  # what is drawn here must not be missing elsewhere
        with torch.no_grad():
            found = self.module(self.pictures).argmax(dim=1)
        return {"accuracy": float((found == self.labels).float().mean()), "guess": 1 / 4}

    def save(self, out: Path, run: Mapping[str, Any]) -> Path:
        torch.save(self.module.state_dict(), out / "classifier.pt")
        (out / "run.json").write_text(json.dumps(run))
        return out / "classifier.pt"


def stopping(at: int, stop: Any) -> Progress:
    """Do something to the run when so many iterations are done."""

    def progress(stage: str, done: int, total: int | None, numbers: Mapping[str, float] = NONE) -> None:
        if (stage, done) == ("training", at):
            stop()

    return progress


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def cancel() -> None:
    from l2caf.errors import Cancelled

    raise Cancelled("enough")


if __name__ == "__main__":
    from l2caf.datasets import read
    from l2caf.errors import Cancelled
    from l2caf.training.trainer import follow

    pictures, out, how, at = sys.argv[1:]
    torch.set_num_threads(1)  # as in the tests: sums of other parts round otherwise
    stop = {"kill": kill, "cancel": cancel}.get(how, lambda: None)
    recipe = replace(ClassifierRecipe(), seed=int(how == "on"))
    try:
        follow(recipe, read("folder", Path(pictures)), Path(out), device="cpu", progress=stopping(int(at), stop))
    except (Cancelled, KeyboardInterrupt) as reason:
        sys.stdout.write(f"stopped {type(reason).__name__}\n")
