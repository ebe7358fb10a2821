"""What cannot be explained is said in a sentence, and what says nothing is never shown as if it did."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn

import l2caf
import networks_for_tests as nets
from l2caf.errors import InputError, NetworkError, OutputError
from l2caf.networks.imports import import_timm, import_torchvision
from l2caf.objectives.classes import ClassSpecific
from l2caf.solvers.gradient_descent import GradientDescent
from methods_for_tests import METHODS
from networks_for_tests import pixels, seeded

OBJECTIVES = {"oblivious": None, "specific": ClassSpecific(1)}


@pytest.mark.parametrize(
    ("inputs", "match"),
    [
        (torch.rand(0, 3, 32, 32), "batch is empty"),
        (torch.rand(32, 32), "No input has a map"),
        (torch.zeros(1, 3, 32, 32, dtype=torch.uint8), "floating-point"),
        (numpy.zeros((1, 3, 32, 32)), "ndarray"),
        ("cat.png", "str"),
        (None, "NoneType"),
        ([], "No input has a map"),
        ({}, "No input has a map"),
    ],
    ids=["empty", "no batch", "integers", "array", "text", "nothing", "no arguments", "no names"],
)
def test_inputs_that_are_none(inputs: Any, match: str) -> None:
    with pytest.raises(InputError, match=match):
        l2caf.explain(seeded(nets.pooled), inputs)


@pytest.mark.parametrize("network", [lambda x: x, "resnet50", None], ids=["function", "text", "nothing"])
def test_networks_that_are_none(network: Any) -> None:
    with pytest.raises(NetworkError, match=r"give a torch\.nn\.Module"):
        l2caf.explain(network, pixels())


def test_a_networks_own_error_comes_through() -> None:
    class Fails(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nets.pooled()

        def forward(self, x: Tensor) -> Tensor:
            raise RuntimeError("it is Monday")

    with pytest.raises(RuntimeError, match="it is Monday"):
        l2caf.explain(seeded(Fails), pixels())


@pytest.mark.parametrize(("make", "kind"), [(nets.Pair, "tuple of 2"), (nets.Named, "dict with 'one', 'other'")])
def test_an_output_that_is_no_tensor(make: Any, kind: str) -> None:
    with pytest.raises(OutputError, match=rf"{kind}.*output=") as caught:
        l2caf.explain(seeded(make), pixels())
    assert caught.value.field == "output"


@pytest.mark.parametrize(
    ("make", "select"),
    [
        (nets.Pair, 0),
        (nets.Pair, lambda out: out[0]),
        (nets.Named, "other"),
        (nets.Named, lambda out: out["one"]),
    ],
)
def test_selecting_an_output(make: Any, select: Any) -> None:
    heatmap = l2caf.explain(seeded(make), pixels(), output=select, objective=ClassSpecific(1))
    assert heatmap.solution.outcome == ["exact", "exact"]


@pytest.mark.parametrize(
    ("make", "select"),
    [(nets.Pair, 2), (nets.Pair, "logits"), (nets.Named, "logits"), (nets.pooled, "logits")],
)
def test_selecting_what_is_not_there(make: Any, select: Any) -> None:
    with pytest.raises(OutputError, match="There is no output"):
        l2caf.explain(seeded(make), pixels(), output=select)


def test_an_output_without_a_row_a_sample() -> None:
    class Summed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nets.pooled()

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x).sum()

    with pytest.raises(OutputError, match="one row for each of the 2 inputs"):
        l2caf.explain(seeded(Summed), pixels())


# Samples that cannot be explained


SPOILT = {1: float("nan"), 2: float("inf"), 4: -float("inf")}  # the values in samples of a batch of five
WHOLE = [0, 3]


@pytest.mark.parametrize("make", [nets.pooled, nets.curved, nets.Normalised, nets.RectifiedAfterLayer])
@pytest.mark.parametrize("method", [name for name in METHODS if name != "CAM" and "vanilla" not in name])
def test_a_sample_that_is_not_finite_leaves_the_others_alone(method: str, make: Any) -> None:
    network = seeded(make)
    inputs = pixels(5)
    expected = METHODS[method](network, inputs)
    for sample, value in SPOILT.items():
        inputs[sample, :, 3, 3] = value
    found = METHODS[method](network, inputs)
    assert found.maps.isfinite().all()
    for sample in SPOILT:
        assert torch.equal(found.maps[sample], torch.zeros_like(found.maps[sample]))
        outcome = found.solution.outcome[sample]
        assert outcome == "non_finite" or outcome == ["non_finite"] * 2
    for sample in WHOLE:
        assert found.solution.outcome[sample] == expected.solution.outcome[sample]
    if not found.solution.is_formula and "Riemannian" in found.solution.solver:
        torch.testing.assert_close(found.solution.loss[WHOLE], expected.solution.loss[WHOLE], rtol=0.05, atol=1e-4)
        return
    torch.testing.assert_close(found.maps[WHOLE], expected.maps[WHOLE], rtol=0, atol=1e-4)


@pytest.mark.parametrize("solver", [l2caf.Auto(), l2caf.Riemannian(), GradientDescent(steps=300)], ids=repr)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_sample_without_signal_is_unmoved(objective: str, solver: Any) -> None:
    network = seeded(nets.pooled)
    network[0].bias = None
    inputs = pixels(2)
    inputs[0] = 0
    heatmap = l2caf.explain(network, inputs, objective=OBJECTIVES[objective], solver=solver)
    assert heatmap.solution.outcome[0] == "unmoved"
    assert not heatmap.solution.outcome[1].shows_nothing
    assert heatmap.solution.filter[0].max() == heatmap.solution.filter[0].min()  # not the noise of a random start
    assert not heatmap.maps[0].any()
    alone = l2caf.explain(network, inputs[:1], objective=OBJECTIVES[objective], solver=solver)
    assert alone.solution.outcome == ["unmoved"]


@pytest.mark.parametrize("solver", [l2caf.Auto(), l2caf.Riemannian()], ids=repr)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_constant_features_are_uniform(objective: str, solver: Any) -> None:
    inputs = torch.full((1, 3, 32, 32), 0.7)
    heatmap = l2caf.explain(seeded(nets.pooled), inputs, objective=OBJECTIVES[objective], solver=solver)
    assert heatmap.solution.outcome == ["uniform"]
    assert not heatmap.maps.any()


@pytest.mark.parametrize("solver", [l2caf.Auto(), GradientDescent(steps=60)], ids=repr)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_network_that_does_not_feel_the_filter(objective: str, solver: Any) -> None:
    heatmap = l2caf.explain(seeded(nets.Unfelt), pixels(), objective=OBJECTIVES[objective], solver=solver)
    assert heatmap.solution.outcome == ["unmoved"] * 2
    for parameter in (network := seeded(nets.Unfelt)).parameters():
        parameter.requires_grad_(False)
    assert l2caf.explain(network, pixels(), solver=solver).solution.outcome == ["unmoved"] * 2
    assert torch.equal(l2caf.GradCAM(1)(network, pixels()).maps, torch.zeros(2, 32, 32))


# Heads that do not feel scale


def assert_informative_or_said(heatmap: Any) -> None:
    assert heatmap.solution.endpoint
    for weights, outcome in zip(heatmap.weights, heatmap.solution.outcome, strict=True):
        magnitude = weights.abs()
        if outcome.shows_nothing:
            continue
        assert outcome in ("exact", "converged", "step_limit")
        assert magnitude.min() < 0.99 * magnitude.max()


def test_a_normalised_head_is_judged_before_the_norm() -> None:
    heatmap = l2caf.explain(seeded(nets.Normalised), pixels())
    assert heatmap.solution.endpoint == "pool"
    assert heatmap.solution.outcome == ["exact", "exact"]
    assert_informative_or_said(heatmap)
    specific = l2caf.explain(seeded(nets.Normalised), pixels(), objective=ClassSpecific(1))
    assert specific.solution.endpoint == "output"


def test_where_nothing_feels_scale_it_is_said() -> None:
    class Unit(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, nets.CHANNELS, 4, stride=4)

        def forward(self, x: Tensor) -> Tensor:
            return torch.nn.functional.normalize(self.conv(x).square().mean(dim=(2, 3)), dim=1)

    heatmap = l2caf.explain(seeded(Unit), pixels())
    assert heatmap.solution.outcome == ["uniform"] * 2


@pytest.mark.parametrize(
    ("name", "size"),
    [("torchvision:convnext_tiny", 64), ("timm:vit_tiny_patch16_224", 224), ("timm:convnext_atto", 64)],
)
def test_no_silent_flat_map_on_known_networks(name: str, size: int) -> None:
    library, _, name = name.partition(":")
    make = import_timm().create_model if library == "timm" else import_torchvision().models.get_model
    torch.manual_seed(0)
    heatmap = l2caf.explain(make(name).eval(), pixels(1, size=(size, size)))
    assert_informative_or_said(heatmap)


# The state that the network and its surroundings are in


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("around", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_surroundings_make_no_difference(method: str, around: Any) -> None:
    network = seeded(nets.pooled)
    expected = METHODS[method](network, pixels())
    with around():
        inputs = pixels()
        found = METHODS[method](network, inputs)
        maps = found.maps
    torch.testing.assert_close(maps, expected.maps)
    assert torch.equal(METHODS[method](network, inputs).weights, found.weights)  # also with what was made in there


@pytest.mark.parametrize("method", METHODS)
def test_training_mode_makes_no_difference(method: str) -> None:
    network = seeded(lambda: nn.Sequential(*nets.pooled()[:2], nn.BatchNorm2d(8), nn.Dropout(), *nets.pooled()[2:]))
    expected = METHODS[method](network, pixels())
    found = METHODS[method](network.train(), pixels())
    assert torch.equal(found.maps, expected.maps)
    assert network.training


@pytest.mark.parametrize("method", METHODS)
def test_frozen_parameters_make_no_difference(method: str) -> None:
    network = seeded(nets.pooled)
    expected = METHODS[method](network, pixels())
    found = METHODS[method](network.requires_grad_(False), pixels())
    assert torch.equal(found.maps, expected.maps)


@pytest.mark.parametrize("method", METHODS)
def test_double_precision(method: str) -> None:
    network = seeded(nets.pooled)
    expected = METHODS[method](network, pixels())
    found = METHODS[method](network.double(), pixels().double())
    slack = 0.05 if "Softmax" in method or "Gaussian" in method else 1e-4
    torch.testing.assert_close(found.maps.float(), expected.maps, rtol=0, atol=slack)


def loud() -> nn.Module:
    """Large weights and no bias, so that half precision has something to see."""
    network = seeded(lambda: nets.pooled(classes=20))
    with torch.no_grad():
        for module in network:
            if hasattr(module, "bias"):
                module.weight *= 4
                module.bias.zero_()
    return network


def alike(one: Tensor, other: Tensor) -> float:
    return float(torch.nn.functional.cosine_similarity(one.float().flatten(1), other.float().flatten(1)).min())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("how", ["bfloat16", "autocast"])
def test_half_precision(method: str, how: str) -> None:
    network = loud()
    expected = METHODS[method](network, pixels()).maps
    if how == "autocast":
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = METHODS[method](network, pixels())
    else:
        found = METHODS[method](network.bfloat16(), pixels().bfloat16())
    assert found.maps.dtype == torch.float32
    assert found.maps.isfinite().all()
    assert alike(found.maps, expected) > 0.9
