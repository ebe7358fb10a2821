"""Train a network by a recipe, on the part of a dataset that training may see."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import datasets
from ..errors import InputError
from ..progress import Progress, silent
from ..training.recipe import Recipe

if TYPE_CHECKING:
    from ..datasets import Dataset
    from ..training.job import TrainingResult


@dataclass(frozen=True)
class TrainRequest:
    """A recipe, and what it learns from.

    dataset, root  a layout by name, and where it lies
    out            the folder for the network and its log; a run that was stopped goes on there
    precision      as Lightning Fabric has it; None for that of the device
    minutes        at most, from the first iteration on
    """

    recipe: Recipe
    dataset: str
    root: Path
    out: Path
    device: str = "auto"
    precision: str | None = None
    minutes: float | None = None

    def __post_init__(self) -> None:
        if self.dataset not in datasets.trainable():
            raise InputError(
                f"A {self.recipe.name} network cannot be trained on {self.dataset!r}: take one of "
                f"{datasets.trainable().words()}.",
                field="dataset",
            )

    def read(self) -> Dataset:
        """The pictures; of a layout with halves the first, since the second is what results are measured on."""
        if datasets.trainable()[self.dataset].halves:
            return datasets.read(self.dataset, self.root, half="first")
        return datasets.read(self.dataset, self.root)


@dataclass(frozen=True)
class Trained:
    """What the training came to."""

    result: TrainingResult

    def as_dict(self) -> dict[str, Any]:
        """The document: all of log.json but the losses, one for each iteration."""
        logged = {name: value for name, value in self.result.as_dict().items() if name != "losses"}
        return {"checkpoint": str(self.result.checkpoint), **logged}


def train_network(request: TrainRequest, *, progress: Progress = silent) -> Trained:
    """Train, or go on with the run that `out` holds."""
    data = request.read()

    from ..training.trainer import follow

    result = follow(
        request.recipe,
        data,
        request.out,
        device=request.device,
        precision=request.precision,
        minutes=request.minutes,
        progress=progress,
    )
    return Trained(result)
