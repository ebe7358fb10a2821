"""The one bar: what it shows, and that work can be stopped through it."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from l2caf.cli import app, terminal
from l2caf.errors import Cancelled


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """A terminal whose every letter is kept."""
    written = io.StringIO()
    monkeypatch.setattr(terminal, "errors", lambda: Console(file=written, force_terminal=True, width=120))
    return written


def test_it_shows_stage_count_and_numbers(screen: io.StringIO) -> None:
    with terminal.bar("starting") as progress:
        progress("reading [all]", 3, 10)
        progress("reading [all]", 7, 10, {"loss": 0.12345, "R@1": 45.678})
    shown = screen.getvalue()
    for words in ("reading [all]", "7/10", "loss 0.123  R@1 45.7"):
        assert words in shown


def test_a_new_stage_takes_the_bar_over(screen: io.StringIO) -> None:
    with terminal.bar("reading", 10) as progress:
        progress("reading", 10, 10)
        screen.truncate(0)
        progress("training", 2, None)
    last = screen.getvalue()
    assert "training" in last
    assert "2 done" in last
    assert "reading" not in last


def test_where_there_is_no_terminal_nothing_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    with terminal.bar("reading", 2) as progress:
        progress("reading", 1, 2)
        progress("writing", 1, None)
    assert capsys.readouterr() == ("", "")


def test_cancelled_work_ends_like_an_interrupted_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def cancelled(**_: object) -> None:
        raise Cancelled("enough")

    monkeypatch.setattr(app, "app", cancelled)
    assert app.run(["explain"]) == app.STOPPED
    assert "Stopped" in capsys.readouterr().err
