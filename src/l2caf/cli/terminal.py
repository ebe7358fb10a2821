"""What reaches the terminal: results on stdout, everything else on stderr."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TextIO

from ..files import json_text, printable
from ..progress import NONE, silent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console
    from rich.table import Table

    from ..progress import Progress

WIDE = 200  # columns where nobody's window sets a limit

_kept: ContextVar[TextIO | None] = ContextVar("_kept", default=None)


def fail(sentence: str, *, as_json: bool) -> int:
    """Say in one line what was wrong, and return the exit code for it."""
    if as_json:
        print_json({"error": sentence})
    else:
        console = errors()
        console.print("[bold red]error:[/bold red] ", end="")
        console.print(printable(sentence), markup=False, highlight=False, soft_wrap=True)
    return 2


def warn(sentence: str) -> None:
    """Say what went wrong with a part while the rest goes on."""
    console = errors()
    console.print("[yellow]skipped:[/yellow] ", end="")
    console.print(printable(sentence), markup=False, highlight=False, soft_wrap=True)


def say_left_out(sentence: str) -> None:
    """Say what was not done, and why."""
    console = errors()
    console.print("[yellow]left out:[/yellow] ", end="")
    console.print(sentence, markup=False, highlight=False, soft_wrap=True)


def say_assumed(assumed: Mapping[str, str]) -> None:
    """Say what was taken for granted about a network, by what it is about."""
    console = errors()
    for words in assumed.values():
        console.print("[yellow]assumed:[/yellow] ", end="")
        console.print(words, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def stdout_for_json() -> Iterator[None]:
    """Keep stdout for the one document; what others print (the user's own network, say) goes to stderr."""
    kept = _kept.set(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _kept.reset(kept)


def print_json(document: Any) -> None:
    """Print the one document that a machine reads."""
    stream = _kept.get() or sys.stdout
    stream.write(json_text(document, indent=2, encoding=stream.encoding or "utf-8"))


def output() -> Console:
    """Where results go."""
    from rich.console import Console

    if isinstance(sys.stdout, io.TextIOWrapper):  # as stderr is: a name that the encoding does not have is no error
        sys.stdout.reconfigure(errors="backslashreplace")

    class Output(Console):
        def print(self, *objects: Any, **options: Any) -> None:
            super().print(*(_lines(one) if isinstance(one, str) else one for one in objects), **options)

    # A file or a pipe has no width of its own, and a cut-off file name helps nobody. Brackets and colons in names are
    # neither markup nor emoji.
    return Output(width=None if sys.stdout.isatty() else WIDE, markup=False, emoji=False)


def _lines(text: str) -> str:
    """A text whose lines are the only ones: names of files in it move no cursor and change no colour."""
    return "\n".join(map(printable, text.split("\n")))


def errors() -> Console:
    """Where progress and complaints go."""
    from rich.console import Console

    return Console(stderr=True, emoji=False)


def table(columns: Iterable[str], rows: Iterable[Iterable[str]], *, right: Iterable[str] = ()) -> Table:
    """A plain table whose cells are shown to the last letter."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    right = set(right)
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        made.add_column(column, overflow="fold", justify="right" if column in right else "left")
    for row in rows:
        made.add_row(*(Text(printable(cell)) for cell in row))
    return made


@contextmanager
def bar(stage: str, total: int | None = None) -> Iterator[Progress]:
    """Show one bar on stderr, where there is a terminal; what it lends is told how far the work is.

    A new stage takes the bar over; numbers so far stand behind it.
    """
    console = errors()
    if not console.is_terminal:
        yield silent
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[numbers]}", markup=False),
    )
    with Bar(*columns, console=console, transient=True) as shown:
        task, now = shown.add_task(stage, total=total, numbers=""), stage

        def tell(stage: str, done: int, total: int | None, numbers: Mapping[str, float] = NONE) -> None:
            nonlocal task, now
            if stage != now:  # the time that is left cannot be told from the speed of other work
                shown.remove_task(task)
                task, now = shown.add_task(stage, total=total, numbers=""), stage
            words = "  ".join(f"{name} {number:.3g}" for name, number in numbers.items())
            shown.update(task, completed=done, total=total, numbers=words)

        yield tell
