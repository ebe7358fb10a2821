"""Localisers are trained by each recipe, within a budget, and go on to the last bit after a stop."""

from __future__ import annotations

import json
import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import l2caf
import made_datasets
import stripes
from l2caf.cli.app import run as cli
from l2caf.datasets import Dataset
from l2caf.datasets.splits import pictures_of
from l2caf.errors import Cancelled, InputError
from l2caf.networks import localiser
from l2caf.networks.embedding import Backbone
from l2caf.networks.localiser import LocaliserConfig, read_localiser
from l2caf.networks.weights import read_state_dict
from l2caf.preprocessing import Preprocessing
from l2caf.tasks.train import TrainRequest
from l2caf.training.job import TrainingResult
from l2caf.training.trainer import follow
from l2caf.training.wsol import job
from l2caf.training.wsol.budget import PLAN
from l2caf.training.wsol.recipe import WsolRecipe

QUICK = WsolRecipe(backbone="tiny", freeze="none", held_out=0.25, batch=8, epochs=6, views=0)


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return stripes.dataset(tmp_path_factory.mktemp("four"))


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    def backbone(name: str, *, stride: int = 16, pretrained: bool = True) -> Backbone:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            trunk = nn.Sequential(
                nn.Sequential(nn.Conv2d(3, 8, 5, stride=2, padding=2), nn.BatchNorm2d(8), nn.ReLU()),
                nn.Sequential(nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU()),
                nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()),
            )
        return Backbone(name, trunk.eval(), 16, False, Preprocessing((32, 32), (36, 36)))

    monkeypatch.setattr(job, "localiser_backbone", backbone)
    monkeypatch.setattr(localiser, "localiser_backbone", backbone)


@pytest.mark.parametrize("recipe", ["gap", "adl", "acol"])
def test_each_recipe_learns_four_classes(four: Dataset, tmp_path: Path, recipe: str) -> None:
    result = follow(replace(QUICK, recipe=recipe, epochs=20), four, tmp_path, device="cpu")
    assert sum(result.losses[-5:]) < 0.6 * sum(result.losses[:5])
    assert (result.best.numbers["top1"] or 0) >= 0.75
    model = l2caf.load(str(result.checkpoint))
    assert model.class_names == ("class0", "class1", "class2", "class3")
    heatmap = model.explain(four.samples[0].path)
    assert heatmap.layer.startswith("head.fuse" if recipe == "acol" else "trunk")
    assert not any(module._forward_hooks for module in model.network.modules())


@pytest.mark.parametrize(
    ("recipe", "freeze"), [("gap", "none"), ("adl", "none"), ("adl", "0"), ("acol", "none"), ("acol", "0")]
)
def test_stopped_anywhere_it_goes_on_to_the_same_bits(four: Dataset, tmp_path: Path, recipe: str, freeze: str) -> None:
    settings = replace(QUICK, recipe=recipe, freeze=freeze, views=2 if freeze == "0" else 0, epochs=4)
    whole = follow(settings, four, tmp_path / "whole", device="cpu")
    points = sorted(random.Random(0).sample(range(1, whole.iterations), 5))

    def stopping(stage: str, done: int, *_: Any) -> None:
        if stage == "training" and points and done >= points[0]:
            points.pop(0)
            raise Cancelled("enough")

    again: TrainingResult | None = None
    for _ in range(6):
        try:
            again = follow(settings, four, tmp_path / "again", device="cpu", progress=stopping)
        except Cancelled:
            torch.manual_seed(time.monotonic_ns() % 2**31)  # what others draw meanwhile does not matter
    assert again is not None
    assert not points
    assert again.losses == whole.losses
    assert [(line.iteration, line.numbers) for line in again.curve] == [
        (line.iteration, line.numbers) for line in whole.curve
    ]
    ours, theirs = (read_state_dict(one.checkpoint) for one in (again, whole))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    states = [torch.load(tmp_path / name / "resume.pt", weights_only=True)["current"] for name in ("again", "whole")]
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
    assert any("running_mean" in name and bool(value.any()) for name, value in states[0].items())


def test_a_budget_is_planned_once_and_what_was_cut_is_said(
    four: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = follow(replace(QUICK, budget="7", freeze="0", views=1), four, tmp_path / "a", device="cpu")
    assert result.iterations == 7
    assert "7 iterations of 18" in result.notes["cut"][0]
    assert "frozen up to 0" in result.notes["cut"][1]
    assert read_localiser(result.checkpoint)[1].training["cut"] == result.notes["cut"]
    timed = replace(QUICK, budget="10s", epochs=100_000)
    monkeypatch.setattr("l2caf.training.wsol.budget._seconds_per_iteration", lambda job: 1.0)
    planned = follow(timed, four, tmp_path / "b", device="cpu").iterations
    assert 1 <= planned <= 9
    assert json.loads((tmp_path / "b" / PLAN).read_text())["iterations"] == planned
    monkeypatch.setattr("l2caf.training.wsol.budget._seconds_per_iteration", lambda job: 0.001)
    assert follow(timed, four, tmp_path / "b", device="cpu").iterations == planned


def test_learning_rates_fall_three_times() -> None:
    limits = QUICK.limits_of(100)
    rates = [round(limits.rate(iteration), 6) for iteration in (29, 30, 60, 90)]
    assert rates == [1.0, 0.1, 0.01, 0.001]


def test_adl_sits_in_the_trained_part_alone(four: Dataset, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no trained module '0\.1'"):
        follow(replace(QUICK, recipe="adl", freeze="0", adl_at="0.1"), four, tmp_path, device="cpu")


def test_cub_is_trained_on_its_training_pictures_and_measured_on_the_others(tmp_path: Path) -> None:
    root = made_datasets.cub(tmp_path / "cub")
    trained = TrainRequest(QUICK, "cub", root, tmp_path).read()
    config = LocaliserConfig("tiny", classes=tuple(trained.class_names.values()), dataset=trained.name)
    network = localiser.build(localiser.localiser_backbone("tiny"), config)
    file = str(localiser.save_localiser(tmp_path / "localiser.safetensors", network, config))
    measured, part = pictures_of("cub", root, part=None, network=file)
    assert part == "test"
    assert len(measured)
    assert not {sample.name for sample in measured.samples} & {sample.name for sample in trained.samples}
    assert pictures_of("cub", root, part=None, network="tf_efficientnet_lite0")[1] == "all"


def test_pictures_that_training_left_aside_choose_the_threshold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = made_datasets.birds(tmp_path / "cub", each=8)
    trained = follow(
        replace(QUICK, held_out=0.5, epochs=1), TrainRequest(QUICK, "cub", root, tmp_path).read(), tmp_path / "a"
    )
    aside = set(read_localiser(trained.checkpoint)[1].training["held_out"])
    assert len(aside) == 8  # two of each kind
    out = tmp_path / "out"
    words = ["evaluate", "cub", str(root), "--network", str(trained.checkpoint), "-m", "cam", "-m", "l2caf"]
    words += ["--classes", "labels", "--view", "squash", "--threshold", "held-out"]
    assert cli([*words, "--out", str(out)]) == 0
    assert "8 held-out pictures: the pictures that the training of this network left aside" in " ".join(
        capsys.readouterr().out.split()
    )
    results = json.loads((out / "results.json").read_text())
    measured = [json.loads(line) for line in (out / "rows.jsonl").read_text().splitlines()]
    chose = [json.loads(line) for line in (out / "threshold" / "held-out" / "rows.jsonl").read_text().splitlines()]
    assert {row["image"] for row in chose if "image" in row} == aside
    assert not {row["image"] for row in measured if "image" in row} & aside
    assert (results["images"], results["held_out_thresholds"]["pictures"]) == (16, 8)  # no test picture had to choose
    for method in ("cam", "l2caf"):
        found = np.array([row["iou"] for row in chose if row.get("method") == method]) >= 0.5
        hits = found.sum(axis=0)
        place = results["thresholds"].index(results["held_out_thresholds"]["methods"][method]["threshold"])
        assert hits[place] == hits.max()
    # Where the same pictures are to be measured, some of them choose.
    assert cli([*words, "--split", "held-out", "--out", str(tmp_path / "same")]) == 0
    assert "every fifth of the pictures" in " ".join(capsys.readouterr().out.split())


def test_bad_words_are_refused(four: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = four.samples[0].path.parents[1]
    for words, said in (
        (["--recipe", "cam"], "--recipe: There is no recipe 'cam': take gap, adl, acol."),
        (["--budget", "soon"], "--budget: 'soon' is no budget"),
        (["--drop-threshold", "2"], "--drop-threshold: drop_threshold is 2.0"),
    ):
        assert cli(["train", "wsol", "folder", str(root), "--out", str(tmp_path), *words]) == 2
        assert said in " ".join(capsys.readouterr().err.split())
