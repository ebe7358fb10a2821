"""`explain` takes a method as the command line does, ends in time, and knows the layers of a wrapped network."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import l2caf
import networks_for_tests as nets
from l2caf import deadline
from l2caf.errors import InputError, LayerError
from l2caf.methods.table import METHODS
from l2caf.solution import Outcome
from l2caf.solvers.solver import Found
from networks_for_tests import pixels, seeded

# Methods


@pytest.mark.parametrize("key", METHODS)
def test_a_method_by_its_key_is_that_of_the_table(key: str) -> None:
    network = seeded(nets.pooled)
    asked = l2caf.explain(network, pixels(), method=key)
    assert asked == METHODS[key].make()(network, pixels())


@pytest.mark.parametrize("key", ["l2caf-class", "l2caf-published", "cam", "gradcam", "gradcam-abs"])
@pytest.mark.parametrize("choice", [{"classes": 3}, {"classes": [3, 1]}, {"top": 2}, {"labels": [2, 0]}], ids=str)
def test_a_key_about_a_class_takes_the_classes_of_the_objective(key: str, choice: dict[str, Any]) -> None:
    network = seeded(nets.pooled)
    asked = l2caf.explain(network, pixels(), method=key, objective=l2caf.ClassSpecific(**choice))
    assert asked == METHODS[key].make(**choice)(network, pixels())


def test_a_method_as_an_object() -> None:
    network = seeded(nets.pooled)
    assert l2caf.explain(network, pixels(), method=l2caf.GradCAM(1)) == l2caf.GradCAM(1)(network, pixels())
    filtered = l2caf.explain(network, pixels(), method="l2caf", filter=l2caf.Softmax())
    assert filtered == l2caf.explain(network, pixels(), filter=l2caf.Softmax())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"method": "gradcm"}, "There is no method 'gradcm': the nearest are gradcam"),
        ({"method": "GradCAM"}, "There is no method 'GradCAM': the nearest are gradcam"),
        ({"method": l2caf.GradCAM}, r"The method is the class GradCAM: give an object, GradCAM\(\)"),
        ({"method": 3}, r"The method is a int: give one of l2caf, .*, or an object such as GradCAM\(\)"),
        ({"method": "gradcam", "filter": l2caf.UnitL1()}, "gradcam is a formula and has no filter: leave it out"),
        ({"method": "cam", "solver": l2caf.Auto()}, "cam is a formula and has no solver: leave it out"),
        ({"method": "l2caf", "objective": l2caf.ClassSpecific(1)}, "l2caf has an objective of its own"),
        ({"method": "gradcam", "objective": l2caf.Prediction()}, r"give ClassSpecific\(…\), or leave it out"),
        ({"method": l2caf.CAM(), "objective": l2caf.ClassSpecific(1)}, "say it where the method is made"),
        ({"method": "gradcam", "objective": l2caf.ClassSpecific([1, 2])}, "may mean two things"),
    ],
    ids=str,
)
def test_methods_that_do_not_fit(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        l2caf.explain(seeded(nets.pooled), pixels(), **given)


# Time


class Clock:
    """A clock that goes on by a second whenever somebody looks at it."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        self.seconds += 1
        return self.seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(deadline, "time", made)
    return made


DESCENTS: dict[str, Any] = {
    "auto": None,
    "riemannian": l2caf.Riemannian(),
    "descent": l2caf.GradientDescent(steps=60),
}


@pytest.mark.parametrize("solver", DESCENTS)
def test_the_best_filter_so_far_when_the_time_is_over(solver: str, clock: Clock) -> None:
    network = seeded(nets.curved)
    asked: dict[str, Any] = {"objective": l2caf.ClassSpecific(1), "solver": DESCENTS[solver]}
    whole = l2caf.explain(network, pixels(), **asked)
    losses = []
    for seconds in (4, 16):
        cut = l2caf.explain(network, pixels(), **asked, timeout=seconds)
        assert cut.outcome == ["time_limit"] * 2
        assert "the time ran out" in cut.solution.reason
        assert cut.solution.evaluations.max() <= seconds
        torch.testing.assert_close(cut.solution.filter.flatten(1).norm(dim=1), torch.ones(2))
        # The loss is that of the filter beside it.
        head = l2caf.record(network, pixels()).head
        scores = head.filtered(cut.solution.filter.flatten(1))
        expected = l2caf.ClassSpecific(1).losses(head.output).losses[0](scores)
        torch.testing.assert_close(cut.solution.loss.float(), expected.float().detach(), rtol=1e-4, atol=1e-5)
        losses.append(cut.solution.loss)
    assert (losses[1] <= losses[0]).all()
    assert (whole.solution.loss <= losses[1] + 1e-6).all()
    again = l2caf.explain(network, pixels(), **asked)
    assert again == whole  # nothing of the limit stays


def test_maps_that_were_done_before_the_time_was_over_stay_as_they_are(clock: Clock) -> None:
    network = seeded(nets.curved)
    asked = l2caf.ClassSpecific(classes=[1, 2, 0])
    whole = l2caf.explain(network, pixels(), objective=asked)
    first = int(whole.solution.evaluations[:, 0].max())
    cut = l2caf.explain(network, pixels(), objective=asked, timeout=first + 30)
    assert [row[0] for row in cut.outcome] == [row[0] for row in whole.outcome]
    assert [row[2] for row in cut.outcome] == ["time_limit"] * 2
    assert torch.equal(cut.maps[:, 0], whole.maps[:, 0])
    # Nothing but the uniform filter was tried for the last one, and it shows nothing.
    assert not cut.maps[:, 2].any()


def test_what_needs_no_search_does_not_feel_the_time(clock: Clock) -> None:
    network = seeded(nets.pooled)
    assert l2caf.explain(network, pixels(), timeout=0.001).outcome == ["exact"] * 2
    assert l2caf.explain(network, pixels(), timeout=0.001, method="gradcam").outcome == ["formula"] * 2


def test_a_solver_of_ones_own_ends_in_time_too(clock: Clock) -> None:
    class Tries(l2caf.Solver):
        def search(self, problem: Any) -> Found:
            generator = torch.Generator().manual_seed(0)
            while True:
                start = problem.filter.start(problem.batch, problem.grid, generator)
                problem.value(problem.filter.weights(start, problem.grid).unsqueeze(0))

    heatmap = l2caf.explain(seeded(nets.curved), pixels(), solver=Tries(), timeout=9)
    assert heatmap.outcome == [Outcome.TIME_LIMIT] * 2
    assert heatmap.solution.evaluations.tolist() == [8, 8]


@pytest.mark.parametrize("seconds", [0, -1, "2", True, float("nan")], ids=repr)
def test_a_time_that_is_none(seconds: Any) -> None:
    with pytest.raises(InputError, match="give seconds, a number above 0") as caught:
        l2caf.explain(seeded(nets.pooled), pixels(), timeout=seconds)
    assert caught.value.field == "timeout"


# Layers of wrapped networks


class Twice(nn.Module):
    """A network with a child that is called as a wrapper calls its own."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 4, stride=4)
        self.module = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.module(self.conv(pictures)).mean(dim=(2, 3))
        return scores


def _fabric(network: nn.Module) -> nn.Module:
    fabric = pytest.importorskip("lightning_fabric")
    wrapped: nn.Module = fabric.Fabric(accelerator="cpu", devices=1).setup(network)
    return wrapped


WRAPPERS: dict[str, Any] = {
    "plain": lambda network: network,
    "parallel": nn.DataParallel,
    "compiled": lambda network: torch.compile(network, backend="eager"),
    "both": lambda network: torch.compile(nn.DataParallel(network), backend="eager"),
    "fabric": _fabric,
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_layers_by_the_names_that_a_wrapped_network_shows(wrapper: str) -> None:
    network = seeded(Twice).eval()
    wrapped = WRAPPERS[wrapper](network)
    for name, module in wrapped.named_modules():
        if isinstance(module, (nn.Conv2d, nn.ReLU)):
            found = l2caf.explain(wrapped, pixels(), layer=name)
            assert torch.equal(found.weights, l2caf.explain(network, pixels(), layer=module).weights)
    for layer in l2caf.usable_layers(wrapped, pixels()):  # and by those that we show
        assert l2caf.explain(wrapped, pixels(), layer=layer.name).layer == layer.name


@pytest.mark.parametrize("layer", [5, [], ["0", 3], {"0": 1}, b"0", torch.zeros(2)], ids=repr)
def test_layers_that_are_none(layer: Any) -> None:
    with pytest.raises(LayerError, match=r"give a module of the network|name one, or leave layer out") as caught:
        l2caf.explain(seeded(nets.pooled), pixels(), layer=layer)
    assert caught.value.field == "layer"
