"""Gradients are held to the values: where a network gives another gradient than its own, the outcome says so."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor, nn

import l2caf
import networks_for_tests as nets
from l2caf.errors import NetworkError
from l2caf.heads.recorded import RecordedHead
from l2caf.methods.attention_filter import pose
from l2caf.recording.replay import Replay
from l2caf.solvers.slope import contradicted
from networks_for_tests import pixels, seeded


class Reversal(torch.autograd.Function):
    """The gradient of domain adversarial training: the identity, with its gradient turned round."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        return -slope


class Lying(nn.Module):
    """A curved head on 3 x 3 positions whose gradient is not that of its values."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.conv = nn.Conv2d(3, 4, 4, stride=4)
        self.hidden = nn.Linear(36, 12)
        self.scores = nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.hidden(2 * self.conv(x).flatten(1))
        if self.how == "binarised":
            soft = x.tanh()
            x = soft + (x.sign() - soft).detach()
        else:
            x = x.tanh()
        if self.how == "reversed":
            x = Reversal.apply(x)
        elif self.how == "half detached":
            x = torch.cat([x[:, :6].detach(), x[:, 6:]], dim=1)
        elif self.how == "detached":
            x = x.detach()
        return self.scores(x)


def plain_losses(network: Lying, pictures: Tensor, filters: Tensor, chosen: int | None) -> Tensor:
    """By multiplying the map; (B, n) filters give (B,) losses."""
    features = network.conv(pictures)
    shape = (len(pictures), 1, 3, 3)

    def head(maps: Tensor) -> Tensor:
        x = network.hidden(2 * maps.flatten(1))
        x = x.sign() if network.how == "binarised" else x.tanh()
        return network.scores(x)

    found = head(features * filters.reshape(shape))
    if chosen is None:
        return (found - head(features)).square().sum(dim=1)
    return -2 * (found[:, chosen] - found.mean(dim=1))


@torch.no_grad()
def best_without_gradients(network: Lying, pictures: Tensor, chosen: int | None) -> Tensor:
    """SciPy's simplex from eight starts for every sample, and 3,000 random filters."""
    found = []
    for picture in pictures.split(1):
        generator = torch.Generator().manual_seed(0)
        random = nn.functional.normalize(torch.randn(3000, 9, generator=generator), dim=1)
        losses = plain_losses(network, picture.expand(3000, -1, -1, -1), random, chosen)

        def loss_at(point: Any, picture: Tensor = picture) -> float:
            filter = nn.functional.normalize(torch.as_tensor(point, dtype=torch.float32)[None], dim=1)
            return float(plain_losses(network, picture, filter, chosen))

        best = float(losses.min())
        for start in losses.argsort()[:4].tolist():
            best = min(
                best, minimize(loss_at, random[start].numpy(), method="Nelder-Mead", options={"maxfev": 600}).fun
            )
        found.append(best)
    return torch.tensor(found)


LIES = ("reversed", "half detached", "binarised", "detached")


@pytest.mark.parametrize("how", LIES)
@pytest.mark.parametrize("chosen", [None, 1], ids=["oblivious", "class"])
def test_a_gradient_that_lies_is_named_and_done_without(how: str, chosen: int | None) -> None:
    network, pictures = seeded(lambda: Lying(how), 3), pixels(2, size=(12, 12), seed=5)
    objective = None if chosen is None else l2caf.ClassSpecific(chosen)
    solution = l2caf.explain(network, pictures, objective=objective, layer="conv").solution
    if how == "binarised" and chosen is None:
        assert not solution.of_sample(0).loss[
            0
        ]  # some filters leave every bit as it was, and there is nothing more to gain
        return
    assert solution.outcome == ["stuck", "stuck"]
    assert "the gradient contradicts the values of 2 of 2 samples" in solution.reason
    assert "searched without derivatives" in solution.reason
    with torch.no_grad():
        again = plain_losses(network, pictures, solution.filter.flatten(1), chosen)
        even = plain_losses(network, pictures, torch.full((2, 9), 1 / 3), chosen)
    torch.testing.assert_close(again, solution.loss.float(), rtol=1e-4, atol=1e-6)
    best = best_without_gradients(network, pictures, chosen)
    share = 0.1 if how == "binarised" else 0.05  # steps all over: no search finds the very best one
    assert (again <= best + share * (even - best).clamp_min(1e-6)).all()


@pytest.mark.parametrize("how", LIES)
def test_the_papers_descent_says_so_too(how: str) -> None:
    network, pictures = seeded(lambda: Lying(how), 3), pixels(2, size=(12, 12), seed=5)
    solver = l2caf.GradientDescent(steps=80, window=10)
    objective = l2caf.ClassSpecific(1)
    solution = l2caf.explain(network, pictures, objective=objective, layer="conv", solver=solver).solution
    assert solution.outcome == ["stuck", "stuck"]
    assert "contradicts" in solution.reason


@pytest.mark.parametrize("solver", [l2caf.Riemannian(), l2caf.GradientDescent(steps=80)], ids=["ours", "the paper's"])
@pytest.mark.parametrize("make", [lambda: Lying("honest"), nets.curved, nets.RectifiedAfterPooling, nets.Frames])
def test_a_gradient_of_its_own_is_believed(make: Any, solver: Any) -> None:
    network = seeded(make, 3)
    size = (3, 3, 16, 16) if isinstance(network, nets.Frames) else (3, 12, 12) if isinstance(network, Lying) else None
    pictures = torch.rand(2, *(size or (3, 32, 32)), generator=torch.Generator().manual_seed(0))
    for objective in (None, l2caf.ClassSpecific(1)):
        solution = l2caf.explain(network, pictures, objective=objective, solver=solver).solution
        assert "contradicts" not in solution.reason
        assert "stuck" not in solution.outcome


def test_one_sample_that_lies_leaves_the_other_alone() -> None:
    class Sometimes(Lying):
        """Reverses the gradient of bright pictures."""

        def forward(self, x: Tensor) -> Tensor:
            bright = (x.flatten(1).mean(dim=1) > 1).unsqueeze(1)
            hidden = self.hidden(2 * self.conv(x).flatten(1)).tanh()
            return self.scores(torch.where(bright, Reversal.apply(hidden), hidden))

    network, pictures = seeded(lambda: Sometimes("honest"), 3), pixels(2, size=(12, 12), seed=5)
    pictures[1] += 2
    together = l2caf.explain(network, pictures, layer="conv").solution
    assert together.outcome == ["converged", "stuck"]
    assert "1 of 2 samples" in together.reason
    for sample in range(2):
        alone = l2caf.explain(network, pictures[sample : sample + 1], layer="conv").solution
        assert alone.outcome == [together.outcome[sample]]
        assert float(alone.loss) == pytest.approx(float(together.loss[sample]), rel=1e-3)


def test_the_check_costs_three_evaluations() -> None:
    problem = pose(RecordedHead(Replay(seeded(nets.curved), pixels())), l2caf.UnitL2(), l2caf.ClassOblivious())[0]
    before = problem.evaluations
    even = torch.full((2, problem.positions), problem.positions**-0.5, dtype=torch.float64)
    lies, spent = contradicted(problem, lambda weights: problem.value(weights.float().unsqueeze(0))[0], even)
    assert not lies.any()
    assert spent == problem.evaluations - before == 3


def test_many_positions_are_not_searched_without_derivatives() -> None:
    """A stencil around 400 positions would take longer than it is worth: the best of what was met is given."""

    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 2, stride=2)
            self.scores = nn.Linear(4, 5)

        def forward(self, x: Tensor) -> Tensor:
            return self.scores(10 * self.conv(x).mean(dim=(2, 3))).tanh().detach()

    solution = l2caf.explain(seeded(Wide), pixels(1, size=(40, 40)), layer="conv").solution
    assert math.prod(solution.filter.shape[1:]) == 400
    assert solution.outcome == ["stuck"]
    assert int(solution.evaluations) < 200


def test_weights_of_inference_mode_are_named() -> None:
    with torch.inference_mode():
        network = seeded(nets.curved)
    with pytest.raises(NetworkError, match=r"made under torch\.inference_mode.*deepcopy"):
        l2caf.explain(network, pixels())
