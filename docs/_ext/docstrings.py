"""Docstrings as they are written here, which is plain text with Markdown's backticks, for Sphinx to read.

What stands in columns (a name, two spaces or more, what it is) becomes a list of definitions, what is indented stays
as it is, and a public name in backticks leads to its page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import l2caf

_COLUMN = re.compile(r"(\S+(?: \S+){0,3}) {2,}(\S.*)")
_CODE = re.compile(r"``?([^`]+)``?")
# What numpy's aliases stand for, which nobody would write; and back to what was written.
_ALIASES = (
    (re.compile(r"~?[\w.]*_Buffer \| .*?_NestedSequence\[complex \| bytes \| str\]"), "ArrayLike"),
    (
        re.compile(r"~?(?:numpy\.)?ndarray\[tuple\[~?(?:typing\.)?Any, \.\.\.\], ~?(?:numpy\.)?dtype\[(.+?)\]\]"),
        r"NDArray[\1]",
    ),
)
_SPECIAL = re.compile(r"([*|\\]|(?<=\w)_(?!\w))")


def converted(lines: list[str]) -> list[str]:
    """A docstring in reStructuredText."""
    made: list[str] = []
    for paragraph in paragraphs(lines):
        made += [*shown(paragraph), ""]
    return made


def paragraphs(lines: list[str]) -> Iterator[list[str]]:
    for blank, group in groupby(lines, key=lambda line: not line.strip()):
        if not blank:
            yield list(group)


def shown(lines: list[str]) -> list[str]:
    """One paragraph: an example, a formula, a list, columns, or plain text."""
    if lines[0].lstrip().startswith(">>>"):
        return lines
    if lines[0].startswith(" "):  # a formula or a program
        return ["::", "", *(f"    {line}" for line in lines)]
    if lines[0].startswith("- "):
        return [marked(line) for line in lines]
    if any(line.startswith("- ") for line in lines):
        place = next(number for number, line in enumerate(lines) if line.startswith("- "))
        return [*map(marked, lines[:place]), "", *map(marked, lines[place:])]
    if _COLUMN.fullmatch(lines[0]) and all(line.startswith(" ") or _COLUMN.fullmatch(line) for line in lines):
        return [part for line in lines for part in defined(line)]
    return [marked(line.strip() if number else line) for number, line in enumerate(lines)]


def defined(line: str) -> Iterator[str]:
    if found := _COLUMN.fullmatch(line):
        yield marked(found[1] if "`" in found[1] else f"`{found[1]}`")
        yield f"    {marked(found[2])}"
    else:
        yield f"    {marked(line.strip())}"


def marked(line: str) -> str:
    """Code as code, public names as links, and nothing else with a meaning that it was not given."""
    made, end = [], 0
    for found in _CODE.finditer(line):
        made += [_SPECIAL.sub(r"\\\1", line[end : found.start()]), code(found[1])]
        end = found.end()
        if line[end : end + 1].isalnum():  # no word may follow at once
            made.append("\\ ")
    return "".join([*made, _SPECIAL.sub(r"\\\1", line[end:])])


def code(text: str) -> str:
    name = text.removeprefix("l2caf.")
    return f":py:obj:`{text} <l2caf.{name}>`" if name in l2caf.__all__ else f"``{text}``"


def process(app: Any, what: str, name: str, owner: Any, options: Any, lines: list[str]) -> None:
    lines[:] = converted(lines)


def shorten(app: Any, what: str, name: str, owner: Any, options: Any, signature: str, returns: str) -> Any:
    """The types of arrays by the names that the code gives them."""
    shown = [signature, returns]
    for pattern, alias in _ALIASES:
        shown = [text and pattern.sub(alias, text) for text in shown]
    return tuple(shown)


def setup(app: Any) -> dict[str, Any]:
    app.connect("autodoc-process-docstring", process)
    app.connect("autodoc-process-signature", shorten)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
