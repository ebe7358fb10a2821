"""Questions about a region of an image-like output."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor, nn

import l2caf
from l2caf.errors import L2cafError
from l2caf.solvers.exact import Exact

BOX = (8, 0, 20, 16)


def affine() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 6, 8, stride=8), nn.ReLU(), nn.Upsample(scale_factor=8, mode="bilinear"), nn.Conv2d(6, 3, 1)
    ).eval()


def per_pixel() -> nn.Module:
    """Scores by a 1x1 convolution of the map itself: a position of the output is one of the map."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 6, 4, stride=4), nn.ReLU(), nn.Conv2d(6, 3, 1)).eval()


def curved() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 8, stride=8), nn.ReLU(), nn.ConvTranspose2d(8, 8, 8, stride=8), nn.Tanh(), nn.Conv2d(8, 3, 1)
    ).eval()


def written_out(network: nn.Module, layer: str, pictures: Tensor, box: tuple[int, int, int, int]) -> Any:
    """The region of one picture as o = J f + c in float64, position by position: J as (3, pixels, n)."""
    place = list(dict(network.named_children())).index(layer) + 1
    front, back = nn.Sequential(*network[:place]), nn.Sequential(*network[place:])  # type: ignore[index]
    x0, y0, x1, y1 = box
    with torch.no_grad():
        features = front(pictures).double()
        alone = torch.eye(features[0, 0].numel(), dtype=torch.float64).reshape(-1, 1, *features.shape[2:])
        outputs = back.double()(torch.cat([features * alone, 0 * features]))[:, :, y0:y1, x0:x1].flatten(2)
        back.float()
    return (outputs[:-1] - outputs[-1:]).permute(1, 2, 0).numpy(), outputs[-1].numpy()


@pytest.mark.parametrize("channel", [None, 1])
def test_a_region_is_what_a_selected_output_is(channel: int | None) -> None:
    network, pictures = affine(), torch.rand(2, 3, 32, 32)
    asked = l2caf.Region(BOX, channel=channel)

    def part(output: Tensor) -> Tensor:
        return output[:, :, 0:16, 8:20].flatten(1)

    def raised(output: Tensor) -> Tensor:
        mean = output[:, :, 0:16, 8:20].mean(dim=(2, 3))
        return mean[:, 1:2] - mean.mean(dim=1, keepdim=True)

    found = l2caf.explain(network, pictures, objective=asked)
    selected: Any = part if channel is None else raised
    objective = None if channel is None else l2caf.ClassSpecific(0)
    slow = l2caf.explain(network, pictures, objective=objective, output=selected, layer=found.layer, solver=Exact())
    assert found.outcome == ["exact", "exact"]
    torch.testing.assert_close(found.weights, slow.weights, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("made", "box"), [(affine, BOX), (per_pixel, (1, 0, 6, 5))])
def test_a_raised_channel_is_the_gradient_written_out(made: Any, box: tuple[int, int, int, int]) -> None:
    network, pictures = made(), torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    found = l2caf.explain(network, pictures, objective=l2caf.Region(box, channel=2))
    jacobian, _ = written_out(network, found.layer, pictures, box)
    mean = jacobian.mean(axis=1)
    gradient = mean[2] - mean.mean(axis=0)
    assert found.outcome == ["exact"]
    np.testing.assert_allclose(found.weights[0].flatten(), gradient / np.linalg.norm(gradient), atol=1e-5)


@pytest.mark.parametrize(("made", "box"), [(affine, BOX), (per_pixel, (1, 0, 6, 5))])
def test_a_kept_region_is_never_beaten_by_scipy(made: Any, box: tuple[int, int, int, int]) -> None:
    network, pictures = made(), torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    found = l2caf.explain(network, pictures, objective=l2caf.Region(box))
    jacobian, _ = written_out(network, found.layer, pictures, box)
    flat = jacobian.reshape(-1, jacobian.shape[2])

    def loss(weights: Any) -> float:
        return float(((flat @ (weights - 1)) ** 2).sum())

    def slope(weights: Any) -> Any:
        return 2 * flat.T @ (flat @ (weights - 1))

    on_sphere = {"type": "eq", "fun": lambda f: f @ f - 1, "jac": lambda f: 2 * f}
    ours, draw = found.weights[0].flatten().double().numpy(), np.random.default_rng(0)
    assert found.outcome == ["exact"]
    assert abs(np.linalg.norm(ours) - 1) < 1e-5
    for _ in range(5):
        start = draw.standard_normal(flat.shape[1])
        other = minimize(loss, start / np.linalg.norm(start), jac=slope, constraints=on_sphere, method="SLSQP")
        assert loss(ours) <= loss(other.x / np.linalg.norm(other.x)) * (1 + 1e-6)


@pytest.mark.parametrize("channel", [None, 1, [0, 2]])
def test_a_curved_head_gives_the_same_map_again(channel: Any) -> None:
    network, pictures = curved(), torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    asked = l2caf.Region(BOX, channel=channel)
    first, second = (l2caf.explain(network, pictures, objective=asked) for _ in range(2))
    assert first.outcome == second.outcome
    assert set(np.ravel(first.outcome)) == {"first_order"}
    torch.testing.assert_close(first.weights, second.weights, atol=1e-5, rtol=1e-5)


def test_a_curved_head_is_followed_along_its_slope() -> None:
    network, pictures = curved(), torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    found = l2caf.explain(network, pictures, objective=l2caf.Region(BOX, channel=1), layer="1")
    with torch.no_grad():
        features = network[:2](pictures).double()  # type: ignore[index]
        alone = 1e-4 * torch.eye(16, dtype=torch.float64).reshape(16, 1, 4, 4)
        double = network[2:].double()  # type: ignore[index]
        both = [double(features * (1 + sign * alone))[:, :, 0:16, 8:20].mean(dim=(2, 3)) for sign in (1, -1)]
    slope = (both[0] - both[1])[:, 1] - (both[0] - both[1]).mean(dim=1)
    torch.testing.assert_close(found.weights[0].flatten(), (slope / slope.norm()).float(), atol=1e-3, rtol=1e-3)


def test_weights_that_change_between_two_calls_change_the_map() -> None:
    network, pictures = curved(), torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    asked = l2caf.Region(BOX, channel=1)
    for _ in range(2):
        l2caf.explain(network, pictures, objective=asked)
    with torch.no_grad():
        network[4].weight.copy_(network[4].weight.roll(1, dims=0))  # type: ignore[index,union-attr]
    again, fresh = l2caf.explain(network, pictures, objective=asked), curved()
    fresh.load_state_dict(network.state_dict())
    torch.testing.assert_close(again.weights, l2caf.explain(fresh, pictures, objective=asked).weights)


@pytest.mark.parametrize(
    ("where", "channel", "words"),
    [
        (torch.zeros(32, 32), None, "The mask is empty"),
        (torch.ones(5, 5), None, r"has shape \(5, 5\), but the output is 32 x 32: give one of that shape"),
        (torch.ones(3, 32, 32), None, "has shape"),
        (torch.full((32, 32), torch.nan), None, "NaN or infinity"),
        ((0, 0, 40, 8), None, "lies outside of the output: .* within 32 x 32 pixels"),
        ((-1, 0, 4, 8), None, "lies outside"),
        ((0, 0, 0, 8), None, "is empty"),
        ((0, 0, 1.5, 8), None, "not whole numbers"),
        ((0, 0, 8, 8), 3, "Channel 3 is out of range: the output has 3 channels, 0 to 2"),
        ((0, 0, 8, 8), -1, "out of range"),
        ((0, 0, 8, 8), [], "No channel is given"),
        ((0, 0, 8, 8), 0.5, "is no channel"),
        ("cat", None, "is no region"),
        (None, None, "A region is needed"),
    ],
)
def test_a_wrong_region_is_told_in_a_sentence(where: Any, channel: Any, words: str) -> None:
    with pytest.raises(L2cafError, match=words) as told:
        l2caf.explain(affine(), torch.rand(1, 3, 32, 32), objective=l2caf.Region(where, channel=channel))
    assert "\n" not in str(told.value)
    assert str(told.value).endswith(".")


@pytest.mark.parametrize("asked", [((0, 0, 8, 8), None), (None, 1), (torch.ones(8, 8), 1)])
def test_a_row_of_scores_has_no_region(asked: tuple[Any, Any]) -> None:
    network = nn.Sequential(nn.Conv2d(3, 6, 8, stride=8), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    with pytest.raises(L2cafError, match=r"The output has shape \(1, 6\), which has no such region"):
        l2caf.explain(network, torch.rand(1, 3, 32, 32), objective=l2caf.Region(asked[0], channel=asked[1]))


@pytest.mark.parametrize("channel", [None, 1])
def test_a_second_question_runs_a_curved_network_once(channel: int | None) -> None:
    network, pictures = curved(), torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    runs = []
    network[4].register_forward_pre_hook(lambda module, given: runs.append(len(given[0])))  # type: ignore[index]
    asked = l2caf.Region(BOX, channel=channel)
    l2caf.explain(network, pictures, objective=asked)
    runs.clear()
    again = l2caf.explain(network, pictures, objective=asked)
    assert runs == [1]
    assert again.outcome == ["first_order"]
    assert all(parameter.grad is None for parameter in network.parameters())
    assert torch.is_grad_enabled()


def test_a_network_that_mixes_its_samples_is_refused_also_when_it_is_known() -> None:
    class Mixing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = curved()[:2], curved()[2:]  # type: ignore[index]

        def forward(self, pictures: Tensor) -> Tensor:
            features = self.first(pictures)
            found: Tensor = self.last(features + features.mean(dim=0, keepdim=True))
            return found

    network, pictures = Mixing().eval(), torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    asked = l2caf.Region(BOX, channel=1)
    for _ in range(2):
        assert l2caf.explain(network, pictures[:1], objective=asked, layer="first").outcome == ["first_order"]
    with pytest.raises(L2cafError, match="mixes the samples"):
        l2caf.explain(network, pictures, objective=asked, layer="first")


class Norms(nn.Sequential):
    """A decoder that undoes any scaling of the map."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        super().__init__(
            nn.Conv2d(3, 8, 8, stride=8),
            nn.ConvTranspose2d(8, 8, 8, stride=8),
            nn.InstanceNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 3, 1),
        )


def test_a_scale_invariant_head_is_asked_the_same_again() -> None:
    network, pictures = Norms().eval(), torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    first, second = (l2caf.explain(network, pictures, objective=l2caf.Region(BOX), layer="0") for _ in range(2))
    assert first.outcome == second.outcome == ["first_order"]
    assert bool((first.weights < 0).any())  # raised along its own values: positions speak for it or against it
    torch.testing.assert_close(first.weights, second.weights, atol=1e-4, rtol=1e-4)


def test_a_kept_region_is_nearly_the_best_filter_of_the_tangent() -> None:
    network, pictures = curved(), torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    for _ in range(2):
        found = l2caf.explain(network, pictures, objective=l2caf.Region(BOX), layer="1")
    with torch.no_grad():
        features, double = network[:2](pictures).double(), network[2:].double()  # type: ignore[index]
        alone = 1e-4 * torch.eye(16, dtype=torch.float64).reshape(16, 1, 4, 4)
        both = [double(features * (1 + sign * alone))[:, :, 0:16, 8:20].flatten(1) for sign in (1, -1)]
    jacobian = ((both[0] - both[1]) / 2e-4).numpy().T

    def loss(weights: Any) -> float:
        return float(((jacobian @ (weights / np.linalg.norm(weights) - 1)) ** 2).sum())

    ours = found.weights[0].flatten().double().numpy()
    best = minimize(loss, np.ones(16), method="BFGS").x
    best = best / np.linalg.norm(best)
    assert np.linalg.norm(ours - best) < 0.03
    assert loss(ours) <= loss(best) * 1.001


class Straight(torch.autograd.Function):
    """Rounding, with the gradient of the identity."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return (x / 4).round() * 4

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:
        return slopes[0] * 3


class Rounding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = curved()[:2], curved()[2:]  # type: ignore[index]

    def forward(self, pictures: Tensor) -> Tensor:
        found: Tensor = Straight.apply(8 * self.last(self.first(pictures)))
        return found


@pytest.mark.parametrize("channel", [None, 1])
def test_a_slope_that_is_not_that_of_the_values_is_said(channel: int | None) -> None:
    network, pictures = Rounding().eval(), torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    for _ in range(2):  # and looked at again the next time
        found = l2caf.explain(network, pictures, objective=l2caf.Region(BOX, channel=channel), layer="first")
        assert found.outcome == ["stuck"]
        assert "the gradient contradicts the values of 1 of 1 samples" in found.solution.reason
