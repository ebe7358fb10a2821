"""Train a network by a recipe, on the part of a dataset that training may see."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import datasets
from ..errors import InputError
from ..files import write_json
from ..progress import Progress, silent
from ..training.recipe import Recipe
from .moving_shapes import KINDS, write_clips

if TYPE_CHECKING:
    from ..datasets import Dataset
    from ..training.job import TrainingResult


DEMO_CLIPS = 40  # of each kind, where the program makes its own


@dataclass(frozen=True)
class TrainRequest:
    """A recipe, and what it learns from.

    dataset, root  a layout by name, and where it lies; of a recipe with a layout of its own, that one
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
        if self.recipe.layout:
            if self.dataset != self.recipe.layout:
                raise InputError(
                    f"A {self.recipe.name} network is trained on {self.recipe.layout}, not on {self.dataset!r}.",
                    field="dataset",
                )
        elif self.dataset not in datasets.trainable():
            raise InputError(
                f"A {self.recipe.name} network cannot be trained on {self.dataset!r}: take one of "
                f"{datasets.trainable().words()}.",
                field="dataset",
            )

    def read(self) -> Dataset:
        """What is not kept for measuring: the first half of the classes, or the official training pictures."""
        entry = None if self.recipe.layout else datasets.trainable()[self.dataset]
        if entry is not None and self.recipe.unseen == "pictures":
            return datasets.read(self.dataset, self.root, **({"split": "train"} if entry.splits else {}))
        if entry is not None and entry.halves:
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


def demo_data(out: Path, *, progress: Progress = silent) -> Path:
    """Make clips of moving shapes in the folder of a run, unless they are there, and give the folder they are in."""
    folder = out / "clips"
    done = folder / ".made.json"  # what a run that was stopped left behind is made again
    if not done.is_file():
        total = DEMO_CLIPS * len(KINDS)
        for number, _ in enumerate(write_clips(folder, each=DEMO_CLIPS), start=1):
            progress("making clips", number, total)
        write_json(done, {"kinds": KINDS, "each": DEMO_CLIPS})
    return folder


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
