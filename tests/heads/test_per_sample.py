"""A batch gives what its samples give one by one: endpoint, solver and outcome included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import l2caf
import networks_for_tests as nets
from l2caf.heads.recorded import RecordedHead
from l2caf.recording.replay import Replay
from methods_for_tests import SHORT_SEARCH
from networks_for_tests import CHANNELS, CLASSES, pixels, seeded


def batch() -> Tensor:
    """Bright, dark, faint, constant, and bright again: as different as samples of one batch can be."""
    bright, other = pixels(2)
    return torch.stack([bright, torch.zeros_like(bright), 1e-3 * bright, torch.full_like(bright, 0.5), other])


class Written(nn.Module):
    """A convolution without bias, and what follows it written in each case."""

    def __init__(self, follows: Callable[[Any, Tensor], Tensor], **others: nn.Module) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, CHANNELS, 8, stride=8, bias=False)
        self.hidden = nn.Linear(CHANNELS, 6)
        self.scores = nn.Linear(6, CLASSES)
        self.norm = nn.LayerNorm(CHANNELS, eps=1e-12)
        self.direct = nn.Linear(CHANNELS, CLASSES)
        for name, module in others.items():
            setattr(self, name, module)
        self.follows = follows

    def forward(self, x: Tensor) -> Tensor:
        return self.follows(self, self.conv(x))


def rectified(net: Any, x: Tensor) -> Tensor:
    return net.scores(F.relu(net.hidden(x.mean(dim=(2, 3)))))


def pooled_and_rectified(net: Any, x: Tensor) -> Tensor:
    return net.scores(net.relu(net.hidden(net.pool(x).flatten(1))))


def normalised(net: Any, x: Tensor) -> Tensor:
    return net.direct(net.norm(x.mean(dim=(2, 3))))


def normalised_with_a_floor(net: Any, x: Tensor) -> Tensor:
    """A faint sample lies below the norm's own constant, and feels scale; a bright one does not."""
    return net.direct(F.layer_norm(x.mean(dim=(2, 3)), (CHANNELS,), eps=1e-5))


def rectified_map(net: Any, x: Tensor) -> Tensor:
    return net.direct(F.relu(x).mean(dim=(2, 3)))


def most(net: Any, x: Tensor) -> Tensor:
    return net.direct(F.relu(x.amax(dim=(2, 3)) - 0.1))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "mean and linear": (nets.pooled, "1"),
    "flattened": (nets.flattened, "1"),
    "curved": (nets.curved, "1"),
    "rectified after the mean": (lambda: Written(rectified), "conv"),
    "rectified modules": (
        lambda: Written(pooled_and_rectified, pool=nn.AdaptiveAvgPool2d(1), relu=nn.ReLU()),
        "conv",
    ),
    "normalised": (lambda: Written(normalised), "conv"),
    "normalised with a floor": (lambda: Written(normalised_with_a_floor), "conv"),
    "rectified map": (lambda: Written(rectified_map), "conv"),
    "most": (lambda: Written(most), "conv"),
}
OBJECTIVES: dict[str, l2caf.Objective] = {"oblivious": l2caf.ClassOblivious(), "class": l2caf.ClassSpecific(1)}


def found(network: nn.Module, inputs: Tensor, layer: str, objective: l2caf.Objective) -> Any:
    """Through a recording, since a plan would hide what is decided from this batch."""
    return l2caf.AttentionFilter(objective, solver=SHORT_SEARCH).on(RecordedHead(Replay(network, inputs, layer=layer)))


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_batch_is_its_samples(name: str, objective: str) -> None:
    make, layer = NETWORKS[name]
    network, inputs = seeded(make), batch()
    together = found(network, inputs, layer, OBJECTIVES[objective]).solution
    for sample in range(len(inputs)):
        alone = found(network, inputs[sample : sample + 1], layer, OBJECTIVES[objective]).solution
        own = together.of_sample(sample)
        assert (together.outcome[sample], own.endpoint) == (alone.outcome[0], alone.endpoint), sample
        assert alone.solver in own.solver
        # A descent into one of many valleys is the solver's affair; what is asked, and how, is decided here.
        if alone.outcome[0] == "exact" or objective == "oblivious":
            torch.testing.assert_close(together.filter[sample], alone.filter[0], rtol=1e-3, atol=1e-3)
            torch.testing.assert_close(together.loss[sample], alone.loss[0], rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("name", ["rectified modules", "rectified after the mean", "rectified map"])
def test_no_sample_depends_on_its_place(name: str) -> None:
    make, layer = NETWORKS[name]
    network, inputs = seeded(make), batch()
    one = found(network, inputs, layer, l2caf.ClassOblivious()).solution
    other = found(network, inputs.flip(0), layer, l2caf.ClassOblivious()).solution
    assert one.outcome == other.outcome[::-1]
    torch.testing.assert_close(one.filter, other.filter.flip(0), rtol=1e-3, atol=1e-3)


def test_a_straight_sample_stays_exact_beside_a_bent_one() -> None:
    """The rectifier opens and shuts for the one, and is open for every filter of the other, which is faint."""
    network = seeded(lambda: Written(rectified))
    with torch.no_grad():
        network.hidden.bias.fill_(0.5)  # so that a faint map opens no rectifier and shuts none
    bright = 20 * pixels(1)
    faint = 1e-3 * pixels(1, seed=1)
    alone = found(network, faint, "conv", l2caf.ClassOblivious()).solution
    assert alone.outcome == ["exact"]
    assert found(network, bright, "conv", l2caf.ClassOblivious()).solution.outcome == ["converged"]
    together = found(network, torch.cat([bright, faint]), "conv", l2caf.ClassOblivious()).solution
    assert together.outcome == ["converged", "exact"]
    assert together.solver == "Riemannian and Exact"
    # Its numbers have lost three digits beside the bias.
    torch.testing.assert_close(together.filter[1], alone.filter[0], rtol=1e-3, atol=1e-3)


def test_samples_of_one_batch_have_endpoints_of_their_own() -> None:
    network = seeded(lambda: Written(normalised_with_a_floor))
    inputs = torch.cat([100 * pixels(1), 1e-4 * pixels(1)])
    solution = found(network, inputs, "conv", l2caf.ClassOblivious()).solution
    assert [solution.of_sample(sample).endpoint for sample in range(2)] == ["mean of conv", "output"]
    assert set(solution.endpoint.split(" and ")) == {"mean of conv", "output"}


def test_a_sample_that_nothing_moves_decides_nothing() -> None:
    network, inputs = seeded(lambda: Written(rectified)), batch()
    head = RecordedHead(Replay(network, inputs, layer="conv"))
    assert head.moved().tolist() == [True, False, True, True, True]
    dark = RecordedHead(Replay(network, inputs[1:2], layer="conv"))
    assert dark.is_affine  # a constant is
    mapping = dark.affine()
    assert mapping is not None
    assert not mapping.jacobian.any()


def test_what_is_shut_at_one_filter_may_be_open_at_another() -> None:
    """Untouched, and at filters that are large, the rectifier is shut; at small ones it opens: the output moves."""

    def opens_when_small(net: Any, x: Tensor) -> Tensor:
        return net.direct.weight.sum() * F.relu(0.2 - x.abs().amax(dim=(1, 2, 3)).unsqueeze(1)) + x.new_ones(1, 3)

    network = seeded(lambda: Written(opens_when_small))
    head = RecordedHead(Replay(network, 10 * pixels(), layer="conv"))
    assert head.moved().tolist() == [True, True]


def test_several_maps_and_labels_of_samples_that_are_solved_apart() -> None:
    network = seeded(lambda: Written(rectified))
    with torch.no_grad():
        network.hidden.bias.fill_(0.5)
    inputs = torch.cat([20 * pixels(1), 1e-3 * pixels(1, seed=1)])
    objective = l2caf.ClassSpecific(top=2)
    together = found(network, inputs, "conv", objective)
    assert together.weights.shape == (2, 2, 4, 4)
    for sample in range(2):
        alone = found(network, inputs[sample : sample + 1], "conv", objective)
        assert together.solution.outcome[sample] == alone.solution.outcome[0]
        torch.testing.assert_close(together.solution.loss[sample], alone.solution.loss[0], rtol=1e-3, atol=1e-6)
        assert together.classes[sample].tolist() == alone.classes[0].tolist()


def test_a_sample_that_is_not_finite_goes_with_the_others() -> None:
    network, inputs = seeded(lambda: Written(rectified)), batch()
    inputs = torch.cat([inputs, torch.full_like(inputs[:1], torch.nan)])
    solution = found(network, inputs, "conv", l2caf.ClassOblivious()).solution
    assert solution.outcome[-1] == "non_finite"
    assert solution.outcome[:-1] == found(network, inputs[:-1], "conv", l2caf.ClassOblivious()).solution.outcome
