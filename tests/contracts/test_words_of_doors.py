"""Below the doors nobody speaks of options: a message says its field, and each door has its own word for it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import l2caf

ROOT = Path(l2caf.__file__).parent
DOORS = ("cli", "web")
OPTION = re.compile(r"(?<![\w-])--[a-z]")
HELP = ("about",)  # a recipe's text for its command, with examples


def spoken(tree: ast.Module) -> Iterator[str]:
    """The texts of a module that are neither docstrings nor help texts."""
    silent: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            silent.add(id(node.value))
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id in HELP:
            silent.add(id(node.value))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in silent:
            yield node.value


def test_no_message_below_the_doors_names_an_option() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {text}"
        for path in sorted(ROOT.rglob("*.py"))
        if path.relative_to(ROOT).parts[0] not in DOORS
        for text in spoken(ast.parse(path.read_text("utf-8")))
        if OPTION.search(text)
    }
    assert found == set()


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        ('raise ValueError(f"{top}: give another --top")', {": give another --top"}),
        ('REMEDY = "give --weights FILE"', {"give --weights FILE"}),
        ('"""l2caf explain --top 3"""', set()),
        ('about: str = "l2caf train --out x"', set()),
        ('x = "one -- and two"', set()),
    ],
)
def test_what_counts_as_naming_one(source: str, texts: set[str]) -> None:
    assert {text for text in spoken(ast.parse(source)) if OPTION.search(text)} == texts
