"""A page of every command with its options, written when the book is built, from what `--help` says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import typer
from docstrings import marked

from l2caf.cli.app import app as command_line

PAGE = "reference/commands.rst"
_MARKUP = re.compile(r"\[/?(?:bold|dim|/)\]")


def plain(text: str) -> str:
    return _MARKUP.sub("", text).strip()


def commands(group: Any, words: str = "l2caf") -> Iterator[tuple[str, Any]]:
    """Each command by all of its words."""
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if hasattr(command, "list_commands"):
            yield from commands(command, f"{words} {name}")
        else:
            yield f"{words} {name}", command


def about(text: str) -> Iterator[str]:
    """The help of a command; what keeps its lines there keeps them here."""
    for paragraph in re.split(r"\n\s*\n", text):
        if paragraph.lstrip("\n ").startswith("\b"):
            heading, _, lines = plain(paragraph.replace("\b", "")).partition("\n")
            yield from (f"{heading}::", "", *(f"    {line}" for line in lines.splitlines()), "")
        else:
            yield from (marked(" ".join(plain(paragraph).split())), "")


def named(parameter: Any) -> str:
    names = ", ".join(dict.fromkeys([*parameter.opts, *parameter.secondary_opts]))
    if parameter.param_type_name == "argument":
        return f"``{parameter.metavar or parameter.name.upper()}``"
    value = "" if getattr(parameter, "is_flag", False) else f" {parameter.metavar or 'VALUE'}"
    return f"``{names}{value}``"


def explained(parameter: Any) -> str:
    default = parameter.default
    said = plain(parameter.help or "")
    shown = parameter.show_default and default not in (None, False, True, (), [], "") and not callable(default)
    return marked(f"{said} Default: `{default}`." if shown else said)


def page() -> str:
    lines = ["The command line", "================", "", "What ``l2caf COMMAND -h`` shows, for all commands.", ""]
    for words, command in commands(typer.main.get_command(command_line)):
        lines += [words, "-" * len(words), "", *about(command.help or "")]
        listed = [one for one in command.params if not one.hidden and one.name != "help"]
        for panel, several in groupby(listed, key=lambda one: one.rich_help_panel or "Arguments and options"):
            lines += [f"*{panel}*", ""]
            for parameter in several:
                lines += [named(parameter), f"    {explained(parameter)}", ""]
    return "\n".join(lines)


def write(app: Any) -> None:
    file, text = Path(app.srcdir) / PAGE, page()
    if not file.exists() or file.read_text(encoding="utf-8") != text:  # else Sphinx would read it again
        file.write_text(text, encoding="utf-8")


def setup(app: Any) -> dict[str, Any]:
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
