"""Training as a whole: it learns, it goes on where it was, it works in several processes, and it fails well."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch
from PIL import Image

import l2caf
import stripes
from l2caf.cli.app import run as cli
from l2caf.datasets import Dataset
from l2caf.errors import Cancelled, DatasetError, FileError, InputError, TrainingError, WeightsError
from l2caf.images import open_image
from l2caf.networks import catalogue
from l2caf.networks.embedding import read_config, read_embedding, save_embedding
from l2caf.training import sources
from l2caf.training.job import Ended, TrainingResult
from l2caf.training.retrieval.job import CHECKPOINT, SCORE
from l2caf.training.retrieval.recipe import RetrievalRecipe
from l2caf.training.state import LogLine
from l2caf.training.trainer import follow

QUICK = RetrievalRecipe(
    freeze="trunk", views=1, dimension=16, iterations=20, measure_every=5, patience=100, held_out=0.25
)


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return stripes.dataset(tmp_path_factory.mktemp("four"))


def log_of(out: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((out / "log.json").read_text())
    return document


@pytest.mark.parametrize("loss", ["triplet", "npair"])
def test_it_learns_four_classes_by_heart(four: Dataset, tmp_path: Path, loss: str) -> None:
    """Nothing is held out, so the scores are those of the pictures trained on."""
    recipe = replace(QUICK, loss=loss, held_out=0.0, keep=0.0, lr=3e-3, iterations=60, dimension=32)
    result = follow(recipe, four, tmp_path, device="cpu")
    losses = result.losses
    if loss == "npair":  # the other is a mean over what is still wrong, so it need not fall
        assert sum(losses[-10:]) < 0.3 * sum(losses[:10])
    network, config = read_embedding(result.checkpoint)
    assert config.normalized == (loss == "triplet")
    assert config.classes == ("class0", "class1", "class2", "class3")
    with torch.inference_mode():
        inputs = torch.stack([config.preprocessing(open_image(sample.path)) for sample in four.samples])
        embeddings = network(inputs)
    if config.normalized:
        embeddings = torch.nn.functional.normalize(embeddings)
    distances = torch.cdist(embeddings, embeddings).fill_diagonal_(torch.inf)
    labels = torch.tensor([sample.label for sample in four.samples])
    assert float((labels[distances.argmin(dim=1)] == labels).float().mean()) > 0.95


def test_what_a_run_leaves(four: Dataset, tmp_path: Path) -> None:
    seen: list[str] = []
    recipe = replace(QUICK, freeze="auto", views=3, iterations=4, measure_every=2)
    result = follow(recipe, four, tmp_path, device="cpu", progress=lambda stage, *_: seen.append(stage))
    log = log_of(tmp_path)
    assert log["settings"]["cut"] == "blocks.5"
    assert [line["iteration"] for line in log["curve"]] == [0, 2, 4]
    assert len(log["losses"]) == 4
    assert set(log["before"]) == {"embedding", "pooled", "random"}
    with Image.open(tmp_path / "curves.png") as picture:
        assert picture.size[0] > 500
    assert {"storing features", "training"} == set(seen)
    config = read_config(result.checkpoint)
    assert json.loads((tmp_path / "embedding.json").read_text())["backbone"] == "tf_efficientnet_lite0"
    assert set(config.training["held_out"]) == set(log["held_out"])
    assert len(log["held_out"]) == 8
    entry = catalogue.load(str(result.checkpoint))
    image = entry.preprocess(open_image(four.samples[0].path))
    heatmap = l2caf.explain(entry.network, image[None])
    assert heatmap.solution is not None
    assert [str(outcome) for outcome in heatmap.solution.outcome] == ["exact"]


def test_the_frozen_part_stays_as_it_was(four: Dataset, tmp_path: Path) -> None:
    recipe = replace(QUICK, freeze="auto", iterations=3, measure_every=3, held_out=0.0, keep=0.0)
    network, _ = read_embedding(follow(recipe, four, tmp_path, device="cpu").checkpoint)
    before = catalogue.load().network.state_dict()
    moved = {name for name, value in network.trunk.state_dict().items() if not torch.equal(value, before[name])}
    assert moved
    assert all(name.startswith(("blocks.6", "conv_head", "bn2")) for name in moved)
    assert not any("running" in name for name in moved)


def test_interrupted_and_resumed_is_the_same_run(four: Dataset, tmp_path: Path) -> None:
    recipe = replace(QUICK, freeze="auto", views=2, iterations=12)

    def stop(words: str, done: int, *_: object) -> None:
        if words == "training" and done == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        follow(recipe, four, tmp_path / "parts", device="cpu", progress=stop)
    follow(recipe, four, tmp_path / "parts", device="cpu")
    follow(recipe, four, tmp_path / "whole", device="cpu")
    parts, whole = log_of(tmp_path / "parts"), log_of(tmp_path / "whole")
    assert parts["losses"] == whole["losses"]
    assert [{**line, "seconds": 0} for line in parts["curve"]] == [{**line, "seconds": 0} for line in whole["curve"]]
    ours, theirs = (read_embedding(tmp_path / name / CHECKPOINT)[0].state_dict() for name in ("parts", "whole"))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_run_can_be_made_longer_but_not_otherwise_changed(four: Dataset, tmp_path: Path) -> None:
    follow(replace(QUICK, iterations=4), four, tmp_path, device="cpu")
    follow(replace(QUICK, iterations=6), four, tmp_path, device="cpu")
    assert len(log_of(tmp_path)["losses"]) == 6
    with pytest.raises(FileError, match="a run that differs in lr"):
        follow(replace(QUICK, lr=1.0), four, tmp_path, device="cpu")
    (tmp_path / "resume.pt").write_bytes((tmp_path / "resume.pt").read_bytes()[:1000])
    with pytest.raises(WeightsError, match="cannot be read"):
        follow(QUICK, four, tmp_path, device="cpu")


def test_it_ends_when_held_out_pictures_are_found_no_better(four: Dataset, tmp_path: Path) -> None:
    result = follow(replace(QUICK, lr=0.0, measure_every=1, patience=3), four, tmp_path, device="cpu")
    assert (result.ended, result.iterations, result.best.iteration) == ("no better", 3, 0)


def test_it_ends_when_the_time_is_up(four: Dataset, tmp_path: Path) -> None:
    assert follow(QUICK, four, tmp_path, device="cpu", minutes=0).ended == "minutes"
    assert (tmp_path / CHECKPOINT).is_file()


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_good_network(four: Dataset, tmp_path: Path) -> None:
    recipe = replace(QUICK, loss="npair", warmup=1, held_out=0.0, iterations=10, measure_every=2)
    follow(replace(recipe, iterations=4), four, tmp_path, device="cpu")
    good = read_embedding(tmp_path / CHECKPOINT)[0].embed.weight.detach().clone()
    state = torch.load(tmp_path / "resume.pt", weights_only=True)
    state["current"]["embed.weight"].fill_(1e30)  # finite itself, but no product of two such embeddings is
    torch.save(state, tmp_path / "resume.pt")
    with pytest.raises(TrainingError, match=r"not finite at iteration 5.*holds the network of iteration 4"):
        follow(recipe, four, tmp_path, device="cpu")
    assert torch.equal(read_embedding(tmp_path / CHECKPOINT)[0].embed.weight, good)
    assert log_of(tmp_path)["ended"] == "non_finite"


def test_features_beyond_memory_go_to_a_file(four: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    follow(replace(QUICK, iterations=2), four, tmp_path / "memory", device="cpu")
    monkeypatch.setattr(sources, "LARGEST_IN_MEMORY", 0)
    follow(replace(QUICK, iterations=2), four, tmp_path / "file", device="cpu")
    assert log_of(tmp_path / "memory")["losses"] == log_of(tmp_path / "file")["losses"]


def test_pictures_that_are_read_anew_each_time(four: Dataset, tmp_path: Path) -> None:
    result = follow(replace(QUICK, views=0, iterations=2, measure_every=2), four, tmp_path, device="cpu")
    assert len(result.losses) == 2


def test_bad_data(four: Dataset, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="has no pictures"):
        follow(QUICK, Dataset("nothing", ()), tmp_path, device="cpu")
    lonely = replace(four, samples=four.samples[:9])
    with pytest.raises(DatasetError, match="'class1' has one picture"):
        follow(QUICK, lonely, tmp_path, device="cpu")
    with pytest.raises(DatasetError, match="one class"):
        follow(QUICK, replace(four, samples=four.samples[:8]), tmp_path, device="cpu")


def test_bad_recipes() -> None:
    with pytest.raises(InputError, match="iterations is 0"):
        RetrievalRecipe(iterations=0)
    with pytest.raises(InputError, match="one pair per class"):
        RetrievalRecipe(loss="npair", each=4)
    with pytest.raises(InputError, match="keep is 1"):
        RetrievalRecipe(keep=1.0)


def test_a_picture_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    root = stripes.folder(tmp_path / "some", classes=2, each=4)
    (root / "class0" / "0.png").write_bytes(b"no picture")
    data = stripes.read("folder", root)
    recipe = replace(QUICK, held_out=0.0, iterations=1)
    result = follow(recipe, data, tmp_path / "out", device="cpu")
    assert list(result.bad) == ["class0/0.png"]


def test_broken_checkpoints(four: Dataset, tmp_path: Path) -> None:
    made = follow(replace(QUICK, iterations=1), four, tmp_path / "out", device="cpu").checkpoint
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(made.read_bytes()[:5000])
    with pytest.raises(WeightsError, match="truncated"):
        catalogue.load(str(cut))
    network, config = read_embedding(made)
    other = save_embedding(tmp_path / "other.safetensors", network, replace(config, dimension=99))
    with pytest.raises(WeightsError, match=r"does not fit.*embed\.weight"):
        catalogue.load(str(other))
    with pytest.raises(WeightsError, match="does not exist"):
        catalogue.load(str(tmp_path / "none.safetensors"))


def test_the_command(four: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = four.samples[0].path.parents[1]
    given = ["train", "retrieval", "folder", str(root), "--loss", "npair", "--iterations", "2", "--freeze", "trunk"]
    assert cli([*given, "--views", "1", "--device", "cpu", "--out", str(tmp_path / "out"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert Path(document["checkpoint"]).is_file()
    assert document["ended"] == "iterations"
    assert cli(["train", "retrieval", "imagenet", str(root), "--out", str(tmp_path / "no")]) == 2
    assert "cub, cars, folder" in capsys.readouterr().err


@pytest.mark.slow
def test_two_processes_do_what_one_does(four: Dataset, tmp_path: Path) -> None:
    root = four.samples[0].path.parents[1]
    given = ["train", "retrieval", "folder", str(root), "--views", "2", "--device", "cpu", "--iterations", "4", "--out"]
    here = str(Path(l2caf.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": here, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "l2caf"]
    words = [*launch, *given, str(tmp_path / "two")]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    assert cli([*given, str(tmp_path / "one")]) == 0
    one, two = log_of(tmp_path / "one"), log_of(tmp_path / "two")
    assert two["losses"] == pytest.approx(one["losses"], rel=1e-2)
    assert two["best"]["recall_at_1"] == pytest.approx(one["best"]["recall_at_1"], abs=0.15)


def test_minutes_count_from_the_first_iteration_and_something_is_trained(four: Dataset, tmp_path: Path) -> None:
    result = follow(QUICK, four, tmp_path, device="cpu", minutes=0)
    assert (result.ended, result.iterations) == ("minutes", 1)
    assert follow(QUICK, four, tmp_path, device="cpu", minutes=0).iterations == 2  # and goes on


def test_prepared_features_are_kept_for_a_run_that_goes_on(
    four: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "NOTED", 2)
    told: list[int] = []

    def watch(stage: str, done: int, total: int | None, numbers: Mapping[str, float] = MappingProxyType({})) -> None:
        if stage == "storing features":
            told.append(done)
            if told == [1, 2, 3, 4, 5]:
                raise Cancelled("enough")

    out, rest = tmp_path / "out", list(range(5, len(four) + 1))  # four were written down as whole
    with pytest.raises(Cancelled):
        follow(QUICK, four, out, device="cpu", progress=watch)
    follow(QUICK, four, out, device="cpu", minutes=0, progress=watch)
    assert told == [1, 2, 3, 4, 5, *rest]
    resumed = follow(QUICK, four, out, device="cpu", progress=watch)
    assert told == [1, 2, 3, 4, 5, *rest]  # nothing is prepared again
    assert resumed.losses == follow(QUICK, four, tmp_path / "whole", device="cpu").losses
    assert not list(out.glob(".features*"))  # the run is over
    follow(replace(QUICK, seed=1), four, tmp_path / "other", device="cpu", minutes=0)
    (kept,) = (tmp_path / "other").glob(".features*.npy")
    kept.write_bytes(b"damaged")
    follow(replace(QUICK, seed=1), four, tmp_path / "other", device="cpu", minutes=0)


@pytest.mark.parametrize(
    ("scores", "saved", "words"),
    [
        ([0.9, 0.905], 0, "iteration 25 measured 90.5, but a later one takes its place only if it is better by more"),
        ([0.9, 0.95], 25, "The network of iteration 25 is saved, the best by R@1."),
        ([0.9, 0.8], 0, "The network of iteration 0 is saved, the start: no measurement was better."),
    ],
)
def test_which_network_is_saved_is_said(scores: list[float], saved: int, words: str) -> None:
    lines = tuple(LogLine(25 * number, None, {SCORE.key: score}, 0.0) for number, score in enumerate(scores))
    best = next(line for line in lines if line.iteration == saved)
    result = TrainingResult(Path(), SCORE, {}, Ended.MINUTES, 30, 1.0, {}, best, lines, (), {}, {}, worth=0.01)
    assert words in result.choice
    assert result.summary()["choice"] == result.choice
