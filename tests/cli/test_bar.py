"""How far the work is, at any width and without a terminal: count and time left, nothing cut, no flood."""

from __future__ import annotations

import io
import threading

import pytest
from rich.console import Console

from l2caf.cli import bar, terminal

LONG = "loading /home/someone/networks/a-rather-long-name-of-a-folder/embedding.safetensors"
NUMBERS = {"loss": 0.12345, "R@1": 93.94, "R@1 best": 94.93}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def shown(pace: bar.Pace, width: int) -> list[str]:
    """The lines that a window of this width gets, as text."""
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=width)
    with console.capture() as captured:
        console.print(pace)
    return [line.rstrip() for line in captured.get().splitlines()]


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("stage", ["explaining", "preparing pictures of the training classes", LONG])
@pytest.mark.parametrize("numbers", [{}, NUMBERS])
def test_nothing_is_cut_at_any_width(width: int, stage: str, numbers: dict[str, float]) -> None:
    clock = Clock()
    pace = bar.Pace(stage, 5000, clock=clock)
    clock.now = 100.0
    pace.tell(stage, 4500, 5000, numbers)
    lines = shown(pace, width)
    assert all(len(line) <= width for line in lines)
    whole = "".join(lines).replace(" ", "")
    for words in (stage, "4500/5000", "0:11 left", *(["loss 0.123", "R@1 93.9", "R@1 best 94.9"] if numbers else [])):
        assert words.replace(" ", "") in whole
    assert "…" not in whole
    assert whole.count("━") + whole.count("╸") >= 9  # of ten or more


def test_a_wide_window_has_it_on_one_line() -> None:
    pace = bar.Pace("explaining", 500)
    pace.tell("explaining", 5, 500)
    assert len(shown(pace, 60)) == 1


def test_the_time_left_counts_down_between_two_calls_and_forgets_what_was_done_before() -> None:
    clock = Clock()
    pace = bar.Pace("loading", clock=clock)
    pace.tell("explaining", 300, 500)  # a run that was resumed
    assert pace.line() == "explaining: 300/500, 0:00 so far"
    clock.now = 10.0
    pace.tell("explaining", 310, 500)
    assert pace.line() == "explaining: 310/500, 3:10 left"
    clock.now = 20.0
    assert pace.line() == "explaining: 310/500, 3:00 left"
    pace.tell("writing", 2, None)
    assert pace.line() == "writing: 2 done, 0:00 so far"
    clock.now = 3700.0 + 20
    assert pace.line() == "writing: 2 done, 1:01:40 so far"


def test_work_that_takes_longer_than_was_reckoned_is_not_said_to_be_over() -> None:
    clock = Clock()
    pace = bar.Pace("timing", clock=clock)
    pace.tell("timing", 0, 20)
    clock.now = 10.0
    pace.tell("timing", 18, 20)
    assert pace.line() == "timing: 18/20, 0:01 left"
    clock.now = 40.0
    assert pace.line() == "timing: 18/20, 0:40 so far"


class Log(io.StringIO):
    """A file that tells when a line has come."""

    def __init__(self) -> None:
        super().__init__()
        self.came = threading.Event()

    def write(self, text: str) -> int:
        written = super().write(text)
        self.came.set()
        return written


def test_without_a_terminal_lines_come_while_the_work_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    monkeypatch.setattr(terminal, "errors", lambda: Console(file=log, width=40))
    monkeypatch.setattr(bar, "EVERY", 0.01)
    with terminal.bar(LONG, 500) as progress:
        assert log.came.wait(60)  # nobody has told anything yet
        progress("explaining", 3, 500)
        while "explaining" not in log.getvalue():
            log.came.clear()
            assert log.came.wait(60)
    assert log.getvalue().startswith(f"{LONG}: 0/500, 0:00 so far\n")  # no window, so no line is broken
    assert "explaining: 3/500" in log.getvalue()
    over = log.getvalue()
    assert threading.active_count() == 1 or "l2caf progress" not in {one.name for one in threading.enumerate()}
    assert log.getvalue() == over


def test_what_is_skipped_does_not_run_into_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    monkeypatch.setattr("sys.stderr", written)
    with terminal.bar("explaining", 10) as progress:
        assert terminal.errors() is terminal.errors()  # the bar's own: it is drawn anew below what is said
        progress("explaining", 3, 10)
        terminal.warn("it is broken")
    assert "skipped:" in written.getvalue()
    assert terminal.errors() is not terminal.errors()


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_results_are_never_broken_within_a_word(width: int) -> None:
    heads = ["file", "predicted", "layer", "solver", "outcome", "picture"]
    cells = [
        [f"photos/{name}.png", "espresso, 95%", "bn2", "Exact", "exact", f"{name}-l2caf.png"]
        for name in ("cat-in-the-mountains-2026", "7")
    ]
    console = Console(file=io.StringIO(), color_system=None, width=width)
    with console.capture() as captured:
        console.print(terminal.table(heads, cells))
    lines = captured.get().splitlines()
    assert all(len(line) <= width for line in lines)
    words = " ".join(lines).split()
    for word in " ".join(sum(cells, heads[1:])).split():
        assert word in words
