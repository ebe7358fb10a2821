"""The methods against other people's implementations, and what all of them have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import networks_for_tests as nets
from l2caf.errors import MethodError
from l2caf.heads.gradient import gradients_of
from l2caf.heads.recorded import RecordedHead
from l2caf.methods.attention_filter import AttentionFilter
from l2caf.methods.cam import CAM
from l2caf.methods.grad_cam import GradCAM, GradCAMAbs
from l2caf.methods.method import Method
from l2caf.networks.imports import import_torchvision
from l2caf.objectives.classes import ClassSpecific
from l2caf.recording.replay import Replay
from methods_for_tests import EVERY_METHOD, NETWORKS, PAIRS
from networks_for_tests import pixels, seeded

import_torchvision()  # before those that import it without a second thought
from pytorch_grad_cam import GradCAM as OtherGradCAM  # noqa: E402
from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget  # noqa: E402
from torchcam.methods import CAM as OtherCAM  # noqa: E402, N811

TARGETS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "pooled": (nets.pooled, "1"),
    "pooled, before the rectifier": (nets.pooled, "0"),
    "flattened": (nets.flattened, "1"),
    "curved": (nets.curved, "1"),
    "resnet18": (lambda: import_torchvision().models.resnet18(weights=None), "layer4"),
}


def grids_of_other(network: nn.Module, layer: str, inputs: Tensor, targets: list[Any]) -> tuple[Tensor, Tensor]:
    """pytorch-grad-cam's maps at the layer's grid (rectified) and at the input's size (scaled to 0..1)."""
    with OtherGradCAM(network, [network.get_submodule(layer)]) as other:
        scaled = torch.as_tensor(other(inputs.clone(), targets=targets))
        features = other.activations_and_grads.activations[-1].numpy()
        slopes = other.activations_and_grads.gradients[-1].numpy()
        weights = other.get_cam_weights(inputs, network.get_submodule(layer), targets, features, slopes)
        grid = torch.as_tensor((weights[:, :, None, None] * features).sum(axis=1)).clamp_min(0)
    return grid, scaled


@pytest.mark.parametrize("case", TARGETS)
def test_grad_cam_is_pytorch_grad_cams(case: str) -> None:
    make, layer = TARGETS[case]
    network = seeded(make)
    inputs = pixels(3, size=(64, 64) if case == "resnet18" else (32, 32))
    chosen = [1, 0, 4]
    ours = GradCAM(labels=chosen)(network, inputs, layer=layer)
    grid, scaled = grids_of_other(network, layer, inputs, [ClassifierOutputTarget(one) for one in chosen])
    scale = float(grid.abs().max())
    assert scale > 0
    torch.testing.assert_close(ours.weights.clamp_min(0) / scale, grid / scale, rtol=0, atol=1e-5)
    if case != "resnet18":
        pytest.importorskip("cv2")
        # It scales from the least to the largest value, at the grid first and after resizing again.
        theirs = _stretched(
            torch.nn.functional.interpolate(_stretched(grid)[:, None], inputs.shape[2:], mode="bilinear")
        )
        torch.testing.assert_close(scaled, theirs[:, 0], rtol=0, atol=1e-2)
        mine = _stretched(torch.nn.functional.interpolate(
            _stretched(ours.weights.clamp_min(0))[:, None], inputs.shape[2:], mode="bilinear"
        ))  # fmt: skip
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-5)


def _stretched(maps: Tensor) -> Tensor:
    axes = tuple(range(1, maps.ndim))
    maps = maps - maps.amin(dim=axes, keepdim=True)
    return maps / (1e-7 + maps.amax(dim=axes, keepdim=True))


WRITTEN_INTO: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "rectified": (nets.RectifiedAfterLayer, "norm"),
    "added to": (lambda: nets.Residual(branch_first=True), "conv"),
    "scaled": (nets.ScaledInPlace, "conv"),
}


@pytest.mark.parametrize("case", WRITTEN_INTO)
def test_grad_cam_where_the_layers_output_is_written_into(case: str) -> None:
    """Others read the map after that; the formula's A is what the layer gave."""
    make, layer = WRITTEN_INTO[case]
    network = seeded(make)
    given: list[Tensor] = []

    def keep(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        given.append(output)
        return output.clone()

    handle = network.get_submodule(layer).register_forward_hook(keep)
    scores = network(pixels())
    handle.remove()
    (slope,) = torch.autograd.grad(scores[:, 1].sum(), given[0])
    formula = (slope.mean(dim=(2, 3), keepdim=True) * given[0]).sum(dim=1).detach()
    torch.testing.assert_close(GradCAM(1)(network, pixels(), layer=layer).weights, formula)


@pytest.mark.parametrize("case", ["pooled", "curved"])
def test_grad_cam_of_a_summed_embedding(case: str) -> None:
    make, layer = TARGETS[case]
    network = seeded(make)
    ours = GradCAM(embedding=True)(network, pixels(), layer=layer)
    grid, _ = grids_of_other(network, layer, pixels(), [lambda output: output.sum()] * 2)
    assert ours.classes is None
    torch.testing.assert_close(ours.weights.clamp_min(0), grid, rtol=1e-5, atol=1e-7)


def test_cam_is_pytorch_grad_cams_map_on_a_pooled_head() -> None:
    """Where the head averages and is linear, alpha_k = w_ck / n: Grad-CAM times n is CAM."""
    network = seeded(nets.pooled)
    ours = CAM(2)(network, pixels())
    grid, _ = grids_of_other(network, "1", pixels(), [ClassifierOutputTarget(2)] * 2)
    torch.testing.assert_close(ours.weights.clamp_min(0) / 64, grid, rtol=1e-5, atol=1e-7)


def test_cam_is_torchcams_and_the_formula() -> None:
    network = seeded(nets.pooled)
    ours = CAM(2)(network, pixels())
    with OtherCAM(network, "1", fc_layer="4", enable_hooks=True) as other, torch.no_grad():
        network(pixels())
        (theirs,) = other(2, normalized=False)
    torch.testing.assert_close(ours.weights.clamp_min(0), theirs.clamp_min(0), rtol=1e-5, atol=1e-6)
    formula = torch.einsum("c,bchw->bhw", network[4].weight[2], network[1](network[0](pixels()))).detach()
    torch.testing.assert_close(ours.weights, formula, rtol=1e-5, atol=1e-6)


def test_cam_refuses_a_head_that_bends() -> None:
    with pytest.raises(MethodError, match="use GradCAM or AttentionFilter"):
        CAM(1)(seeded(nets.curved), pixels())


def test_grad_cam_abs_is_the_magnitude_of_grad_cam_before_the_rectifier() -> None:
    network = seeded(nets.curved)
    plain, magnitude = GradCAM(1)(network, pixels()), GradCAMAbs(1)(network, pixels())
    torch.testing.assert_close(plain.weights, magnitude.weights)
    assert (plain.weights < 0).any(), "the case shows nothing"

    def large(map_: Tensor) -> Tensor:
        resized = torch.nn.functional.interpolate(map_[:, None], (32, 32), mode="bilinear")[:, 0]
        return resized / resized.amax(dim=(1, 2), keepdim=True)

    torch.testing.assert_close(magnitude.maps, large(plain.weights.abs()))
    torch.testing.assert_close(plain.maps, large(plain.weights.clamp_min(0)))


# What all methods have in common


@pytest.mark.parametrize(("method", "network"), PAIRS)
def test_batch_is_its_samples_and_maps_keep_their_range(method: str, network: str) -> None:
    make, size, _ = NETWORKS[network]
    explainer: Method = EVERY_METHOD[method]
    model = seeded(make)
    inputs = torch.rand(3, *size, generator=torch.Generator().manual_seed(4))
    inputs[1] *= 0.1  # samples of other scales must not disturb one another
    together = explainer(model, inputs)
    again = explainer(model, inputs)
    assert torch.equal(together.weights, again.weights)
    assert together.maps.shape[0] == 3
    assert together.maps.shape[-len(together.size) :] == inputs.shape[-len(together.size) :]
    shared = "frame" in together.axes and not together.solution.frames  # frames of one map share its largest value
    axes = tuple(range(-len(together.size) - shared, 0))
    assert (together.maps >= 0).all()
    peaks = together.maps.amax(dim=axes)
    assert ((peaks - 1).abs() < 1e-6).logical_or(peaks == 0).all()
    assert (together.signed.abs() <= 1 + 1e-6).all()
    assert not together.weights.requires_grad
    for sample in range(3):
        alone = explainer(model, inputs[sample : sample + 1])
        if not together.solution.is_formula and "Riemannian" in together.solution.solver:
            # Rounding alone leads a search another way down, to a filter that must be as good.
            found, expected = together.solution.loss[sample], alone.solution.loss[0]
            assert ((found - expected).abs() <= 0.1 * expected.abs() + 1e-4).all()
        else:
            scale = together.weights[sample].abs().max()
            assert (together.weights[sample] - alone.weights[0]).abs().max() <= 1e-4 * scale


def test_the_head_is_run_no_more_often_than_it_must_be() -> None:
    # Once to see that a re-run gives the same; then for the score's gradient, or at one random filter. All else of a
    # head that averages is computed from the mean. The first recording of a network is verified as well: by the whole
    # network, at a random filter, and with every other sample filtered.
    network = seeded(nets.pooled)
    assert Replay(network, pixels()).evaluations == 4
    for method in (GradCAM(0), AttentionFilter(), AttentionFilter(ClassSpecific(top=3)), CAM(0)):
        head = RecordedHead(Replay(network, pixels()))
        method.on(head)
        assert head.evaluations == 2, method.name


class ReadsItsGradient(torch.autograd.Function):
    """Doubles, and cannot be differentiated in several directions at once."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        return 2 * values

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        return 2 * torch.tensor(slope.tolist())


def test_gradients_in_several_directions_where_they_must_be_taken_one_by_one() -> None:
    leaf = torch.ones(3, requires_grad=True)
    directions = torch.tensor([[1.0, 0, 0], [0, 5, 0]])
    torch.testing.assert_close(gradients_of(ReadsItsGradient.apply(leaf), leaf, directions), 2 * directions)
    torch.testing.assert_close(gradients_of(torch.zeros(3), leaf, directions), torch.zeros(2, 3))
