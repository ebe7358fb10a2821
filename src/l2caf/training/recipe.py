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
from typing import TYPE_CHECKING, Any, ClassVar, Literal

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
    falls           from each of these on the learning rates are a tenth of what they were

    Of many scores on few pictures the largest is a matter of luck, hence `worth`: the longer it is waited for, the
    more is forgotten.
    """

    iterations: int
    measure_every: int = 25
    patience: int = 6
    worth: float = 0.01
    warmup: int = 0
    falls: tuple[int, ...] = ()

    def rate(self, iteration: int) -> float:
        """What the learning rates are multiplied by.

        >>> [round(Limits(100, warmup=2, falls=(50,)).rate(iteration), 3) for iteration in (0, 1, 49, 50)]
        [0.5, 1.0, 1.0, 0.1]
        """
        risen = min(1.0, (iteration + 1) / max(1, self.warmup))
        return risen * 0.1 ** sum(iteration >= fall for fall in self.falls)


class Recipe(ABC):
    """What is trained, and how: a frozen dataclass whose fields made by `option` are those of its command.

    name    key in RECIPES
    layout  the one kind of data that it learns from; empty where its command is told the layout
    unseen  what training leaves for measuring: the second half of the "classes", or the test "pictures" of all of them
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
    unseen: ClassVar[Literal["classes", "pictures"]] = "classes"
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
