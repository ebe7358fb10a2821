"""What a recipe is: settings, checked, that can be made into a job. Read by help texts, so nothing heavy is imported.

@dataclass(frozen=True)
class Classifier(Recipe):
    name = "classifier"
    lr: float = option(1e-3, "Learning rate.")
    ...
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from ..datasets import Dataset
    from ..progress import Progress
    from .job import Job

NETWORK, STEPS, BATCH = "The network", "How it learns", "What a batch is"


@dataclass(frozen=True)
class Limits:
    """When things happen, in iterations.

    iterations      at most so many
    measure_every   between two measurements
    patience        measurements without a better score before training ends; better is more than by `worth`
    warmup          until the learning rates have risen to their full size

    Of many scores on few pictures the largest is a matter of luck, hence `worth`: the longer it is waited for, the
    more is forgotten.
    """

    iterations: int
    measure_every: int = 25
    patience: int = 6
    worth: float = 0.01
    warmup: int = 0


class Recipe(ABC):
    """What is trained, and how: a frozen dataclass whose fields made by `option` are those of its command.

    name    key in RECIPES
    layout  the one kind of data that it learns from; empty where its command is told the layout
    demo    whether there is data to try it with, which the program makes itself
    about   what its command's help says after the first line

    >>> @dataclass(frozen=True)
    ... class Jam(Recipe):
    ...     name = "jam"
    ...     sugar: float = option(0.5, "How much of it is sugar.")
    ...
    ...     @property
    ...     def limits(self):
    ...         return Limits(10)
    ...
    ...     def prepare(self, data, fabric, progress): ...
    >>> Jam(sugar=0.7)
    Jam(sugar=0.7)
    """

    name: ClassVar[str]
    layout: ClassVar[str] = ""
    demo: ClassVar[bool] = False
    about: ClassVar[str] = ""

    @property
    @abstractmethod
    def limits(self) -> Limits: ...

    @abstractmethod
    def prepare(self, data: Dataset, fabric: Any, progress: Progress) -> Job:
        """Read what has to be read and build what is trained; refuse here what cannot be done."""


def option(default: Any, words: str, *, panel: str = STEPS) -> Any:
    """A field of a recipe that people may set; a field without this is for callers of the library alone."""
    return field(default=default, metadata={"help": words, "panel": panel})
