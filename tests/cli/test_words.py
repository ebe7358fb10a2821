"""Words of the command line: options for fields, and choices from the tables."""

from __future__ import annotations

import re

import pytest

from l2caf.cli.app import run, said
from l2caf.errors import InputError
from l2caf.methods.table import FILTERS, METHODS, SOLVERS


@pytest.mark.parametrize(
    ("given", "field", "word"),
    [
        ("explain a.png", "top", "--top"),
        ("explain a.png", "classes", "--class"),
        ("explain a.png", "class", "--class"),
        ("compare a.png", "class", "--class"),
        ("explain a.png", "images", "IMG"),
        ("train retrieval folder x", "held_out", "--held-out"),
        ("train retrieval folder x", "root", "DIR"),
    ],
)
def test_a_field_goes_by_the_option_that_sets_it(given: str, field: str, word: str) -> None:
    assert said(InputError("Wrong.", field=field), given.split()) == f"{word}: Wrong."


@pytest.mark.parametrize("field", [None, "contrast", "nothing"])
def test_a_field_that_the_command_does_not_have_is_left_out(field: str | None) -> None:
    assert said(InputError("Wrong.", field=field), ["explain", "a.png"]) == "Wrong."


@pytest.mark.parametrize("command", ["explain", "evaluate", "sanity"])
def test_help_names_every_method(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    assert run([command, "--help"]) == 0
    words = set(re.findall(r"[\w-]+", capsys.readouterr().out))
    assert set(METHODS) <= words
    if command == "explain":
        assert set(FILTERS) | set(SOLVERS) <= words


@pytest.mark.parametrize("command", ["explain", "evaluate", "train retrieval", "train video", "reproduce"])
def test_help_says_how_to_resume(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    assert run([*command.split(), "--help"]) == 0
    assert "run the same command again to resume" in " ".join(capsys.readouterr().out.lower().split())
