"""`Work`: what is done to a block of pictures, as plain data; `Built`: the same with its network, ready to run.

A `Built` is what runs here, in another process or on a cluster: a block of samples goes in, rows come out, in the order
of the samples whatever fits in memory at once.
"""

from __future__ import annotations

import abc
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from ..errors import NetworkError
from ..files import hash_of
from .contents import code_version, entries_of
from .rows import FILES, Identity, Row, Unusable

if TYPE_CHECKING:
    from ..datasets.dataset import Sample
    from ..datasets.loading import Batch, Prepares, PreparesFiles
    from ..networks.model import Model


class Record(Protocol):
    """Anything that says itself as a row."""

    def as_dict(self) -> Row: ...


@dataclass(frozen=True)
class Block:
    """Samples that are done together; its number among all blocks orders the rows."""

    number: int
    samples: tuple[Sample, ...]


def blocks_of(samples: Sequence[Sample], size: int) -> list[Block]:
    """Cut samples into blocks, which depend on nothing but their order."""
    starts = range(0, len(samples), size)
    return [Block(number, tuple(samples[start : start + size])) for number, start in enumerate(starts)]


class Work(abc.ABC):
    """One kind of work; a frozen dataclass of JSON values, so that it pickles and can be told from another.

    key        in the table WORKS
    stage      what is being done, for whoever watches
    pictures   whether it draws on what the network sees, so that the pictures have to be kept with the inputs

    >>> @dataclass(frozen=True)
    ... class Count(Work):
    ...     key, stage = "count", "counting"
    ...     start: int = 0
    ...
    ...     def seen_by(self, model):
    ...         return model.preprocess
    ...
    ...     def measure(self, model, batch): ...
    ...
    ...     def counted(self, row): ...
    >>> Count(3).settings()
    {'start': 3}
    """

    key: ClassVar[str]
    stage: ClassVar[str]
    pictures: ClassVar[bool] = False

    def settings(self) -> Row:
        """Its fields as JSON values."""
        made: Row = json.loads(json.dumps(asdict(self)))  # type: ignore[call-overload]  # each is a dataclass
        return made

    def on(self, model: Model) -> Built:
        """The same with its network."""
        return Built(self, model)

    @abc.abstractmethod
    def seen_by(self, model: Model) -> Prepares | PreparesFiles:
        """How pictures reach the network."""

    @abc.abstractmethod
    def measure(self, model: Model, batch: Batch) -> Sequence[Record]:
        """Do the work on a batch of pictures of one size, at least one; records in their order."""

    @abc.abstractmethod
    def counted(self, row: Row) -> tuple[str, bool] | None:
        """The name of a score so far, and whether this row adds to it; None where it counts for none."""


@dataclass(frozen=True)
class Built:
    """Work and the network that it is done with. A network in hand, which has no name to be loaded by, starts here."""

    work: Work
    model: Model

    def __call__(self, block: Block) -> list[Row]:
        """Read a block and do it."""
        from ..datasets.loading import batches

        (batch,) = batches(block.samples, self.view, len(block.samples), workers=0, pictures=self.work.pictures)
        return self.rows(batch)

    def build(self) -> Built:
        """Itself: whoever runs a specification can run this too."""
        return self

    @property
    def plan(self) -> Work:
        """The work without its network, as of a specification."""
        return self.work

    @property
    def view(self) -> Prepares | PreparesFiles:
        """How pictures reach the network."""
        return self.work.seen_by(self.model)

    def rows(self, batch: Batch) -> list[Row]:
        """Do a batch that was read: first the files that could not be, then the others."""
        bad = [Unusable(bad.name, bad.message).as_dict() for bad in batch.bad]
        return bad + [row for part in batch.alike() for row in self._fitting(part)]

    def identity(self, samples: Sequence[Sample]) -> Identity:
        """Weights, files, code and settings: what must be the same for a run to be gone on with."""
        return Identity(
            {
                "work": self.work.key,
                "network": self.model.name,
                **self.model.contents,
                "class names": hash_of(self.model.class_names),
                "code": {"l2caf": code_version(), **self.model.libraries},
                **self.work.settings(),
                FILES: entries_of(samples),
            }
        )

    def _fitting(self, batch: Batch) -> list[Row]:
        """The rows of a batch; one that does not fit in memory is halved until it does."""
        try:
            return [record.as_dict() for record in self.work.measure(self.model, batch)]
        except Exception as error:
            if not out_of_memory(error):
                raise
            if len(batch) == 1:
                raise NetworkError(
                    f"{self.model.name} does not fit in memory with one picture: take a smaller network or another"
                    " device."
                ) from error
        # Outside of the handler, since the error holds on to what filled the memory.
        middle = len(batch) // 2
        return self._fitting(batch.part(0, middle)) + self._fitting(batch.part(middle, len(batch)))


def out_of_memory(error: BaseException | None) -> bool:
    """Whether an error, or what it came from, says that memory ran out; the devices say it in their own ways."""
    torch: Any = sys.modules.get("torch")  # an exported network runs without it
    kinds = (MemoryError,) if torch is None else (MemoryError, torch.cuda.OutOfMemoryError)
    while error is not None:
        if isinstance(error, kinds):
            return True
        said = str(error) if isinstance(error, RuntimeError) else ""
        if any(words in said for words in ("out of memory", "can't allocate memory", "not enough memory")):
            return True
        error = error.__cause__
    return False
