"""Many photographs: stopped at any moment and started again no picture is drawn twice, and a page lists them all."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import pytest
from PIL import Image

import squares
from l2caf.cli.app import run as cli
from l2caf.errors import Cancelled
from l2caf.rendering.style import Style
from l2caf.tasks.explain import PAGE, ExplainRequest, explain_photographs
from l2caf.tasks.network_choice import NetworkChoice
from l2caf.tasks.question import Question

COUNT = 9


@pytest.fixture
def made(tmp_path: Path) -> Path:
    return squares.folder(tmp_path / "made", count=COUNT)


@pytest.fixture
def request_of(made: Path, tmp_path: Path) -> ExplainRequest:
    network = NetworkChoice(f"{made / 'bright.py'}:build", device="cpu")
    return ExplainRequest([made], tmp_path / "out", network, npy=True, batch=2)


def drawn(out: Path) -> dict[str, int]:
    """The pictures and maps that stand in their places, each with the time at which it was written."""
    return {path.name: path.stat().st_mtime_ns for path in out.glob("[!.]*.[pn][np][gy]")}


def stopped_at(request: ExplainRequest, number: int) -> None:
    def stop(stage: str, done: int, total: int | None, numbers: Mapping[str, float] = {}) -> None:
        if stage == "explaining" and done >= number:
            raise Cancelled("enough")

    with pytest.raises(Cancelled):
        explain_photographs(request, progress=stop)


class Page(HTMLParser):
    """The links of a page, and its cards as text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.cards: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.links.append(os.fsdecode(unquote_to_bytes(str(dict(attrs)["href"]))))
        if ("class", "card") in attrs:
            self.cards.append("")

    def handle_data(self, data: str) -> None:
        if self.cards:
            self.cards[-1] += f" {data}"


def test_stopped_again_and_again_it_draws_each_picture_once(request_of: ExplainRequest) -> None:
    whole = explain_photographs(replace(request_of, out=request_of.out.with_name("whole")))
    before: dict[str, int] = {}
    for number in (1, 4, 5, 8):
        stopped_at(request_of, number)
        now = drawn(request_of.out)
        assert before.items() <= now.items()
        assert number <= len(now) // 2 < COUNT
        before = now
    counts: list[int] = []
    result = explain_photographs(request_of, progress=lambda stage, done, *_: counts.append(done))
    assert counts[-1] == COUNT
    assert before.items() <= drawn(request_of.out).items()
    assert {path.name for path in request_of.out.iterdir()} == {*drawn(request_of.out), PAGE}
    assert len(drawn(request_of.out)) == 2 * COUNT

    def document(found: Any, out: Path) -> Any:
        return json.loads(json.dumps(found.as_dict()).replace(str(out), "OUT"))

    assert document(result, request_of.out) == document(whole, request_of.out.with_name("whole"))
    for path in request_of.out.glob("*.n*"):
        assert path.read_bytes() == (request_of.out.with_name("whole") / path.name).read_bytes()


def test_a_run_that_is_over_is_drawn_anew(request_of: ExplainRequest) -> None:
    explain_photographs(request_of)
    before = drawn(request_of.out)
    explain_photographs(request_of)
    assert not before.items() & drawn(request_of.out).items()


def test_what_changed_meanwhile_is_drawn_again(request_of: ExplainRequest, made: Path) -> None:
    stopped_at(request_of, 6)
    out = request_of.out
    Image.open(made / "00.png").transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(made / "00.png")
    (out / "01-l2caf.png").unlink()
    (out / "02-l2caf.npy").write_bytes(b"")
    before = drawn(out)
    explain_photographs(request_of)
    after = drawn(out)
    kept = {name for name in before if before[name] == after[name]}
    assert kept == {f"{number:02}-l2caf.{ending}" for number in (3, 4, 5) for ending in ("png", "npy")}


@pytest.mark.parametrize(
    "other",
    [
        {"question": Question(top=2)},
        {"style": Style(contours=True)},
        {"bare": True},
        {"network": "layer"},
        {"network": "code"},
    ],
)
def test_another_question_takes_nothing_over(request_of: ExplainRequest, made: Path, other: dict[str, Any]) -> None:
    stopped_at(request_of, 6)
    before = drawn(request_of.out)
    if other.get("network") == "code":
        (made / "bright.py").write_text(squares.BUILDER.replace("nn.AvgPool2d(8)", "nn.MaxPool2d(8) "))
        other = {}
    elif "network" in other:
        other = {"network": replace(request_of.network, layer="pool")}
        request_of = replace(request_of, network=replace(request_of.network, layer="mean"))
    result = explain_photographs(replace(request_of, **other))
    names = {path.name for one in result.written for path in one.pictures}
    after = drawn(request_of.out)
    assert len(result.written) == COUNT
    assert not {(name, before[name]) for name in names & before.keys()} & after.items()
    if not names & before.keys():  # a question of its own has names of its own, and the others stay
        assert before.items() <= after.items()


def test_an_older_picture_of_the_same_name_is_not_taken_for_the_new_one(
    request_of: ExplainRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the note and the picture's way to its place, with the picture of another run standing there."""
    explain_photographs(replace(request_of, style=Style(contours=True)))
    before = drawn(request_of.out)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            explain_photographs(request_of)
    assert list(request_of.out.glob(".explained-*"))
    assert drawn(request_of.out) == before
    explain_photographs(request_of)
    assert not before.items() & drawn(request_of.out).items()


@pytest.mark.parametrize(
    "content", [b"rubbish\n\xff\n", b"7\n[]\n{}\n", b'{"row": {"image": "00-l2caf"}, "drawn": {}}\n']
)
def test_damaged_notes_only_cost_time(request_of: ExplainRequest, content: bytes) -> None:
    stopped_at(request_of, 6)
    (notes,) = request_of.out.glob(".explained-*")
    before = drawn(request_of.out)
    notes.write_bytes(content + notes.read_bytes()[:-20])
    assert len(explain_photographs(request_of).written) == COUNT
    after = drawn(request_of.out)
    assert len(after) == 2 * COUNT
    assert len(before.items() & after.items()) == len(before) - 2  # but for the last, whose line was cut


def test_one_photograph_leaves_its_picture_alone(request_of: ExplainRequest, made: Path) -> None:
    explain_photographs(replace(request_of, images=[made / "00.png"], npy=False))
    assert [path.name for path in request_of.out.iterdir()] == ["00-l2caf.png"]


STALLING = """
import os, time
from pathlib import Path
def stall():
    out, most = Path(os.environ["STALL_IN"]), int(os.environ["STALL_AT"])
    while len(list(out.glob("[!.]*.png"))) >= most:
        time.sleep(0.05)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kills", [(1, 4, 8), pytest.param((1, 2, 4, 6, 8), marks=pytest.mark.endurance)])
def test_killed_several_times_no_picture_is_drawn_twice(made: Path, tmp_path: Path, kills: tuple[int, ...]) -> None:
    slow = STALLING + squares.BUILDER.replace("def forward(self, x):", "def forward(self, x):\n        stall()")
    (made / "bright.py").write_text(slow)
    out, moments = tmp_path / "out", random.Random(0)
    arguments = ["explain", str(made), "--network", f"{made / 'bright.py'}:build", "--batch", "1", "--out", str(out)]
    before: dict[str, int] = {}
    for most in kills:
        environment = {**os.environ, "STALL_IN": str(out), "STALL_AT": str(most)}
        process = subprocess.Popen(
            [sys.executable, "-m", "l2caf", *arguments], env=environment, stdout=subprocess.DEVNULL
        )
        while len(drawn(out)) < most:
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(moments.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        process.wait()
        now = drawn(out)
        assert before.items() <= now.items()
        before = now
    done = subprocess.run(
        [sys.executable, "-m", "l2caf", *arguments, "--json"],
        env={**os.environ, "STALL_IN": str(out), "STALL_AT": "99"},
        capture_output=True,
        check=True,
    )
    assert before.items() <= drawn(out).items()
    assert len(drawn(out)) == len(json.loads(done.stdout)["images"]) == COUNT
    assert len(Page(out / PAGE).links) == COUNT


class TestCommand:
    def call(self, made: Path, out: Path, *more: str) -> int:
        return cli(["explain", *more, "--network", f"{made / 'bright.py'}:build", "--out", str(out)])

    def test_the_page_lists_pictures_classes_outcomes_and_what_was_skipped(
        self, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        strange = made / os.fsdecode("caf\xe9 #1?%41 '<b>.png".encode("latin-1"))
        strange.write_bytes((made / "00.png").read_bytes())
        (made / "bad.png").write_text("no picture")
        assert self.call(made, tmp_path / "out", str(made), "--top", "2") == 1
        assert str(tmp_path / "out" / PAGE) in capsys.readouterr().out
        page = Page(tmp_path / "out" / PAGE)
        assert sorted(Path(link).name for link in page.links) == sorted(drawn(tmp_path / "out"))
        assert all((tmp_path / "out" / link).is_file() for link in page.links)
        assert len(page.cards) == COUNT + 1
        for words in page.cards:
            assert "class " in words
            assert "exact" in words
        assert "1 files could not be read" in page.cards[-1]
        assert "bad.png" in page.cards[-1]

    def test_exit_codes(self, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert self.call(made, tmp_path / "out", str(made)) == 0
        (made / "bad.png").write_text("no picture")
        for more in ((), ("--json",)):
            assert self.call(made, tmp_path / "out", str(made), *more) == 1
            assert self.call(made, tmp_path / "out", str(made / "00.png"), "none.png", *more) == 1
            assert self.call(made, tmp_path / "out", str(made / "bad.png"), *more) == 2
            assert self.call(made, tmp_path / "out", str(made / "bad.png"), "none.png", *more) == 2
        capsys.readouterr()
        assert cli(["explain", "--help"]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert "Exit code: 0 if all were explained, 1 if some were skipped, 2 if none could be." in said
