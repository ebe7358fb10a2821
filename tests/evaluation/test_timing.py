"""Timing: what is timed, what is extrapolated and how well, and the paper's figures beside it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import l2caf.evaluation.timing as timing_module
from l2caf.cli import main
from l2caf.errors import CatalogueError, InputError
from l2caf.evaluation.published import published
from l2caf.evaluation.timing import NETWORKS, TIMED, Times, paper_seconds, side_by_side, time_network
from l2caf.networks import untrained
from l2caf.networks.catalogue import load
from l2caf.networks.model import Model
from l2caf.preprocessing import Preprocessing
from l2caf.tasks.time import plot, short
from networks_for_tests import curved, pixels, pooled, seeded


def test_candidates_take_turns_and_the_warm_up_does_not_count() -> None:
    order: list[str] = []
    rounds: list[object] = []
    times = side_by_side(
        {"a": lambda: order.append("a"), "b": lambda: order.append("b")},
        rounds=3,
        warm_up=1,
        progress=lambda *told: rounds.append(told),
    )
    assert order == ["a", "b"] * 4
    assert rounds == [("timing", done, 4) for done in (1, 2, 3, 4)]
    assert [len(seconds) for seconds in times.rounds.values()] == [3, 3]


def test_times_are_medians_and_ratios_are_of_the_same_round() -> None:
    times = Times({"a": [1.0, 2.0, 9.0], "b": [2.0, 4.0, 3.0]})
    assert times.seconds("a") == 2.0
    assert times.milliseconds("a") == 2000
    assert times.ratio("a", "b") == 0.5
    assert times.spread("a", "b") == "0.50-3.00"


def model(name: str, network: nn.Module) -> Model:
    return Model(name, network, Preprocessing())


@pytest.mark.parametrize(("make", "solver"), [(pooled, "Exact"), (curved, "Riemannian")])
def test_every_way_to_a_map_is_timed(make: Callable[[], nn.Module], solver: str) -> None:
    calls: list[object] = []
    network = seeded(make)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    found = time_network(model("mine", network), pixels(1), rounds=2, progress=lambda *told: calls.append(told[:3]))
    assert list(found.seconds) == list(TIMED)
    assert all(seconds > 0 for seconds in found.seconds.values())
    assert found.solver == solver
    assert found.extrapolated == ("vanilla",)
    assert found.weights == "as given"
    assert found.paper == {}
    assert calls == [("timing mine", done, 4) for done in (1, 2, 3, 4)]
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    json.dumps(found.as_dict(), allow_nan=False)


class Clock:
    """Time that passes only where a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


# No attribute of the layer: a network whose attributes change with every run is looked at anew each time.
CLOCK = Clock()


class Waiting(nn.Module):
    """A first layer that takes a second by that clock, and nothing else does."""

    def forward(self, x: Tensor) -> Tensor:
        CLOCK.now += 1
        return x


def test_the_extrapolation_counts_one_run_of_the_whole_network_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing_module, "time", CLOCK)
    slow = seeded(lambda: nn.Sequential(Waiting(), *pooled()))
    found = time_network(model("slow", slow), pixels(1), rounds=2)
    assert found.steps > 20
    assert found.seconds["forward"] == 1
    assert found.seconds["l2caf"] == 1
    assert found.seconds["fast"] <= 3  # it waits for the first layer at the start, not in every step
    assert found.steps <= found.seconds["vanilla"] <= found.steps + 8  # with what is asked where the descent ends


def test_a_slow_descent_is_run_once_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing_module, "QUICK", 0.0)
    found = time_network(model("mine", seeded(pooled)), pixels(1), rounds=2)
    assert found.rounds["fast"] == 1
    assert found.rounds["l2caf"] == 2


def test_weights_that_cannot_be_had_are_replaced_by_random_ones_that_live(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unreachable(name: str, *, pretrained: bool = True) -> Model:
        if pretrained:
            raise CatalogueError("out of reach.")
        return load(name, pretrained=False)

    monkeypatch.setattr(untrained, "load", unreachable)
    noise = Image.effect_noise((256, 256), 80).convert("RGB")
    found = untrained.trained_or_random("torchvision:resnet18", noise)
    assert found.weights == "random"
    with torch.no_grad():
        assert found.network(found.batch([found.prepare(noise).input])).std() > 0.05
    with pytest.raises(CatalogueError, match="no network"):
        untrained.trained_or_random("torchvision:nothing", noise)


def test_bad_input_is_named() -> None:
    with pytest.raises(InputError, match="one image"):
        time_network(model("mine", seeded(pooled)), pixels(2))
    with pytest.raises(InputError, match="rounds"):
        time_network(model("mine", seeded(pooled)), pixels(1), rounds=0)


def test_the_papers_figures_are_all_there() -> None:
    data = published()
    assert "ECCV" in data["source"]
    assert [len(data[key]["rows"]) for key in data if key.startswith("table")] == [6, 7, 12]
    assert paper_seconds("torchvision:vgg16") == {
        "vanilla": 2.525328803,
        "fast": 1.329674244,
        "gradcam": 0.03294756413,
    }
    assert [bool(paper_seconds(name)) for name in NETWORKS] == [False, False, True, True, True]


def test_the_figure_has_a_bar_for_everything() -> None:
    found = time_network(model("torchvision:vgg16", seeded(pooled)), pixels(1), rounds=1)
    figure = plot([found, found], machine="m")
    assert [len(axes.patches) for axes in figure.axes] == [2 * len(TIMED), 2 * 3]
    assert figure.axes[0].get_yscale() == "log"
    hatched = [bar for bar in figure.axes[0].patches if bar.get_hatch()]
    assert len(hatched) == 2


@pytest.mark.parametrize(("seconds", "text"), [(0.00999, "10 ms"), (0.99951, "1.0 s"), (9.96, "10 s")])
def test_seconds_are_rounded_to_the_right_unit(seconds: float, text: str) -> None:
    assert short(seconds) == text


NETS = """
import torch
from torch import nn

def tiny():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 5, stride=8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
    )
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text(NETS)
    return tmp_path


def test_the_command_writes_a_document_and_a_figure(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main("time nets.py:tiny --rounds 1 --out o --json".split()) == 0
    document = json.loads(capsys.readouterr().out)
    (timing,) = document["networks"]
    assert set(timing["seconds"]) == set(TIMED)
    assert sorted(path.name for path in Path("o").iterdir()) == ["time.json", "time.png"]
    assert main("time nets.py:tiny --rounds 1".split()) == 0
    assert "vanilla descent" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ("time nothing", "no network 'nothing'"),
        ("time --image nope.png", "nope.png"),
        ("time --rounds 0", "rounds"),
    ],
)
def test_bad_words_get_one_sentence(words: str, fault: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    error = capsys.readouterr().err
    assert fault in error
    assert "Traceback" not in error


def test_a_run_that_is_stopped_leaves_nothing_half_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: Any, **kwargs: Any) -> Times:
        raise KeyboardInterrupt

    monkeypatch.setattr(timing_module, "side_by_side", interrupted)
    assert main("time nets.py:tiny --out o".split()) == 130
    assert list(Path("o").iterdir()) == []


def test_a_map_faster_than_the_network_alone_and_uneven_rounds_are_warned_of() -> None:
    found = time_network(model("mine", seeded(pooled)), pixels(1), rounds=3)
    assert set(found.quartiles) - {"fast"} == {
        "forward",
        "gradcam",
        "l2caf",
        "prediction",
    }  # vanilla descent is extrapolated
    assert all(low <= found.seconds[name] <= high for name, (low, high) in found.quartiles.items())
    steady = dict.fromkeys(found.quartiles, (1.0, 1.1))
    sound = replace(found, seconds={"forward": 1.0, "l2caf": 1.1, "fast": 2.0}, quartiles=steady)
    assert sound.warnings == ()
    (odd,) = replace(sound, seconds={**sound.seconds, "fast": 0.9}).warnings
    assert "L2-CAF, fast descent measured faster than the network alone" in odd
    (uneven,) = replace(sound, quartiles={**steady, "forward": (1.0, 1.9)}).warnings
    assert "the rounds of the network alone differ much" in uneven
    assert replace(sound, seconds={**sound.seconds, "fast": 0.9}).as_dict()["warnings"] == [odd]
