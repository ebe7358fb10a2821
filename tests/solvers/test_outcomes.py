"""Each outcome says one thing, a loss belongs to the filter beside it, and a map that shows nothing is all 0."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import l2caf
import networks_for_tests as nets
from l2caf.errors import InputError
from l2caf.heads.recorded import RecordedHead
from l2caf.methods.attention_filter import pose
from l2caf.objectives.objective import General, LeastSquares, Linear, Losses, Objective
from l2caf.recording.positions import Verdict
from l2caf.recording.replay import Replay
from l2caf.solution import Outcome
from l2caf.solvers.solver import Found
from networks_for_tests import pixels, seeded


def hooked(network: nn.Module, inputs: Tensor, layer: str, filters: Tensor) -> Tensor:
    """The output with the layer's map multiplied by (B, *grid) filters."""
    hook = network.get_submodule(layer).register_forward_hook(lambda module, args, out: out * filters.unsqueeze(1))
    try:
        with torch.no_grad():
            return network(inputs)
    finally:
        hook.remove()


def test_every_outcome_has_a_sentence_of_its_own() -> None:
    sentences = [outcome.sentence for outcome in Outcome]
    assert len(set(sentences)) == len(sentences)
    assert all(sentence and not sentence.endswith(".") for sentence in sentences)
    assert {outcome for outcome in Outcome if outcome.shows_nothing} == {"uniform", "unmoved", "non_finite"}


# Pictures that show nothing


def max_pooled() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 4, stride=4), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(8, 5)
    )


FLAT_HEADS = {"mean": nets.pooled, "maximum": max_pooled, "rectified after pooling": nets.RectifiedAfterPooling}
OBJECTIVES = {"oblivious": None, "class": l2caf.ClassSpecific(1), "published": l2caf.ClassSpecific(1, published=True)}


@pytest.mark.parametrize("noise", [0.0, 1e-6])
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("head", FLAT_HEADS)
def test_a_grey_picture_gets_no_blob(head: str, objective: str, noise: float) -> None:
    """Without padding, all positions of a grey picture are the same; what differs by rounding is no finding."""
    generator = torch.Generator().manual_seed(0)
    grey = 0.7 * (1 + noise * torch.randn(1, 3, 32, 32, generator=generator))
    heatmap = l2caf.explain(seeded(FLAT_HEADS[head]), grey, objective=OBJECTIVES[objective])
    assert heatmap.solution.outcome[0] in ("uniform", "unmoved")
    assert not heatmap.weights.any()
    assert not heatmap.maps.any()
    assert not heatmap.signed.any()
    assert heatmap.solution.filter.any()


def test_a_border_is_a_signal() -> None:
    """With padding, the positions at the border of a grey picture do differ."""
    network = seeded(
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 9, stride=4, padding=4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)
        )
    )
    heatmap = l2caf.explain(network, torch.full((1, 3, 32, 32), 0.7))
    assert heatmap.solution.outcome == ["exact"]
    assert heatmap.maps.max() == 1


def test_a_loss_that_cancels_but_for_rounding_shows_nothing() -> None:
    """Three classes with the same weights: raising one above the others is no question, and rounding is no answer."""
    network = seeded(lambda: nets.pooled(classes=3))
    with torch.no_grad():
        network[4].weight[:] = network[4].weight[:1].clone()
    for _ in range(2):  # recorded, then planned
        heatmap = l2caf.explain(network, pixels(), objective=l2caf.ClassSpecific(0))
        assert heatmap.solution.outcome == ["uniform", "uniform"]
        assert not heatmap.maps.any()


@pytest.mark.parametrize("solver", [l2caf.Auto(), l2caf.Riemannian(), l2caf.GradientDescent(steps=60)], ids=repr)
def test_the_loss_of_an_unmoved_sample_is_that_of_its_filter(solver: Any) -> None:
    network, inputs = seeded(nets.pooled), pixels()
    network[0].bias = None
    inputs[1] = 0
    objective = l2caf.Similarity(torch.arange(1.0, 6))
    solution = l2caf.explain(network, inputs, objective=objective, solver=solver).solution
    assert solution.outcome[1] == "unmoved"
    output = hooked(network, inputs, "1", solution.filter)
    torch.testing.assert_close(solution.loss.float(), -output @ torch.arange(1.0, 6), rtol=1e-4, atol=1e-5)


class Shut(nn.Module):
    """Rectifiers that are shut for the untouched map and at most filters, and open where one position stands out."""

    def __init__(self, threshold: float) -> None:
        super().__init__()
        self.map = nn.Identity()
        self.threshold = threshold

    def forward(self, x: Tensor) -> Tensor:
        x = self.map(x).flatten(1)
        contrast = x.amax(dim=1, keepdim=True) - x.mean(dim=1, keepdim=True) - self.threshold
        return torch.cat([torch.relu(contrast), torch.zeros_like(contrast)], dim=1)


def test_a_head_that_opens_elsewhere_is_not_called_uniform() -> None:
    """All filters near the uniform one leave the output at 0, and a single position does not."""
    solution = l2caf.explain(Shut(0.75), torch.ones(1, 1, 3, 3), objective=l2caf.ClassSpecific(0), layer="map").solution
    # One position alone gives 1 - 1/9 - 0.75; the others, pushed below zero, 1/3 of the square root of 8 at most.
    assert not solution.outcome[0].shows_nothing or float(solution.loss) <= -0.13
    assert float(solution.loss) == pytest.approx(-((8 / 9) ** 0.5) + 0.75, abs=0.01)


def test_a_sample_that_is_not_finite_has_no_loss() -> None:
    inputs = pixels()
    inputs[1, 0, 0, 0] = torch.nan
    for make in (nets.pooled, nets.curved):
        solution = l2caf.explain(seeded(make), inputs).solution
        assert solution.outcome[1] == "non_finite"
        assert solution.loss[1].isnan()
        assert not solution.filter[1].any()
        assert solution.loss[0].isfinite()


# Layers whose positions are not certain


@pytest.mark.parametrize(("make", "said"), [(nets.pooled, "exact"), (nets.curved, "converged")])
def test_what_is_not_verified_is_undecided(make: Any, said: str) -> None:
    head = RecordedHead(Replay(seeded(make), pixels()))

    certain = l2caf.Auto().solve(pose(head, l2caf.UnitL2(), l2caf.ClassOblivious())[0])
    assert certain.outcome == [said, said]
    head.layer = replace(head.layer, verdict=Verdict.UNDECIDED, why="no slab moves the positions beneath it alone")
    open_ = l2caf.Auto().solve(pose(head, l2caf.UnitL2(), l2caf.ClassOblivious())[0])
    assert open_.outcome == ["undecided", "undecided"]
    assert head.layer.why in open_.reason
    torch.testing.assert_close(open_.filter, certain.filter)
    head.layer = replace(head.layer, verdict=Verdict.CONFIRMED)
    assert l2caf.Auto().solve(pose(head, l2caf.UnitL2(), l2caf.ClassOblivious())[0]).outcome == [said, said]


# Several losses, and losses that do not fit


@dataclass(frozen=True)
class Asked(Objective):
    given: tuple[Any, ...]
    several: bool = True

    def losses(self, output: Tensor) -> Losses:
        return Losses(self.given, several=self.several)


def test_losses_of_every_kind_together() -> None:
    network, inputs = seeded(nets.pooled), pixels()
    direction, target = torch.randn(2, 5), torch.randn(2, 5)
    kinds = (General(lambda out: out[:, 0].square()), Linear(direction), LeastSquares(target))
    together = l2caf.explain(network, inputs, objective=Asked(kinds)).solution
    assert together.loss.shape == (2, 3)
    assert [row[1:] for row in together.outcome] == [["exact", "exact"]] * 2
    assert together.solver == "Riemannian and Exact"
    for number, loss in enumerate(kinds):
        alone = l2caf.explain(network, inputs, objective=Asked((loss,), several=False)).solution
        torch.testing.assert_close(alone.loss, together.loss[:, number])


def test_two_losses_for_one_map_are_refused() -> None:
    losses = (Linear(torch.randn(2, 5)), Linear(torch.randn(2, 5)))
    with pytest.raises(InputError, match=r"2 losses for one map per sample.*several=True"):
        l2caf.explain(seeded(nets.pooled), pixels(), objective=Asked(losses, several=False))


@pytest.mark.parametrize("make", [nets.pooled, nets.curved])
@pytest.mark.parametrize("kind", [Linear, LeastSquares])
def test_what_a_loss_says_once_holds_for_every_sample(make: Any, kind: Any) -> None:
    given = torch.arange(5.0) - 2
    once, each = (
        l2caf.explain(seeded(make), pixels(), objective=Asked((kind(one),), several=False)).solution
        for one in (given, given.expand(2, 5).clone())
    )
    torch.testing.assert_close(once.loss, each.loss)
    torch.testing.assert_close(once.filter, each.filter)


@pytest.mark.parametrize("shape", [(4,), (3, 5), (2, 4), (2,), ()])
def test_a_loss_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"direction of the loss has shape .* but the output has \(2, 5\)"):
        l2caf.explain(seeded(nets.pooled), pixels(), objective=Asked((Linear(torch.ones(shape)),), several=False))


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"filter": l2caf.UnitL1}, r"The filter is the class UnitL1: give an object, UnitL1\(\)"),
        ({"solver": l2caf.Riemannian}, r"The solver is the class Riemannian: give an object, Riemannian\(\)"),
        ({"filter": "l1"}, "The filter is 'l1'"),
        ({"solver": 3}, "The solver is a int"),
    ],
)
def test_a_class_in_place_of_an_object(given: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match):
        l2caf.explain(seeded(nets.pooled), pixels(), **given)


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"steps": -3}, {"window": 0}])
def test_a_descent_without_steps(wrong: dict[str, int]) -> None:
    with pytest.raises(InputError, match="goes nowhere: give a whole number, at least 1"):
        l2caf.GradientDescent(**wrong)


def test_the_path_of_several_maps_is_kept() -> None:
    """Searches of different length are laid side by side: the shorter one stays where it ended."""
    solver = l2caf.GradientDescent(steps=60, window=5, tolerance=1e-3, keep_path=True)
    network = seeded(nets.curved)
    solution = l2caf.explain(network, pixels(), objective=l2caf.ClassSpecific(classes=[0, 3]), solver=solver).solution
    assert solution.path.shape[1:] == (2, 2, 4, 4)
    assert solution.losses.shape == solution.path.shape[:3]
    for number, chosen in enumerate((0, 3)):
        alone = l2caf.explain(network, pixels(), objective=l2caf.ClassSpecific(chosen), solver=solver).solution
        torch.testing.assert_close(solution.path[: len(alone.path), :, number], alone.path)
        torch.testing.assert_close(solution.path[-1, :, number], alone.path[-1])


def test_searches_of_different_length_side_by_side() -> None:
    def found(steps: int) -> Found:
        ones = torch.ones(1, 2)
        path = torch.arange(float(steps)).reshape(-1, 1, 1, 1).expand(-1, 1, 2, 3)
        outcome = [[Outcome.CONVERGED] * 2]
        return Found(torch.ones(1, 2, 3), ones, ones, ones, outcome, path=path, losses=path[..., 0])

    both = Found.stacked([found(4), found(2)])
    assert both.path is not None
    assert both.path[:, :, 0, 0].tolist() == [[0, 0], [1, 1], [2, 1], [3, 1]]


# A batch gives what its samples give one by one


def test_the_solver_is_chosen_per_sample() -> None:
    """A rectifier right after the layer: some samples have an exact filter that is nowhere negative, some have not."""
    network, inputs = seeded(nets.RectifiedAfterLayer), pixels(6)
    together = l2caf.explain(network, inputs, objective=l2caf.ClassSpecific(1)).solution
    for sample in range(6):
        alone = l2caf.explain(network, inputs[sample : sample + 1], objective=l2caf.ClassSpecific(1)).solution
        assert alone.outcome == [together.outcome[sample]]
        assert (alone.evaluations == 0).tolist() == [int(together.evaluations[sample]) == 0]
        torch.testing.assert_close(alone.loss, together.loss[sample : sample + 1], rtol=1e-3, atol=1e-5)
