"""What reaches the terminal: results on stdout, everything else on stderr."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from ..files import json_text, printable
from ..progress import silent
from .rows import Rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from ..progress import Progress

WIDE = 200  # columns where nobody's window sets a limit

_kept: ContextVar[TextIO | None] = ContextVar("_kept", default=None)
_shared: ContextVar[Console | None] = ContextVar("_shared", default=None)
_quiet: ContextVar[bool] = ContextVar("_quiet", default=False)
_made: ContextVar[Path | None] = ContextVar("_made", default=None)


def fail(sentence: str, *, as_json: bool) -> int:
    """Say in one line what was wrong, and return the exit code for it."""
    if as_json:
        print_json({"error": sentence})
    else:
        _say("error", sentence, style="bold red")
    return 2


def warn(sentence: str) -> None:
    """Say what went wrong with a part while the rest goes on."""
    _say("skipped", sentence)


def _say(kind: str, sentence: str, *, style: str = "yellow") -> None:
    from rich.text import Text

    console = errors()
    words = Text.assemble((f"{kind}:", style), f" {printable(sentence)}")
    # A window breaks lines within words; whoever reads a file or a pipe wants one line.
    console.print(words, highlight=False, soft_wrap=not console.is_terminal)


def say_left_out(sentence: str) -> None:
    """Say what was not done, and why."""
    _note("left out", sentence)


def say_assumed(assumed: Mapping[str, str]) -> None:
    """Say what was taken for granted about a network, by what it is about."""
    for words in assumed.values():
        _note("assumed", words)


def say_note(sentence: str) -> None:
    """Say what a person should know when reading the result."""
    _note("note", sentence)


def _note(kind: str, sentence: str) -> None:
    if not _quiet.get():
        _say(kind, sentence)


def made(path: Path) -> None:
    """Remember the picture or the page that a command made for people: `--open` shows it."""
    _made.set(path)


@contextmanager
def manners(*, quiet: bool, opening: bool) -> Iterator[None]:
    """Run a command with nothing printed but errors, if `quiet`; show what it made when it went well, if `opening`."""
    tokens = _quiet.set(quiet), _made.set(None)
    try:
        yield
        shown = _made.get()
        if opening and shown is not None:
            import typer

            if typer.launch(str(shown)):
                say_note(f"no program here opens {shown}.")
    finally:
        _quiet.reset(tokens[0])
        _made.reset(tokens[1])


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
    return Output(width=None if sys.stdout.isatty() else WIDE, markup=False, emoji=False, quiet=_quiet.get())


def _lines(text: str) -> str:
    """A text whose lines are the only ones: names of files in it move no cursor and change no colour."""
    return "\n".join(map(printable, text.split("\n")))


def errors() -> Console:
    """Where progress and complaints go: beside a bar, by way of its console, which else would be written over."""
    from rich.console import Console

    return _shared.get() or Console(stderr=True, emoji=False)


def table(columns: Iterable[str], rows: Iterable[Iterable[str]], *, right: Iterable[str] = ()) -> Rows:
    """A plain table whose cells are shown to the last letter."""
    return Rows.of(columns, rows, right)


@contextmanager
def bar(stage: str, total: int | None = None) -> Iterator[Progress]:
    """Show on stderr how far the work is; what it lends is told.

    On a terminal one bar, which a new stage takes over; elsewhere a plain line every few seconds.
    """
    from .bar import drawn, lines

    if _quiet.get():
        yield silent
        return
    console = errors()
    show = drawn if console.is_terminal and not console.is_dumb_terminal else lines
    shared = _shared.set(console)
    try:
        with show(console, stage, total) as progress:
            yield progress
    finally:
        _shared.reset(shared)
