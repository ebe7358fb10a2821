"""The loop of every run: blocks of pictures in, ordered rows out, through an executor; finished blocks are on disk."""

from __future__ import annotations

import abc
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError
from ..progress import Progress, silent
from .lock import alone_in
from .rows import Identity, Row, RowFile
from .spec import RunSpec
from .work import Block, Built, Work, blocks_of

if TYPE_CHECKING:
    from ..datasets.dataset import Sample

SIZE = 16  # pictures in a block


class Executor(abc.ABC):
    """Where blocks are done.

    >>> class OneByOne(Executor):
    ...     def map(self, spec, blocks):
    ...         built = spec.build()
    ...         for block in blocks:
    ...             yield block.number, built(block)
    >>> list(OneByOne().map(Built(None, None), []))
    []
    """

    @abc.abstractmethod
    def map(self, spec: RunSpec | Built, blocks: Sequence[Block]) -> Iterator[tuple[int, list[Row]]]:
        """Yield the number and the rows of each block, in the order of the blocks."""


@dataclass(frozen=True)
class Local(Executor):
    """In this process; the pictures of the next block are read while the network is at work.

    workers   threads that read; 0: none, None: one per processor, four at most
    """

    workers: int | None = 2

    def map(self, spec: RunSpec | Built, blocks: Sequence[Block]) -> Iterator[tuple[int, list[Row]]]:
        from ..datasets.loading import read_ahead

        built = spec.build()
        stretches = [block.samples for block in blocks]
        reading = read_ahead(stretches, built.view, workers=self.workers, pictures=spec.plan.pictures)
        with closing(reading) as batches:
            for block, batch in zip(blocks, batches, strict=True):
                yield block.number, built.rows(batch)


@dataclass
class Tally:
    """The scores so far, in per cent, by name."""

    work: Work
    right: dict[str, int] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)

    def add(self, rows: Iterable[Row]) -> None:
        for row in rows:
            counted = self.work.counted(row)
            if counted is not None:
                name, right = counted
                self.right[name] = self.right.get(name, 0) + right
                self.seen[name] = self.seen.get(name, 0) + 1

    def scores(self) -> dict[str, float]:
        return {name: 100 * self.right[name] / seen for name, seen in self.seen.items()}


def run(
    spec: RunSpec | Built,
    samples: Sequence[Sample],
    out: Path,
    *,
    size: int = SIZE,
    executor: Executor | None = None,
    progress: Progress = silent,
) -> RowFile:
    """Do every sample and leave the rows in `out`; a run that was stopped is resumed.

    Another run in that folder is refused, whether it is over or still going on.
    """
    blocks = _checked_blocks(samples, size)
    with alone_in(out):
        file = RowFile.open(out, Identity({"batch": size, **spec.identity(samples).parts}))
        _go_on(file, spec, blocks, executor, progress)
    return file


def _go_on(
    file: RowFile, spec: RunSpec | Built, blocks: Sequence[Block], executor: Executor | None, progress: Progress
) -> None:
    work = spec.plan
    tally = Tally(work)
    tally.add(file.rows())
    left = blocks[file.blocks_done :]
    total = sum(len(block.samples) for block in blocks)
    done = total - sum(len(block.samples) for block in left)
    progress(work.stage, done, total, tally.scores())
    with closing(_mapped(executor, spec, left)) as found:
        for block, (number, rows) in zip(left, found, strict=True):
            file.append(number, rows)
            tally.add(rows)
            done += len(block.samples)
            progress(work.stage, done, total, tally.scores())


def rows_of(
    spec: RunSpec | Built,
    samples: Sequence[Sample],
    *,
    size: int = SIZE,
    executor: Executor | None = None,
    progress: Progress = silent,
) -> Iterator[list[Row]]:
    """The same with nothing on disk: yield the rows of each block."""
    blocks = _checked_blocks(samples, size)
    work = spec.plan
    done = 0
    with closing(_mapped(executor, spec, blocks)) as found:
        for block, (_, rows) in zip(blocks, found, strict=True):
            yield rows
            done += len(block.samples)
            progress(work.stage, done, len(samples))


def _mapped(
    executor: Executor | None, spec: RunSpec | Built, blocks: Sequence[Block]
) -> Generator[tuple[int, list[Row]], None, None]:
    """The executor's rows, or none without asking it where nothing is left: no network is loaded for that."""
    if blocks:
        yield from (executor or Local()).map(spec, blocks)


def _checked_blocks(samples: Sequence[Sample], size: int) -> list[Block]:
    if size < 1:
        raise InputError(f"Batches of {size} images were asked for: give 1 or more.", field="batch")
    return blocks_of(samples, size)
