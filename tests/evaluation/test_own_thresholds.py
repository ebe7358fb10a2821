"""Held-out pictures choose a threshold for each method; it is never chosen on what is measured."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import squares
from l2caf.cli.app import run
from l2caf.errors import InputError
from l2caf.evaluation.own_thresholds import best_place, own_thresholds
from l2caf.evaluation.scores import MethodTable

SWEEP = (0.1, 0.2, 0.4)


def table(names: str, *hits: tuple[int, ...]) -> MethodTable:
    """One picture for each letter, and for each whether its box is good at the three thresholds."""
    iou = np.array(hits, np.float64)
    count = len(names)
    return MethodTable(
        list(names), [1] * count, np.array([[1]] * count), iou, iou, np.ones(count, bool), np.full(count, 0.5)
    )


def test_each_method_gets_the_threshold_that_held_out_pictures_like_best() -> None:
    held = {"cam": table("ab", (1, 0, 0), (1, 1, 0)), "l2caf": table("ab", (0, 0, 1), (0, 0, 1))}
    measured = {"cam": table("cd", (0, 1, 1), (1, 1, 1)), "l2caf": table("cd", (0, 0, 1), (0, 1, 1))}
    found = own_thresholds(held, measured, SWEEP, fixed=0.2, measures=("gt_known", "pointing"), chosen_on="two")
    assert {name: one.threshold for name, one in found.methods.items()} == {"cam": 0.1, "l2caf": 0.4}
    # On the measured pictures 10 % is worse for CAM than 20 %: what held-out pictures chose stays chosen.
    assert found.methods["cam"].measures["gt_known"].value == 50
    assert found.methods["cam"].gains["gt_known"].value == -50
    assert found.methods["l2caf"].measures["gt_known"].value == 100
    assert found.methods["l2caf"].gains["gt_known"].value == 50
    assert found.measures == ["gt_known"]
    (difference,) = found.differences
    assert (difference.ours, difference.theirs, difference.points.value) == ("cam", "l2caf", -50)


def test_of_equal_thresholds_it_is_the_nearest_to_the_fixed_one() -> None:
    assert best_place(table("a", (1, 1, 1)), SWEEP, fixed=0.2) == 1
    assert best_place(table("a", (1, 0, 1)), SWEEP, fixed=0.2) == 0


def test_a_picture_cannot_choose_and_be_measured() -> None:
    same = {"cam": table("ab", (1, 0, 0), (1, 1, 0))}
    with pytest.raises(InputError, match="'b' among them"):
        own_thresholds(same, {"cam": table("bc", (1, 0, 0), (1, 1, 0))}, SWEEP, fixed=0.2, measures=(), chosen_on="")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return squares.folder(tmp_path_factory.mktemp("made"))


def arguments(made: Path, out: Path, *more: str) -> list[str]:
    words = ["evaluate", "manifest", str(made / "boxes.csv"), "--network", f"{made / 'bright.py'}:build"]
    return [*words, "--classes", "labels", "-m", "l2caf", "-m", "gradcam", "--out", str(out), *more]


def test_a_fifth_chooses_and_the_rest_is_measured(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert run(arguments(made, out)) == 0
    before = (out / "rows.jsonl").read_bytes()
    capsys.readouterr()
    assert run(arguments(made, out, "--threshold", "held-out")) == 0
    printed = capsys.readouterr().out
    assert (out / "rows.jsonl").read_bytes() == before  # all rows were there
    results = json.loads((out / "results.json").read_text())
    own = results["held_out_thresholds"]
    assert (results["images"], own["pictures"]) == (32, 8)
    assert results["threshold"] == 0.2
    for name in ("l2caf", "gradcam"):
        assert own["methods"][name]["gt_known"]["value"] == 100
        assert results["methods"][name]["gt_known"]["value"] == 100
    page = (out / "report.html").read_text()
    assert "Thresholds that held-out pictures chose" in page
    assert "GT-known at 20 %" in page
    for words in ("every fifth of the pictures", "8 held-out pictures"):
        assert words in page
        assert words in " ".join(printed.split())
    # A run at the fixed threshold alone says nothing of others.
    assert run(arguments(made, out)) == 0
    assert "held_out_thresholds" not in json.loads((out / "results.json").read_text())


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--threshold", "best"], "--threshold: There is no choice 'best'"),
        (["--threshold", "held-out", "--limit", "1"], "--threshold: 1 picture with boxes cannot both"),
    ],
)
def test_bad_choices_get_one_sentence(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], words: str
) -> None:
    assert run(arguments(made, tmp_path / "out", *more)) == 2
    assert words in " ".join(capsys.readouterr().err.split())
