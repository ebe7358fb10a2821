"""Where a question is put when the head normalises: at values that are no module's output, too, verified by value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import l2caf
from l2caf.heads.recorded import RecordedHead
from l2caf.networks.imports import import_timm, import_torchvision
from l2caf.recording.replay import Replay
from networks_for_tests import CHANNELS, CLASSES, pixels, seeded


class Head(nn.Module):
    """A convolution, the layer, and what follows it written in each case."""

    def __init__(self, follows: Callable[[Any, Tensor], Tensor], **others: nn.Module) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, CHANNELS, 8, stride=8)
        self.norm = nn.LayerNorm(CHANNELS)
        self.scores = nn.Linear(CHANNELS, CLASSES)
        for name, module in others.items():
            setattr(self, name, module)
        self.follows = follows

    def forward(self, x: Tensor) -> Tensor:
        return self.follows(self, self.conv(x))


def mean_then_norm(net: Any, x: Tensor) -> Tensor:
    return net.scores(net.norm(x.mean(dim=(2, 3))))


def mean_then_functions(net: Any, x: Tensor) -> Tensor:
    return F.normalize(x.mean(dim=(2, 3)), dim=1) @ net.scores.weight.T


def mean_of_a_part_then_functions(net: Any, x: Tensor) -> Tensor:
    return F.normalize(x[:, :, 1:].mean(dim=(2, 3)), dim=1) @ net.scores.weight.T


def most_then_norm(net: Any, x: Tensor) -> Tensor:
    return net.scores(net.norm(x.amax(dim=(2, 3))))


def sum_of_squares_then_functions(net: Any, x: Tensor) -> Tensor:
    return F.normalize(x.square().mean(dim=(2, 3)), dim=1) @ net.scores.weight.T


def raw_embedding(net: Any, x: Tensor) -> Tensor:
    return F.normalize(net.raw(torch.relu(net.hidden(x.mean(dim=(2, 3))))), dim=1)


def side_branch(net: Any, x: Tensor) -> Tensor:
    """Something else is computed from the map after the answer, and read by nobody."""
    answer = net.scores(net.norm(x.mean(dim=(2, 3))))
    net.side(x.amax(dim=(2, 3)))
    return answer


def by_hook(network: nn.Module, pictures: Tensor, weights: Tensor, at: nn.Module | None, *, given: bool) -> Tensor:
    """What a module is given, or returns, with the layer's map weighed by a plain hook on the whole network."""
    side = int(weights.shape[1] ** 0.5)
    grid = weights.reshape(len(weights), 1, side, side).float()
    seen: list[Tensor] = []
    handles = [network.conv.register_forward_hook(lambda module, args, output: output * grid)]
    if at is not None:
        handles.append(at.register_forward_hook(lambda module, args, out: seen.append(args[0] if given else out)))
    try:
        with torch.no_grad():
            output: Tensor = network(pictures)
            return (seen[-1] if at is not None else output).flatten(1).double()
    finally:
        for handle in handles:
            handle.remove()


def least(value: Callable[[Tensor], Tensor], positions: int) -> float:
    """The least squared distance to the untouched value that SciPy finds on the unit sphere, for one sample."""
    ones = torch.ones(1, positions)
    offset, target = value(torch.zeros(1, positions)), value(ones)
    columns = np.stack([(value(one.unsqueeze(0)) - offset)[0].numpy() for one in torch.eye(positions)], axis=1)
    wanted = (target - offset)[0].numpy()

    def loss(free: np.ndarray) -> float:
        return float(np.square(columns @ (free / np.linalg.norm(free)) - wanted).sum())

    starts = [np.ones(positions), columns.T @ wanted]
    return min(scipy.optimize.minimize(loss, start, tol=1e-14).fun for start in starts)


def test_a_functional_mean_before_a_norm_is_found_and_exact() -> None:
    network, pictures = seeded(lambda: Head(mean_then_norm)), pixels()
    solution = l2caf.explain(network, pictures, layer="conv").solution
    assert solution.outcome == ["exact", "exact"]
    assert solution.endpoint == "mean of conv"
    kept = by_hook(network, pictures, torch.ones(2, 16), network.norm, given=True)
    found = by_hook(network, pictures, solution.filter.flatten(1), network.norm, given=True)
    torch.testing.assert_close(solution.loss, (found - kept).square().sum(dim=1), rtol=1e-4, atol=1e-10)
    for sample in range(2):
        one = pictures[sample : sample + 1]
        best = least(lambda weights, one=one: by_hook(network, one, weights, network.norm, given=True), 16)
        assert float(solution.loss[sample]) <= best * (1 + 1e-4)
    assert float(solution.filter.std(dim=(1, 2)).min()) > 1e-3  # and it is not flat


def test_a_mean_that_no_module_sees_is_shown_to_be_all() -> None:
    network, pictures = seeded(lambda: Head(mean_then_functions)), pixels()
    solution = l2caf.explain(network, pictures, layer="conv").solution
    assert solution.outcome == ["exact", "exact"]
    assert solution.endpoint == "mean of conv"
    mean = (network.conv(pictures).detach() * solution.filter.unsqueeze(1)).mean(dim=(2, 3))
    loss = (mean - network.conv(pictures).detach().mean(dim=(2, 3))).square().sum(dim=1)
    torch.testing.assert_close(solution.loss.float(), loss, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("follows", [mean_of_a_part_then_functions, sum_of_squares_then_functions])
def test_what_is_not_the_mean_is_not_called_so(follows: Callable[[Any, Tensor], Tensor]) -> None:
    solution = l2caf.explain(seeded(lambda: Head(follows)), pixels(), layer="conv").solution
    assert solution.endpoint == "output"
    assert all(outcome not in ("exact", "converged") for outcome in solution.outcome)


def test_what_a_module_is_given_may_be_no_mean() -> None:
    network, pictures = seeded(lambda: Head(most_then_norm)), pixels()
    solution = l2caf.explain(network, pictures, layer="conv").solution
    assert solution.endpoint == "input of norm"
    assert solution.outcome == ["converged", "converged"]
    kept = by_hook(network, pictures, torch.ones(2, 16), network.norm, given=True)
    found = by_hook(network, pictures, solution.filter.flatten(1), network.norm, given=True)
    torch.testing.assert_close(solution.loss.double(), (found - kept).square().sum(dim=1), rtol=1e-4, atol=1e-9)


def test_the_embedding_before_it_is_put_on_the_sphere() -> None:
    """As the paper does it: the last value that feels scale, though an earlier one would be affine."""

    def linear() -> nn.Module:
        return nn.Linear(CHANNELS, CHANNELS, bias=False)

    network = seeded(lambda: Head(raw_embedding, hidden=linear(), raw=linear()))
    solution = l2caf.explain(network, pixels(), layer="conv").solution
    assert solution.endpoint == "raw"


def test_a_side_branch_is_no_endpoint() -> None:
    network = seeded(lambda: Head(side_branch, side=nn.Linear(CHANNELS, 3)))
    solution = l2caf.explain(network, pixels(), layer="conv").solution
    assert solution.endpoint == "mean of conv"
    assert solution.outcome == ["exact", "exact"]


def test_a_head_that_moves_little_at_small_filters_still_feels_scale() -> None:
    """Its output moves far at large filters only, which no filter of unit norm is; the question is put all the same."""

    def steep(net: Any, x: Tensor) -> Tensor:
        mean = x.mean(dim=(2, 3))
        return net.scores(mean + 1e3 * F.relu(mean.abs() - 2 * mean.abs().amax()))

    network, pictures = seeded(lambda: Head(steep)), pixels(1)
    solution = l2caf.explain(network, pictures, layer="conv").solution
    assert solution.endpoint == "output"
    assert solution.outcome[0] in ("exact", "converged")
    kept = by_hook(network, pictures, torch.ones(1, 16), None, given=False)
    found = by_hook(network, pictures, solution.filter.flatten(1), None, given=False)
    even = by_hook(network, pictures, torch.full((1, 16), 0.25), None, given=False)
    assert float((found - kept).square().sum()) < float((even - kept).square().sum())


class ReadsItsClassToken(nn.Module):
    """Attention, then a norm of the class token alone: the mean over the patches is not what follows."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 8, stride=8)
        self.register_buffer("first", torch.randn(1, 1, 16))
        self.mix = nn.Linear(16, 16)
        self.norm = nn.LayerNorm(16)
        self.scores = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = self.mix(torch.cat([self.first.expand(len(x), -1, -1), x], dim=1))
        attention = (x[:, :1] @ x.transpose(1, 2) / 4).softmax(dim=2)
        return self.scores(self.norm((attention @ x)[:, 0]))


def test_a_class_token_is_not_called_a_mean() -> None:
    solution = l2caf.explain(seeded(ReadsItsClassToken), pixels(), layer="mix").solution
    assert "mean" not in solution.endpoint


class Decoder(nn.Module):
    """A small decoder with instance norms behind bias-free (transposed) convolutions, and a skip connection."""

    def __init__(self) -> None:
        super().__init__()
        self.fine = nn.Conv2d(3, 4, 3, stride=4, padding=1)
        self.conv = nn.Conv2d(3, CHANNELS, 8, stride=8)
        self.up = nn.Sequential(
            nn.ConvTranspose2d(CHANNELS, 6, 2, stride=2, bias=False), nn.InstanceNorm2d(6), nn.ReLU(inplace=True)
        )
        self.mix = nn.Sequential(nn.Conv2d(10, 4, 3, padding=1, bias=False), nn.InstanceNorm2d(4), nn.ReLU())
        self.answer = nn.ConvTranspose2d(4, 2, 4, stride=4)

    def forward(self, x: Tensor) -> Tensor:
        return self.answer(self.mix(torch.cat([self.up(self.conv(x)), self.fine(x)], dim=1))).softmax(dim=1)


def test_a_decoder_with_instance_norms() -> None:
    network, pictures = seeded(Decoder), pixels()
    replay = Replay(network, pictures, layer="conv")
    head = RecordedHead(replay)
    solution = l2caf.AttentionFilter().on(head).solution
    assert solution is not None
    assert solution.endpoint == "up.0"  # four times as large as the map
    assert solution.solver == "Exact"
    assert solution.outcome == ["exact", "exact"]
    kept = by_hook(network, pictures, torch.ones(2, 16), network.up[0], given=False)
    found = by_hook(network, pictures, solution.filter.flatten(1), network.up[0], given=False)
    torch.testing.assert_close(solution.loss, (found - kept).square().sum(dim=1), rtol=1e-4, atol=1e-10)
    for sample in range(2):
        one = pictures[sample : sample + 1]
        best = least(lambda weights, one=one: by_hook(network, one, weights, network.up[0], given=False), 16)
        assert float(solution.loss[sample]) <= best * (1 + 1e-4)


def test_a_decoder_is_not_run_often() -> None:
    network, pictures = seeded(Decoder), pixels()
    runs: list[int] = []
    network.answer.register_forward_hook(lambda module, args, output: runs.append(1))
    l2caf.explain(network, pictures, layer="conv")
    # The survey, the record, the untouched map, one to verify and one random filter, its mirror image, the uniform
    # one twice, and that the endpoint reaches the output; all else ends at the endpoint.
    assert len(runs) <= 12


def test_a_large_named_endpoint_is_affine_where_it_is() -> None:
    solution = l2caf.explain(
        seeded(Decoder), pixels(), layer="conv", objective=l2caf.ClassOblivious(at="up.0")
    ).solution
    assert solution.solver == "Exact"


def beit() -> nn.Module:
    import_torchvision()
    transformers = pytest.importorskip("transformers")
    config = transformers.BeitConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, image_size=32, patch_size=8
    )
    return transformers.BeitForImageClassification(config)


def convnext() -> nn.Module:
    import_torchvision()
    transformers = pytest.importorskip("transformers")
    config = transformers.ConvNextConfig(hidden_sizes=[4, 8, 8, 12], depths=[1, 1, 1, 1])
    return transformers.ConvNextForImageClassification(config)


def videomae() -> nn.Module:
    import_torchvision()
    transformers = pytest.importorskip("transformers")
    config = transformers.VideoMAEConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=32,
        patch_size=8,
        num_frames=4,
    )
    return transformers.VideoMAEForVideoClassification(config)


def of_timm(name: str, **settings: Any) -> Callable[[], nn.Module]:
    return lambda: import_timm().create_model(name, num_classes=CLASSES, **settings)


KNOWN: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], str | None, str | None]] = {
    "BEiT": (beit, (3, 32, 32), "beit.layers.0", "logits"),
    "ConvNeXt of transformers": (convnext, (3, 64, 64), "convnext.encoder.stages.3", "logits"),
    "VideoMAE": (videomae, (4, 3, 32, 32), "videomae.encoder.layer.0", "logits"),
    "ViT with mean pooling": (
        of_timm("vit_tiny_patch16_224", img_size=64, depth=1, global_pool="avg"),
        (3, 64, 64),
        "blocks.0",
        None,
    ),
    "EVA02": (of_timm("eva02_tiny_patch14_224", img_size=56, depth=1), (3, 56, 56), "blocks.0", None),
    "BEiT of timm": (
        of_timm("beit_base_patch16_224", img_size=64, depth=1, embed_dim=32, num_heads=2),
        (3, 64, 64),
        "blocks.0",
        None,
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_networks_that_normalise_a_functional_mean(name: str) -> None:
    make, size, layer, select = KNOWN[name]
    network = seeded(make)
    inputs = torch.rand(2, *size, generator=torch.Generator().manual_seed(0))
    heatmap = l2caf.explain(network, inputs, layer=layer, output=select)
    assert heatmap.solution is not None
    assert heatmap.solution.outcome == ["exact", "exact"]
    assert heatmap.solution.endpoint == f"mean of {layer}"
    assert float(heatmap.solution.filter.flatten(1).std(dim=1).min()) > 1e-4
