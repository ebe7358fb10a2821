"""The commands by name, each imported when it is called, and what happens when one of them fails."""

from __future__ import annotations

import importlib
import re
import sys
import traceback
from difflib import get_close_matches
from typing import Annotated, Any

import typer

from ..errors import Cancelled, L2cafError
from . import common, terminal

STOPPED = 130
COMMANDS = (
    "explain",
    "compare",
    "animate",
    "video",
    "networks",
    "layers",
    "demo",
    "evaluate",
    "difference",
    "sanity",
    "atlas",
    "time",
    "match",
    "train",
    "export",
    "serve",
    "reproduce",
)
# Called alone these work, or say what they miss; the others show their help.
NEED_NOTHING = ("networks", "demo", "evaluate", "sanity", "time", "serve")
# These make a picture or a page, which they name to `terminal.made`.
OPEN = ("explain", "compare", "animate", "video", "demo", "evaluate", "sanity", "atlas", "time", "match", "reproduce")
ALIASES = {"select": "output", "part": "split"}

# Typer brings its own copy of click in some versions and uses the installed one in others.
_UsageError: Any = typer.BadParameter.__base__
_ClickError: Any = _UsageError.__base__


class _Commands(common.Commands):
    """Finds a command in the module of its name."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f".{cmd_name}", __package__)
        if hasattr(module, "group"):  # a command with commands of its own
            return typer.main.get_command(module.group)
        return common.made(cmd_name, module.command, opens=cmd_name in OPEN, alone_is_help=cmd_name not in NEED_NOTHING)


app = typer.Typer(cls=_Commands, rich_markup_mode="rich", no_args_is_help=True, context_settings=common.SETTINGS)


def _version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        typer.echo(f"l2caf {__version__}")
        raise typer.Exit


def _l2caf(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """See where a neural network looks.

    \b
    [bold]Examples[/bold]
    l2caf demo
    l2caf explain photo.jpg
    l2caf explain holiday/ --top 3 --out heatmaps
    l2caf compare photo.jpg --class "tiger cat"
    l2caf animate photo.jpg
    l2caf video clip.mp4
    l2caf layers timm:resnet50
    l2caf serve
    """


app.callback(help=common.unbroken(_l2caf.__doc__ or ""))(_l2caf)


def run(arguments: list[str] | None = None) -> int:
    """Run a command.

    Exit codes: 0 well; 1 some photographs were skipped by explain, or a fault of ours, with a traceback; 2 bad usage or
    input; 130 stopped by the user.
    """
    given = sys.argv[1:] if arguments is None else arguments
    if "--json" not in given:
        return _run(given, as_json=False)
    with terminal.stdout_for_json():
        try:
            return _run(given, as_json=True)
        except Exception as error:  # noqa: BLE001 - a fault of ours: a machine still gets its document
            traceback.print_exc()
            terminal.print_json({"error": f"{type(error).__name__}: {error}"})
            return 1


def _run(given: list[str], *, as_json: bool) -> int:
    try:
        result = app(args=list(given), prog_name="l2caf", standalone_mode=False)
    except Cancelled:
        return _stopped(as_json=as_json)
    except L2cafError as error:
        return terminal.fail(said(error, given), as_json=as_json)
    except (typer.Abort, KeyboardInterrupt):  # some versions of typer raise on Ctrl-C, others return a number
        return _stopped(as_json=as_json)
    except typer.Exit as leaving:
        return leaving.exit_code
    except _ClickError as error:
        hint = _hint(error)
        message = _message(error, given)
        if not message:  # help was shown instead
            return 2
        return terminal.fail(message + ("" if message.endswith(("?", ".")) else ".") + hint, as_json=as_json)
    if result == STOPPED:
        return _stopped(as_json=as_json)
    return result if isinstance(result, int) else 0


def said(error: L2cafError, given: list[str]) -> str:
    """An error in the words of the command line: the field at fault goes by the option that sets it.

    >>> from l2caf.errors import InputError
    >>> said(InputError("0 asks for no class: give 1 or more.", field="top"), ["explain", "photo.jpg", "--top", "0"])
    '--top: 0 asks for no class: give 1 or more.'
    >>> said(InputError("Choose the part to explain with output=, by its key."), ["explain", "photo.jpg"])
    'Choose the part to explain with --output, by its key.'
    """
    words = _words(given)
    # Where the library names an argument in its remedy, `output=`, the command line has an option.
    sentence = re.sub(r"\b(\w+)=(?=[\s,.;:]|$)", lambda named: words.get(named[1], named[0]), str(error))
    word = words.get(error.field or "")
    return f"{word}: {sentence}" if word else sentence


def _words(given: list[str]) -> dict[str, str]:
    """What the command that was given calls its settings, by the parameter's name and by the option's."""
    command: Any = typer.main.get_command(app)
    for name in given:
        if not hasattr(command, "get_command"):
            break
        command = command.get_command(None, name) or command
    words: dict[str, str] = {}
    for parameter in command.params:
        if parameter.param_type_name == "option":
            option = max(parameter.opts, key=len)  # --top, not -k
            words |= {parameter.name: option, option.lstrip("-").replace("-", "_"): option}
        else:
            word = parameter.metavar or parameter.name.upper()
            words |= {parameter.name: word, word.lower(): word}  # several are a list by name, and one by metavar
    # What a part of the library calls by another name than the command line.
    return words | {theirs: words[ours] for theirs, ours in ALIASES.items() if ours in words}


def _message(error: Any, given: list[str]) -> str:
    """What click says, in one line; for an option that there is not, the one that was meant."""
    wrong = getattr(error, "option_name", "")
    known = sorted({word for word in _words(given).values() if word.startswith("-")})
    if wrong and wrong not in known:
        # Without the dashes, which all of them have in common.
        words = {word.lstrip("-"): word for word in known}
        near = get_close_matches(wrong.lstrip("-"), words, n=1)
        return f"There is no option {wrong}" + (f": did you mean {words[near[0]]}?" if near else ".")
    return str(error.format_message()).strip().replace("\n", " ")


def _stopped(*, as_json: bool) -> int:
    terminal.fail("Stopped. Every file that was written is whole.", as_json=as_json)
    return STOPPED


def _hint(error: Any) -> str:
    context = getattr(error, "ctx", None)
    return f" See '{context.command_path} --help'." if context is not None else ""
