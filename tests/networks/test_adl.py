"""Attention-based dropout: its definition, its draw, its gradients, and that it is gone in evaluation."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from l2caf.errors import InputError
from l2caf.networks.adl import ADL, AttentionMean, attention_dropout, drop_mask, put_adl, self_attention
from l2caf.networks.embedding import MeanOverMap
from l2caf.networks.imports import import_timm


def slow(features: Tensor, *, drops: bool, threshold: float) -> Tensor:
    """The definition, cell by cell."""
    made = torch.zeros_like(features)
    samples, channels, rows, columns = features.shape
    for sample in range(samples):
        attention = {
            (row, column): sum(float(features[sample, channel, row, column]) for channel in range(channels)) / channels
            for row in range(rows)
            for column in range(columns)
        }
        largest = max(attention.values())
        for (row, column), value in attention.items():
            weight = float(value < threshold * largest) if drops else float(torch.tensor(value).sigmoid())
            made[sample, :, row, column] = weight * features[sample, :, row, column]
    return made


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("drops", [True, False])
def test_it_is_what_the_definition_says(drops: bool, channels: int) -> None:
    features = torch.rand(3, 5, 4, 6, generator=torch.Generator().manual_seed(0))
    shown = features if channels == 1 else features.permute(0, 2, 3, 1)
    made = attention_dropout(shown, rate=float(drops), threshold=0.8, channels=channels)
    made = made if channels == 1 else made.permute(0, 3, 1, 2)
    assert torch.allclose(made, slow(features, drops=drops, threshold=0.8), atol=1e-6)


def test_what_is_dropped_are_the_cells_that_answer_most() -> None:
    features = torch.rand(8, 5, 7, 7)
    attention = self_attention(features)
    mask = drop_mask(attention, 0.8)
    for sample, kept in zip(attention.flatten(1), mask.flatten(1), strict=True):
        assert 0 < kept.sum() < kept.numel()
        assert sample[kept == 0].min() >= sample[kept == 1].max()


def test_one_of_the_two_is_chosen_for_the_whole_batch_as_often_as_asked() -> None:
    torch.manual_seed(0)
    layer, features, tries = ADL(rate=0.75).train(), torch.rand(4, 3, 5, 5) + 0.1, 2000
    dropped = 0
    for _ in range(tries):
        empty = (layer(features) == 0).all(dim=1).flatten(1).any(dim=1)
        assert empty.all() or not empty.any()
        dropped += int(empty.all())
    assert abs(dropped / tries - 0.75) < 4 * (0.75 * 0.25 / tries) ** 0.5


def test_gradients_flow_through_what_is_kept_alone() -> None:
    features = torch.rand(2, 3, 5, 5, dtype=torch.float64).requires_grad_()
    mask = drop_mask(self_attention(features.detach()), 0.8).expand_as(features)
    (gradient,) = torch.autograd.grad(attention_dropout(features, rate=1.0, threshold=0.8).sum(), features)
    assert torch.equal(gradient, mask)
    assert torch.autograd.gradcheck(lambda x: attention_dropout(x, rate=0.0, threshold=0.8), (features,))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_before_a_mean_it_is_the_same_in_one(rate: float, layout: torch.memory_format) -> None:
    features = torch.rand(3, 6, 4, 5, dtype=torch.float64).contiguous(memory_format=layout).requires_grad_()
    both = AttentionMean(MeanOverMap(), rate, 0.7).train()
    wanted = MeanOverMap()(attention_dropout(features, rate=rate, threshold=0.7))
    torch.testing.assert_close(both(features), wanted)
    weight = torch.rand_like(wanted)
    ours, theirs = (torch.autograd.grad((one * weight).sum(), features)[0] for one in (both(features), wanted))
    torch.testing.assert_close(ours, theirs)
    assert torch.autograd.gradcheck(both, (features,)) or rate  # a mask is a constant for gradients
    assert torch.equal(both.eval()(features), MeanOverMap()(features))
    assert not both.state_dict()


def test_before_a_mean_it_takes_its_turns_as_the_layer_does() -> None:
    features, both = torch.rand(2, 3, 5, 5), AttentionMean(MeanOverMap(), 0.5).train()
    torch.manual_seed(0)
    ours = [both(features) for _ in range(20)]
    torch.manual_seed(0)
    theirs = [MeanOverMap()(attention_dropout(features, rate=0.5, threshold=0.8)) for _ in range(20)]
    assert all(torch.allclose(*pair) for pair in zip(ours, theirs, strict=True))
    assert not all(torch.allclose(ours[0], one) for one in ours)


class Written(TorchDispatchMode):
    """Counts how many numbers operations write, whatever lies where; views write none."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, operation: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        made = operation(*given, **(named or {}))
        if isinstance(made, Tensor) and not (operation.is_view or made.numel() == 0):
            self.numbers += made.numel()
        return made


@pytest.mark.parametrize(("rate", "most"), [(1.0, 2), (0.0, 4)])
def test_a_step_writes_few_maps(rate: float, most: int) -> None:
    """What ADL costs where little else is computed is maps that are written: two to drop cells, four to weigh them."""
    features = torch.rand(8, 64, 7, 7).contiguous(memory_format=torch.channels_last).requires_grad_()
    gradient = torch.rand(8, 64, 7, 7).contiguous(memory_format=torch.channels_last)
    with Written() as written:
        torch.autograd.grad(attention_dropout(features, rate=rate, threshold=0.8), features, gradient)
    assert most - 0.5 < written.numbers / features.numel() < most + 0.3


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_before_a_mean_it_writes_no_more_than_the_mean_does(rate: float) -> None:
    features = torch.rand(8, 64, 7, 7).contiguous(memory_format=torch.channels_last).requires_grad_()
    counts = []
    for mean in (MeanOverMap(), AttentionMean(MeanOverMap(), rate).train()):
        with Written() as written:
            torch.autograd.grad(mean(features).sum(), features)
        counts.append(written.numbers / features.numel())
    plain, ours = counts
    assert ours <= plain + 0.3


def test_its_gradient_lies_in_memory_as_its_features_do() -> None:
    """Else all that comes before works on maps that are turned round, at several times the cost."""
    for rate in (0.0, 1.0):
        features = torch.rand(2, 8, 5, 5).contiguous(memory_format=torch.channels_last).requires_grad_()
        made = MeanOverMap()(attention_dropout(features, rate=rate, threshold=0.8))
        (gradient,) = torch.autograd.grad(made.square().sum(), features)
        assert gradient.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_mean_is_the_same_however_its_map_lies_in_memory(layout: torch.memory_format) -> None:
    features = torch.rand(3, 16, 7, 7).contiguous(memory_format=layout).requires_grad_()
    ours, theirs = MeanOverMap()(features), features.mean(dim=(2, 3))
    assert torch.equal(ours, theirs)
    weight = torch.rand_like(ours)
    found, wanted = (torch.autograd.grad((one * weight).sum(), features)[0] for one in (ours, theirs))
    assert torch.equal(found, wanted)


def test_in_evaluation_the_network_is_bit_equal_to_the_one_without() -> None:
    torch.manual_seed(0)
    plain = import_timm().create_model("resnet10t", pretrained=False, num_classes=5).eval()
    other = copy.deepcopy(plain)
    handles = put_adl(other, ["layer2", "layer3", "layer4"])
    images = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(other(images), plain(images))
        assert other.state_dict().keys() == plain.state_dict().keys()
        with torch.random.fork_rng():
            assert not torch.equal(other.train()(images), copy.deepcopy(plain).train()(images))
    for handle in handles:
        handle.remove()
    assert not any(module._forward_hooks for module in other.modules())


def test_a_copy_of_the_network_keeps_it() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU())
    put_adl(network, ["1"], rate=1.0)
    made = copy.deepcopy(network).train()(torch.rand(1, 3, 6, 6))
    assert (made == 0).all(dim=1).any()


def test_bad_settings_are_refused() -> None:
    with pytest.raises(InputError, match="drop_rate is 2"):
        ADL(rate=2)
    with pytest.raises(InputError, match="no trained module 'nowhere'") as refused:
        put_adl(nn.Sequential(nn.ReLU()), ["nowhere"])
    assert refused.value.field == "adl_at"
