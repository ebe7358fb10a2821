"""One run for several layers, calls and frames; and what a heatmap knows of where it comes from."""

from __future__ import annotations

import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import l2caf
import networks_for_tests as nets
from l2caf.heads.planned import PlannedHead
from l2caf.networks.model import Model
from l2caf.preprocessing import Preprocessing
from methods_for_tests import SHORT_SEARCH
from networks_for_tests import pixels, seeded


def two_exact_layers() -> nn.Module:
    """Layers 1 and 2 are both followed by a mean and a linear map alone."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 4, stride=4), nn.ReLU(), nn.Identity(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)
    )


def residual() -> nn.Module:
    return nets.Residual(branch_first=True)


@pytest.mark.parametrize("make", [two_exact_layers, nets.UNet, nets.curved, residual], ids=lambda make: make.__name__)
def test_several_layers_give_what_each_gives_alone(make: type[nn.Module]) -> None:
    network, inputs = seeded(make), pixels()
    names = [layer.name for layer in l2caf.usable_layers(network, inputs)][-3:]
    together = l2caf.explain(network, inputs, layer=names, solver=SHORT_SEARCH)
    assert isinstance(together, tuple)
    assert [heatmap.layer for heatmap in together] == names
    for name, heatmap in zip(names, together, strict=True):
        alone = l2caf.explain(seeded(make), inputs, layer=name, solver=SHORT_SEARCH)
        torch.testing.assert_close(heatmap.weights, alone.weights, atol=2e-3, rtol=0)
        assert heatmap.solved.outcome == alone.solved.outcome


def test_a_list_of_one_layer_gives_a_tuple_of_one() -> None:
    found = l2caf.explain(seeded(nets.pooled), pixels(), layer=["1"])
    assert isinstance(found, tuple)
    assert len(found) == 1


def test_several_layers_are_recorded_in_one_run() -> None:
    network = seeded(two_exact_layers)
    calls = []
    forward = network[0].forward
    network[0].forward = lambda x: (calls.append(1), forward(x))[1]
    found = l2caf.record(network, pixels(), layer=["1", "2"])
    # One to look at the layers, one on all slabs, one to record, one to verify each cut, once; all else is re-run from
    # the cuts on.
    assert len(calls) == 5
    assert all(isinstance(head, PlannedHead) for head in found.heads)


def test_a_second_question_to_two_layers_runs_the_network_once() -> None:
    plain = seeded(two_exact_layers)
    runs = []
    plain[0].register_forward_hook(lambda *_: runs.append(1))
    l2caf.explain(plain, pixels(), layer=["1", "2"])
    runs.clear()
    found = l2caf.explain(plain, pixels(), layer=["1", "2"])
    assert len(runs) == 1
    torch.testing.assert_close(found[0].weights, found[1].weights)  # type: ignore[index]


def test_several_calls_of_one_module() -> None:
    network = seeded(nets.Frames)
    clip = torch.rand(2, 3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    together = l2caf.explain(network, clip, layer="backbone", call=[0, 1, 2])
    assert isinstance(together, tuple)
    assert [heatmap.call for heatmap in together] == [0, 1, 2]
    for call, heatmap in enumerate(together):
        alone = l2caf.explain(network, clip, layer="backbone", call=call)
        torch.testing.assert_close(heatmap.weights, alone.weights, atol=2e-3, rtol=0)


class Folded(nn.Module):
    """The frames of (B, T, 3, H, W) as rows of one batch; the output reads the mean over frames and positions."""

    def __init__(self, *, by_frame: bool = False) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 4, stride=4)
        self.scores = nn.Linear(24 if by_frame else 8, 5)
        self.by_frame = by_frame

    def forward(self, x: Tensor) -> Tensor:
        maps = self.conv(x.flatten(0, 1)).relu()
        frames = maps.mean(dim=(2, 3)).unflatten(0, x.shape[:2])
        return self.scores(frames.flatten(1) if self.by_frame else frames.mean(dim=1))


@pytest.mark.parametrize("by_frame", [False, True])
def test_frames_folded_into_the_batch_have_one_filter_together(by_frame: bool) -> None:
    network = seeded(lambda: Folded(by_frame=by_frame))
    clip = torch.rand(2, 3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    clip[:, 1] *= 3  # the second frame is the strongest
    heatmap = l2caf.explain(network, clip, layer="conv", frames="together")
    assert heatmap.axes == ("sample", "frame", "y", "x")
    assert heatmap.weights.shape == (2, 3, 8, 8)
    assert heatmap.maps.shape == (2, 3, 32, 32)
    torch.testing.assert_close(heatmap.weights.flatten(1).norm(dim=1), torch.ones(2))
    assert heatmap.maps[0, 1].sum() > heatmap.maps[0, 0].sum()
    assert heatmap.frame_weights.argmax(dim=1).tolist() == [1, 1]
    alone = l2caf.explain(network, clip[1:], layer="conv", frames="together")
    torch.testing.assert_close(alone.weights[0], heatmap.weights[1], atol=1e-3, rtol=0)


def test_a_filter_over_frames_is_what_multiplying_the_frames_gives() -> None:
    network = seeded(lambda: Folded(by_frame=True))
    clip = torch.rand(2, 3, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    head = l2caf.record(network, clip, layer="conv").head
    weights = torch.randn(2, 3 * 64, generator=torch.Generator().manual_seed(2))

    def multiply(_module: nn.Module, _inputs: object, output: Tensor) -> Tensor:
        return output * weights.reshape(6, 1, 8, 8)

    handle = network.conv.register_forward_hook(multiply)
    with torch.no_grad():
        expected = network(clip)
    handle.remove()
    torch.testing.assert_close(head.filtered(weights).detach(), expected, atol=1e-5, rtol=1e-5)


def test_a_heatmap_names_its_axes_its_input_and_its_call() -> None:
    network = seeded(nets.pooled)
    plain = l2caf.explain(network, pixels())
    assert (plain.axes, plain.input, plain.call) == (("sample", "y", "x"), "0", None)
    several = l2caf.explain(network, pixels(), objective=l2caf.ClassSpecific(top=2))
    assert several.axes == ("sample", "map", "y", "x")


def test_a_map_on_its_photograph_lies_where_the_network_looked() -> None:
    model = Model("tiny", seeded(nets.pooled), Preprocessing(input_size=(32, 32), resize_size=(32, 32)))
    photograph = Image.new("RGB", (128, 64), "white")
    photograph.paste("black", (40, 8, 56, 24))  # a plain one would be kept by every position alike: an empty map
    with model.run([model.prepare(photograph)]) as recording:
        heatmap = l2caf.AttentionFilter().on(recording.head)
    whole = heatmap.on_photograph(0)
    assert whole.shape == (64, 128)
    assert whole[:, :32].sum() == 0  # the centre crop of a wide photograph
    assert whole[:, 96:].sum() == 0
    assert whole[:, 32:96].max() == pytest.approx(1, abs=0.05)
    with pytest.raises(l2caf.L2cafError, match="is not known"):
        l2caf.explain(model.network, pixels()).on_photograph(0)
