"""The trainer with a recipe that shares nothing with retrieval: it learns, stops anywhere, and goes on exactly."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import classifier_for_tests as classifier
import l2caf
import stripes
from classifier_for_tests import ClassifierJob, ClassifierRecipe, stopping
from l2caf.cli import train as command
from l2caf.cli.app import run as cli
from l2caf.datasets import Dataset
from l2caf.errors import Cancelled, FileError, TrainingError, WeightsError
from l2caf.table import Entry, Table
from l2caf.training import RECIPES
from l2caf.training.trainer import follow

RECIPE = ClassifierRecipe()
ON = replace(RECIPE, seed=1)  # a run that goes on must take nothing from its own start


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return stripes.dataset(tmp_path_factory.mktemp("four"), size=24)


@pytest.fixture(scope="module")
def whole(four: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody stopped."""
    out = tmp_path_factory.mktemp("whole")
    follow(RECIPE, four, out, device="cpu")
    return out


def log_of(out: Path) -> dict[str, Any]:
    log: dict[str, Any] = json.loads((out / "log.json").read_text())
    for line in (log, log["best"], log["highest"], *log["curve"]):
        line["seconds"] = 0
    return log


def assert_same_run(ours: Path, theirs: Path) -> None:
    """Losses, measurements, parameters, statistics, momentum and random numbers, to the last bit."""
    assert log_of(ours) == log_of(theirs)
    one, other = (torch.load(out / "resume.pt", weights_only=True) for out in (ours, theirs))
    for part in ("current", "start", "mean", "best"):
        assert {"1.running_mean", "1.running_var", "1.num_batches_tracked"} < set(one[part])
        assert all(torch.equal(value, other[part][name]) for name, value in one[part].items()), part
    for moment, its in zip(one["optimizer"]["state"].values(), other["optimizer"]["state"].values(), strict=True):
        assert torch.equal(moment["momentum_buffer"], its["momentum_buffer"])
    for mine, its in zip(one["random"], other["random"], strict=True):
        assert torch.equal(mine["torch"], its["torch"])
        assert torch.equal(mine["numpy"][1], its["numpy"][1])
        assert mine["python"] == its["python"]
    shipped, its = (torch.load(out / "classifier.pt", weights_only=True) for out in (ours, theirs))
    assert all(torch.equal(value, its[name]) for name, value in shipped.items())


def test_it_learns_by_a_score_of_its_own(four: Dataset, tmp_path: Path) -> None:
    told: list[set[str]] = []
    result = follow(
        replace(RECIPE, iterations=60),
        four,
        tmp_path,
        device="cpu",
        progress=lambda stage, done, total, numbers={}: told.append(set(numbers)),
    )
    first, best = result.curve[0].numbers["accuracy"], result.best.numbers["accuracy"]
    assert first is not None
    assert best is not None
    assert best > max(0.8, first + 0.3)
    assert told[-1] == {"loss", "accuracy"}
    assert set(log_of(tmp_path)["curve"][-1]) == {"iteration", "loss", "accuracy", "guess", "seconds"}
    assert json.loads((tmp_path / "run.json").read_text())["best"]["iteration"] == result.best.iteration
    with Image.open(tmp_path / "curves.png") as picture:
        assert picture.size[0] > 500
    statistics = torch.load(result.checkpoint, weights_only=True)["1.running_var"]
    assert not torch.equal(statistics, torch.ones(8))


@pytest.mark.parametrize(
    ("at", "stop", "error"),
    [
        (7, "cancel", Cancelled),
        (5, "cancel", Cancelled),
        (12, "cancel", Cancelled),
        (7, "interrupt", KeyboardInterrupt),
    ],
)
def test_stopped_between_iterations(
    four: Dataset, whole: Path, tmp_path: Path, at: int, stop: str, error: type[BaseException]
) -> None:
    """At 5 and 12 a measurement is due, which must neither be lost nor be made twice."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    how = {"cancel": classifier.cancel, "interrupt": interrupt}[stop]
    with pytest.raises(error):
        follow(RECIPE, four, tmp_path, device="cpu", progress=stopping(at, how))
    assert torch.load(tmp_path / "resume.pt", weights_only=True)["iteration"] == at
    assert not (tmp_path / "log.json").exists()
    follow(ON, four, tmp_path, device="cpu")
    assert_same_run(tmp_path, whole)


@pytest.mark.parametrize(("signals", "saved"), [(1, 8), (2, 5)])
def test_interrupted_within_an_iteration(
    four: Dataset, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signals: int, saved: int
) -> None:
    """Ctrl-C after the statistics have moved, before the weights have: the first waits, a second does not."""
    original = ClassifierJob.loss

    def loss(job: ClassifierJob, iteration: int) -> torch.Tensor:
        made = original(job, iteration)
        for _ in range(signals if iteration == 7 else 0):
            signal.raise_signal(signal.SIGINT)
        return made

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    try:
        with monkeypatch.context() as changed:
            changed.setattr(ClassifierJob, "loss", loss)
            with pytest.raises(KeyboardInterrupt):
                follow(RECIPE, four, tmp_path, device="cpu")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert torch.load(tmp_path / "resume.pt", weights_only=True)["iteration"] == saved
    follow(ON, four, tmp_path, device="cpu")
    assert_same_run(tmp_path, whole)


def run_program(*words: str, launcher: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    here = Path(__file__).parents[1]
    paths = os.pathsep.join([str(Path(l2caf.__file__).parents[1]), str(here)])
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    program = [sys.executable, *launcher, str(here / "classifier_for_tests.py"), *words]
    return subprocess.run(program, env=environment, capture_output=True, text=True, timeout=900)


@pytest.mark.parametrize("at", [3, 8])
def test_killed_between_two_states(four: Dataset, whole: Path, tmp_path: Path, at: int) -> None:
    """At 3 the only state on disk is that of the start."""
    root = four.samples[0].path.parents[1]
    assert run_program(str(root), str(tmp_path), "kill", str(at)).returncode == -signal.SIGKILL
    assert torch.load(tmp_path / "resume.pt", weights_only=True)["iteration"] == 5 * (at // 5)
    follow(ON, four, tmp_path, device="cpu")
    assert_same_run(tmp_path, whole)


@pytest.mark.endurance
def test_two_processes_stop_together_and_go_on(four: Dataset, tmp_path: Path) -> None:
    """Each drops out and turns pictures by its own random numbers; one alone is told to stop."""
    root = str(four.samples[0].path.parents[1])
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    stopped = run_program(root, str(tmp_path / "parts"), "cancel", "7", launcher=launch)
    assert sorted(re.findall(r"stopped (\w+)", stopped.stdout)) == ["Cancelled", "KeyboardInterrupt"], stopped.stderr
    for out, how in (("parts", "on"), ("whole", "no")):
        done = run_program(root, str(tmp_path / out), how, "0", launcher=launch)
        assert done.returncode == 0, done.stderr
    first, second = torch.load(tmp_path / "whole" / "resume.pt", weights_only=True)["random"]
    assert not torch.equal(first["torch"], second["torch"])
    assert_same_run(tmp_path / "parts", tmp_path / "whole")


def test_how_often_it_is_measured_changes_no_training(four: Dataset, whole: Path, tmp_path: Path) -> None:
    follow(replace(RECIPE, measure_every=2), four, tmp_path, device="cpu")
    assert log_of(tmp_path)["losses"] == log_of(whole)["losses"]


def test_without_a_running_mean_the_weights_themselves_are_shipped(four: Dataset, tmp_path: Path) -> None:
    result = follow(replace(RECIPE, averaged=False, iterations=5), four, tmp_path, device="cpu")
    state = torch.load(tmp_path / "resume.pt", weights_only=True)
    assert state["mean"] == {}
    shipped = torch.load(result.checkpoint, weights_only=True)
    at = state["current"] if result.best.iteration == 5 else state["best"]
    assert all(torch.equal(value, at[name]) for name, value in shipped.items())


def test_it_ends_when_the_score_gets_no_better(four: Dataset, tmp_path: Path) -> None:
    result = follow(replace(RECIPE, rate=0.0, measure_every=1, patience=3), four, tmp_path, device="cpu")
    assert (result.ended, result.iterations, result.best.iteration) == ("no better", 3, 0)


def test_a_loss_that_is_not_finite(four: Dataset, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"not finite at iteration \d+.*classifier\.pt holds the network of"):
        follow(replace(RECIPE, rate=1e20), four, tmp_path, device="cpu")
    assert log_of(tmp_path)["ended"] == "non_finite"
    assert torch.load(tmp_path / "resume.pt", weights_only=True)["iteration"] == 0


def test_states_that_do_not_fit(four: Dataset, tmp_path: Path) -> None:
    follow(replace(RECIPE, iterations=1), four, tmp_path, device="cpu")
    with pytest.raises(FileError, match="a run that differs in rate: choose another folder") as other:
        follow(replace(RECIPE, rate=1.0), four, tmp_path, device="cpu")
    assert other.value.field == "out"
    # What version 0.1.0 wrote before there were buffers in it.
    torch.save({"settings": {}, "iteration": 1, "moving": {}, "mean": {}, "log": []}, tmp_path / "resume.pt")
    with pytest.raises(WeightsError, match=r"another version of l2caf.*remove that file") as refused:
        follow(RECIPE, four, tmp_path, device="cpu")
    assert "\n" not in str(refused.value)
    (tmp_path / "resume.pt").write_bytes(b"no state")
    with pytest.raises(WeightsError, match="cannot be read"):
        follow(RECIPE, four, tmp_path, device="cpu")


def test_a_recipe_is_one_line_in_the_table(
    four: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = Entry("classifier", "Train a network that names stripes.", "classifier_for_tests:ClassifierRecipe")
    monkeypatch.setattr(command, "RECIPES", Table("recipe", *RECIPES.values(), entry))
    assert cli(["train", "--help"]) == 0
    assert "names stripes" in capsys.readouterr().out
    assert cli(["train", "classifier", "--help"]) == 0
    text = capsys.readouterr().out
    assert "Learning rate of everything" in text
    assert "--measure-every" not in text
    root = str(four.samples[0].path.parents[1])
    given = ["train", "classifier", "folder", root, "--iterations", "2", "--device", "cpu", "--out", str(tmp_path)]
    assert cli(given) == 0
    assert "2 iterations" in capsys.readouterr().out
    assert cli([*given, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["settings"]["rate"] == 0.05
    assert [line["accuracy"] is None for line in document["curve"]] == [False, False]


def test_the_trainer_speaks_of_no_recipe() -> None:
    """Its words are its promises: what a later recipe measures has a name of its own."""
    room = Path(l2caf.__file__).parent / "training"
    for path in sorted(room.glob("*.py")):
        found = re.findall(r"embedding(?!s find)|R@1|recall|held.out", path.read_text(encoding="utf-8"))
        assert not found, (path.name, found)
