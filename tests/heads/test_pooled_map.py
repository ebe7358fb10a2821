"""A mean and a linear map as a map of the filter: whatever way its products take, they are those of J written out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from l2caf.heads.affine import PooledMap
from l2caf.heads.planned import PlannedHead
from l2caf.heads.pooled import PooledLinear
from l2caf.objectives.classes import ClassSpecific
from l2caf.recorder import record
from networks_for_tests import pixels, pooled, seeded

CLASSES, CHANNELS, POSITIONS = 7, 5, 12


def made(batch: int, *, channels_last: bool = False) -> tuple[PooledMap, Tensor]:
    generator = torch.Generator().manual_seed(0)
    weight, bias = torch.randn(CLASSES, CHANNELS, generator=generator), torch.randn(CLASSES, generator=generator)
    columns = torch.randn(batch, CHANNELS, POSITIONS, generator=generator).double()
    if channels_last:
        columns = columns.mT.contiguous().mT
    mapping = PooledMap(PooledLinear(weight.double(), bias.double()), columns)
    return mapping, weight.double() @ columns / POSITIONS


def directions_of(case: str, batch: int) -> Tensor:
    """(K, B, m): what the objectives ask, and what nobody asks yet."""
    scores = torch.randn(batch, CLASSES, generator=torch.Generator().manual_seed(1)).double()
    asked = {
        "top 5": ClassSpecific(top=5),
        "one class": ClassSpecific(),
        "the last class": ClassSpecific(CLASSES - 1),
        "all classes": ClassSpecific(top=CLASSES),
        "as published": ClassSpecific(top=4, published=True),
        "a class twice": ClassSpecific([2, 2, 2, 2]),
    }
    if case in asked:
        return torch.stack([loss.direction for loss in asked[case].losses(scores).losses])  # type: ignore[misc]
    dense = torch.randn(4, batch, CLASSES, generator=torch.Generator().manual_seed(2)).double()
    if case == "all alike":
        return dense[..., :1].expand_as(dense)
    if case == "two places each":
        dense[..., 2:] = 0.5
    return dense


CASES = ["top 5", "one class", "the last class", "all classes", "as published", "a class twice"]
CASES += ["all alike", "two places each", "anything"]


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("case", CASES)
def test_directions_are_pulled_back_as_by_the_matrix(case: str, batch: int, channels_last: bool) -> None:
    mapping, jacobian = made(batch, channels_last=channels_last)
    directions = directions_of(case, batch)
    expected = torch.einsum("bmn,kbm->kbn", jacobian, directions)
    torch.testing.assert_close(mapping.pull(directions), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(mapping.pull(directions[0]), expected[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("batch", [1, 3])
def test_filters_are_pushed_as_by_the_matrix(batch: int, channels_last: bool) -> None:
    mapping, jacobian = made(batch, channels_last=channels_last)
    weights = torch.randn(4, batch, POSITIONS, generator=torch.Generator().manual_seed(3)).double()
    expected = torch.einsum("bmn,kbn->kbm", jacobian, weights)
    torch.testing.assert_close(mapping.push(weights), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(mapping.push(weights[0]), expected[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_sample_that_is_not_finite_is_known_where_the_others_are_confirmed(value: float) -> None:
    """Also where the weights of the channel that it meets are all zero."""
    network = seeded(pooled)
    with torch.no_grad():
        network[4].weight[:, 0] = 0.0
    record(network, pixels(3))
    inputs = pixels(3, seed=1)
    inputs[1, :, 5, 5] = value
    with record(network, inputs) as recording:
        assert isinstance(recording.head, PlannedHead)
        assert recording.head.finite.tolist() == [True, False, True]


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("published", [False, True])
def test_classes_are_pulled_back_as_their_directions(published: bool, batch: int, channels_last: bool) -> None:
    mapping, jacobian = made(batch, channels_last=channels_last)
    scores = torch.randn(batch, CLASSES, generator=torch.Generator().manual_seed(1)).double()
    losses = ClassSpecific(top=4, published=published).losses(scores).losses
    spikes = [loss.spike for loss in losses if loss.spike is not None]
    assert len(spikes) == len(losses)
    directions = torch.stack([loss.direction for loss in losses])  # type: ignore[misc]
    _, at, elsewhere = spikes[0]
    places = torch.stack([spike.places for spike in spikes])
    pulled = mapping.pull_spikes(places, at, elsewhere)
    torch.testing.assert_close(pulled, torch.einsum("bmn,kbm->kbn", jacobian, directions), rtol=0, atol=1e-12)
