"""How far the work is: a bar on a terminal, a plain line now and then elsewhere; always count and time left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING

from ..files import printable
from ..progress import NONE

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from ..progress import Progress

EVERY = 10.0  # seconds between two lines where there is no terminal: a log is read later, and must not be flooded
LONGEST = 40  # columns of the bar
SHORTEST = 10  # with fewer left beside the words, the words get a line of their own


class Pace:
    """What is being done, how much of it, and how long the rest takes at the speed so far."""

    def __init__(self, stage: str, total: int | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.start(stage, 0, total)

    def start(self, stage: str, done: int, total: int | None) -> None:
        """Begin a stage; what a run had done before it was resumed says nothing about the speed."""
        self.stage, self.done, self.total, self.numbers = stage, done, total, ""
        self.began = self.told = self._clock()
        self.before = done

    def tell(self, stage: str, done: int, total: int | None, numbers: Mapping[str, float] = NONE) -> None:
        if stage != self.stage:  # the time that is left cannot be told from the speed of other work
            self.start(stage, done, total)
        self.done, self.total, self.told = done, total, self._clock()
        self.numbers = "  ".join(f"{name} {number:.3g}" for name, number in numbers.items())

    @property
    def count(self) -> str:
        if self.total is not None:
            return f"{self.done}/{self.total}"
        return f"{self.done} done" if self.done else ""

    @property
    def time(self) -> str:
        """How long it takes yet, where that can be told, else how long it has taken."""
        now = self._clock()
        new = self.done - self.before
        if self.total is None or new <= 0:
            return f"{_clocked(now - self.began)} so far"
        left = (self.told - self.began) / new * (self.total - self.done) - (now - self.told)
        if left < 0:  # the work has become slower than what it was reckoned from
            return f"{_clocked(now - self.began)} so far"
        return f"{_clocked(left)} left"

    def line(self) -> str:
        """All of it as plain words.

        >>> Pace("reading", 10, clock=lambda: 0.0).line()
        'reading: 0/10, 0:00 so far'
        """
        counted = ", ".join(filter(None, [self.count, self.time, self.numbers]))
        return f"{printable(self.stage)}: {counted}"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """One line where the window is wide enough for it; else words and numbers have lines of their own."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        words, numbers = Text(printable(self.stage), overflow="fold"), Text(self.numbers, overflow="fold")
        state = [Text(one, style="cyan", no_wrap=True) for one in (self.count, self.time) if one]
        room = options.max_width - sum(2 + part.cell_len for part in state)
        beside = room - words.cell_len - (2 + numbers.cell_len if self.numbers else 0) - 2
        alone = beside < SHORTEST
        bar = ProgressBar(
            total=None if self.total is None else max(self.total, 1),
            completed=self.done if self.total else 0,
            pulse=self.total is None,
            width=max(1, min(LONGEST, room if alone else beside)),
        )
        row = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
        if not alone:
            row.add_row(words, bar, *state, *([numbers] if self.numbers else []))
            yield row
            return
        row.add_row(bar, *state)
        yield words
        yield row
        if self.numbers:
            yield numbers


def _clocked(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@contextmanager
def drawn(console: Console, stage: str, total: int | None) -> Iterator[Progress]:
    """The bar on a terminal; it is gone when the work is over."""
    from rich.live import Live

    pace = Pace(stage, total)
    with Live(pace, console=console, transient=True, refresh_per_second=8):
        yield pace.tell


@contextmanager
def lines(console: Console, stage: str, total: int | None) -> Iterator[Progress]:
    """A line every few seconds, whether or not the work has come further; none where it is over before."""
    pace, over = Pace(stage, total), Event()

    def speak() -> None:
        while not over.wait(EVERY):
            console.print(pace.line(), markup=False, highlight=False, soft_wrap=True)

    speaker = Thread(target=speak, name="l2caf progress", daemon=True)
    speaker.start()
    try:
        yield pace.tell
    finally:
        over.set()
        speaker.join()
