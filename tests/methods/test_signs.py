"""What is minimised and what is maximised: planted signals decide which sign means what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

import l2caf
from l2caf.methods.attention_filter import as_objective
from l2caf.objectives.objective import General, LeastSquares, Linear, Losses, Objective

FOR, AGAINST = (slice(0, 16), slice(0, 16)), (slice(48, 64), slice(48, 64))


class Planted(nn.Module):
    """Red squares raise output 0, green ones lower it; the map has a cell for each 8 x 8 pixels."""

    def __init__(self, *, curved: bool = False) -> None:
        super().__init__()
        self.map = nn.AvgPool2d(8)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.scores = nn.Linear(3, 2)
        self.curve: nn.Module = nn.Tanh() if curved else nn.Identity()
        with torch.no_grad():
            self.scores.weight.copy_(torch.tensor([[4.0, -4.0, 0.0], [0.0, 0.0, 1.0]]))
            self.scores.bias.zero_()

    def forward(self, pictures: Tensor) -> Tensor:
        found: Tensor = self.curve(self.scores(self.pool(self.map(pictures)).flatten(1)))
        return found


def planted() -> Tensor:
    """Red at the top left, green at the bottom right."""
    picture = torch.zeros(1, 3, 64, 64)
    picture[0, 0][FOR] = 1
    picture[0, 1][AGAINST] = 1
    return picture


def share(heat: Tensor, square: tuple[slice, slice]) -> float:
    """How much of the heat lies on a square, with the half cell by which it is smoothed."""
    rows, columns = (slice(max(0, side.start - 4), side.stop + 4) for side in square)
    return float(heat[rows, columns].sum() / heat.sum())


@dataclass(frozen=True)
class Along(Objective):
    """min sign * FT_0, as docs/extend.md has an objective: it says nothing of signs."""

    sign: float

    def losses(self, output: Tensor) -> Losses:
        direction = torch.zeros_like(output)
        direction[:, 0] = self.sign
        return Losses((Linear(direction),))


ASKED: dict[str, Callable[[float], Objective | Callable[[Tensor], Tensor]]] = {
    "a function": lambda sign: lambda output: sign * output[:, 0],
    "a linear loss": Along,
}


@pytest.mark.parametrize("curved", [False, True], ids=["straight", "curved"])
@pytest.mark.parametrize("asked", ASKED)
def test_what_is_minimised_and_what_is_maximised_give_different_pictures(asked: str, curved: bool) -> None:
    network = Planted(curved=curved).eval()
    raised = l2caf.explain(network, planted(), objective=ASKED[asked](-1.0))
    lowered = l2caf.explain(network, planted(), objective=ASKED[asked](1.0))
    # A positive weight is what lowers the loss: red raises the output, so that it lowers the loss -FT_0.
    assert share(raised.maps[0], FOR) > 0.95
    assert share(lowered.maps[0], AGAINST) > 0.95
    assert share(raised.signed[0].clamp_max(0), AGAINST) > 0.95
    assert share(lowered.signed[0].clamp_max(0), FOR) > 0.95


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_a_positive_weight_lowers_the_loss_by_a_finite_difference(sign: float) -> None:
    network = Planted(curved=True).eval()
    heatmap = l2caf.explain(network, planted(), objective=lambda output: sign * output[:, 0])
    features = network.map(planted())

    def loss(weights: Tensor) -> float:
        pooled = (features * weights).mean(dim=(2, 3))
        return float(sign * network.curve(network.scores(pooled))[0, 0].detach())

    untouched = torch.ones(8, 8)
    for place in ((0, 0), (7, 7)):
        more = untouched.clone()
        more[place] += 1e-2
        slope = loss(more) - loss(untouched)
        assert slope * float(heatmap.weights[0][place]) < 0


def test_which_losses_are_signed_unless_told_otherwise() -> None:
    output = torch.zeros(1, 2)
    linear, general, squares = Linear(output), General(lambda o: o.sum(dim=1)), LeastSquares(output)
    assert Losses((linear,)).keeps_sign
    assert Losses((general,)).keeps_sign
    assert not Losses((squares,)).keeps_sign
    assert Losses((squares, linear)).keeps_sign
    assert not Losses((linear,), signed=False).keeps_sign
    assert Losses((squares,), signed=True).keeps_sign
    assert as_objective(lambda o: o[:, 0]).losses(output).keeps_sign
    assert not l2caf.ClassOblivious().losses(output).keeps_sign
    assert not l2caf.ClassSpecific(0, published=True).losses(output).keeps_sign


class OneLogit(nn.Module):
    """Red raises the one logit and green lowers it; one number per sample, or a row of one."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.planted, self.shape = Planted(), shape

    def forward(self, pictures: Tensor) -> Tensor:
        found: Tensor = self.planted(pictures)[:, 0].reshape(-1, *self.shape)
        return found


METHODS = {
    "its own class": l2caf.AttentionFilter(l2caf.ClassSpecific()),
    "class 0": l2caf.AttentionFilter(l2caf.ClassSpecific(0)),
    "published": l2caf.AttentionFilter(l2caf.ClassSpecific(0, published=True)),
    "label": l2caf.AttentionFilter(l2caf.ClassSpecific(labels=[0])),
    "CAM": l2caf.CAM(),
    "GradCAM": l2caf.GradCAM(0),
}


@pytest.mark.parametrize("shape", [(), (1,)], ids=["(B,)", "(B, 1)"])
@pytest.mark.parametrize("method", METHODS)
def test_one_logit_is_a_class_of_its_own(method: str, shape: tuple[int, ...]) -> None:
    heatmap = METHODS[method](OneLogit(shape).eval(), planted())
    assert heatmap.maps.shape == (1, 64, 64)
    assert heatmap.classes.tolist() == [[0]]
    # Grad-CAM weighs whole channels, so that green is against; the published form shows magnitudes.
    assert share(heatmap.signed[0].clamp_min(0), FOR) > 0.95
    if not heatmap.solution.is_formula:
        assert heatmap.solution.outcome == ["exact"]
    if method != "published":
        assert share(heatmap.maps[0], FOR) > 0.95


def test_one_logit_has_no_second_class() -> None:
    with pytest.raises(l2caf.errors.ClassError, match="Class 1 is out of range: the network has one class, 0"):
        l2caf.explain(OneLogit(()).eval(), planted(), objective=l2caf.ClassSpecific(1))


class TestClassesAndLabels:
    batch = torch.cat([planted(), planted().flip(2), planted().flip(3)])

    @pytest.mark.parametrize("make", [l2caf.ClassSpecific, l2caf.CAM, l2caf.GradCAM, l2caf.GradCAMAbs])
    @pytest.mark.parametrize("given", [torch.tensor([0, 1, 0]), [0, 1, 0], (0, 1, 1)], ids=repr)
    def test_a_list_as_long_as_the_batch_may_mean_two_things(self, make: type, given: object) -> None:
        network, asked = Planted().eval(), make(given)
        method = l2caf.AttentionFilter(asked) if isinstance(asked, Objective) else asked
        with pytest.raises(l2caf.errors.ClassError, match=r"give labels= for one .* or classes= for a map of each"):
            method(network, self.batch)

    def test_the_networks_own_choice_is_refused_without_a_name_and_right_with_one(self) -> None:
        network = Planted().eval()
        best = network(self.batch).argmax(dim=1)
        with pytest.raises(l2caf.errors.ClassError, match="labels="):
            l2caf.explain(network, self.batch, objective=l2caf.ClassSpecific(best))
        found = l2caf.explain(network, self.batch, objective=l2caf.ClassSpecific(labels=best))
        assert found.maps.shape == (3, 64, 64)
        torch.testing.assert_close(found.maps, l2caf.explain(network, self.batch, objective=l2caf.ClassSpecific()).maps)

    def test_both_have_a_name(self) -> None:
        network = Planted().eval()
        each = l2caf.GradCAM(classes=[0, 1, 0])(network, self.batch)
        own = l2caf.GradCAM(labels=[0, 1, 0])(network, self.batch)
        assert each.maps.shape == (3, 3, 64, 64)
        assert own.maps.shape == (3, 64, 64)
        for sample in range(3):
            torch.testing.assert_close(each.weights[sample, sample], own.weights[sample])

    def test_a_list_of_another_length_is_clear(self) -> None:
        network = Planted().eval()
        assert l2caf.GradCAM([0, 1])(network, self.batch).maps.shape == (3, 2, 64, 64)
        assert l2caf.GradCAM([1])(network, self.batch[:1]).maps.shape == (1, 1, 64, 64)

    @pytest.mark.parametrize("top", [True, 0, -1, 1.5, "2", 3, torch.tensor([1, 2])], ids=repr)
    def test_a_number_of_best_classes_that_is_none(self, top: object) -> None:
        with pytest.raises(l2caf.errors.ClassError, match=r"The best .* classes are asked for"):
            l2caf.explain(Planted().eval(), self.batch, objective=l2caf.ClassSpecific(top=top))  # type: ignore[arg-type]

    @pytest.mark.parametrize("given", [True, [True, False], 1.5, "cat", [[0, 1]], {"a": 1}], ids=repr)
    def test_what_names_no_class(self, given: object) -> None:
        with pytest.raises(l2caf.errors.ClassError, match="names no class"):
            l2caf.explain(Planted().eval(), self.batch, objective=l2caf.ClassSpecific(given))  # type: ignore[arg-type]
