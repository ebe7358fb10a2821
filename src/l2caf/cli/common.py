"""What every command has: -h, --quiet, --open where it makes a picture or a page, help that fits the window."""

from __future__ import annotations

import functools
import inspect
import re
import shutil
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Annotated, Any

import typer
import typer.core

from ..errors import InputError
from . import options, terminal

PANELS = 80  # columns that a window needs
_TAG = re.compile(r"\[/?(?:bold|dim)\]")
SETTINGS = {"help_option_names": ["-h", "--help"]}

_QUIET = inspect.Parameter(
    "quiet",
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[
        bool, typer.Option("--quiet", "-q", help="Print nothing but errors.", rich_help_panel=options.WRITE)
    ],
)
_OPEN = inspect.Parameter(
    "opening",
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[
        bool, typer.Option("--open", help="Open the picture or the page when done.", rich_help_panel=options.WRITE)
    ],
)


def dressed(function: Callable[..., int], *, opens: bool = False) -> Callable[..., int]:
    """The function of a command with what all commands have."""
    own = inspect.signature(function, eval_str=True).parameters.values()
    parameters = [*own, _OPEN, _QUIET] if opens else [*own, _QUIET]

    @functools.wraps(function)
    def command(*, quiet: bool = False, opening: bool = False, **given: Any) -> int:
        with terminal.manners(quiet=quiet, opening=opening):
            return function(**given)

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    command.__doc__ = unbroken(function.__doc__ or "")
    return command


def unbroken(text: str) -> str:
    """A help text without the line breaks of its source; a paragraph that begins with \\b keeps them, as in click.

    >>> unbroken("One\\nline.\\n\\n\\b\\ntwo\\nlines")
    'One line.\\n\\n\\x08two\\nlines'
    """
    paragraphs = re.split(r"\n\s*\n", inspect.cleandoc(text))
    return "\n\n".join(
        "\b" + one.lstrip("\b\n") if one.startswith("\b") else " ".join(one.split()) for one in paragraphs
    )


class _Helped:
    """Help in panels where there is room for them; in a narrow window their last column would be cut."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        if shutil.get_terminal_size().columns < PANELS:
            this: Any = self
            this.rich_markup_mode = None
            this.help = _TAG.sub("", this.help or "").replace("\b", "\b\n")
            for parameter in this.params:
                parameter.help = _TAG.sub("", getattr(parameter, "help", None) or "")
        super().format_help(ctx, formatter)  # type: ignore[misc]


class _Command(_Helped, typer.core.TyperCommand):
    pass


class Commands(_Helped, typer.core.TyperGroup):
    """A group that suggests the nearest of its commands for one that there is not."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        names = self.list_commands(ctx)
        if not ctx.resilient_parsing and not args[0].startswith("-") and args[0] not in names:
            raise InputError(f"There is no command {args[0]!r}: {nearest(args[0], names)}")
        return super().resolve_command(ctx, args)


def nearest(word: str, words: Iterable[str]) -> str:
    """What was meant by a word that there is not, as the end of a sentence.

    >>> nearest("mach", ["match", "train"]), nearest("x", ["match", "train"])
    ("did you mean 'match'?", 'take one of match, train.')
    """
    known = list(words)
    near = get_close_matches(word, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"take one of {', '.join(known)}."


def made(name: str, function: Callable[..., int], *, opens: bool = False, alone_is_help: bool = True) -> Any:
    """The command of a name."""
    app = typer.Typer(add_completion=False, rich_markup_mode="rich")
    register = app.command(name, cls=_Command, no_args_is_help=alone_is_help, context_settings=SETTINGS)
    register(dressed(function, opens=opens))
    return typer.main.get_command(app)
