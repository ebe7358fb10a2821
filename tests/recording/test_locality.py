"""A map is of use where a position answers to a part of the input: planted kernels, from all-seeing to narrow."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import l2caf
from l2caf.errors import LayerError
from l2caf.recording.inputs import Arguments
from l2caf.recording.layers import Layer, find_layer, usable_layers
from l2caf.recording.locality import Locality

REACH = 31  # of the second convolution: all of its 16 positions, from any of them


def seeing(own: float) -> nn.Sequential:
    """A signal's map of 16 positions, then one that sees all of it, its own place stronger by a share."""
    torch.manual_seed(1)
    network = nn.Sequential(
        nn.Conv1d(1, 16, 16, stride=16),
        nn.ReLU(),
        nn.Conv1d(16, 64, REACH, padding=REACH // 2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * 16, 5),
    )
    far = (torch.arange(REACH) - REACH // 2).abs() / (REACH // 2)
    with torch.no_grad():
        network[2].weight.mul_(1 + own * (1 - far))  # type: ignore[operator,union-attr]
    return network.eval()


def signals() -> Tensor:
    return torch.randn(2, 1, 256, generator=torch.Generator().manual_seed(0))


def layers(network: nn.Module) -> dict[str, Layer]:
    return {layer.name: layer for layer in usable_layers(network, signals())}


def default(network: nn.Module) -> str:
    return find_layer(network, Arguments.of(signals()), None).name


def test_what_answers_to_all_of_the_input_is_no_map() -> None:
    network = seeing(0.3)  # where its positions answer follows their places by 0.89 all the same
    assert set(layers(network)) == {"0", "1"}
    assert default(network) == "1"
    with pytest.raises(LayerError, match=r"each of its positions answers to 9\d % of the input, wherever it lies"):
        l2caf.explain(network, signals(), layer="2")


def test_what_answers_to_most_of_the_input_is_drawn_and_said() -> None:
    network = seeing(1.0)
    found = layers(network)["3"]
    assert "'3' tells places apart but little, as each of its positions answers to" in found.note
    assert "'1' is the last layer that keeps them apart" in found.note
    assert layers(network)["1"].note == ""
    reason = l2caf.explain(network, signals(), layer="3").solution.reason
    assert found.note in reason


def test_what_answers_to_a_part_of_the_input_needs_no_word() -> None:
    network = seeing(16.0)
    assert default(network) == "3"
    assert layers(network)["3"].note == ""


class Lost(nn.Module):
    """Three maps: a clear one, one of little use, and one without places, from which the scores are made."""

    def __init__(self) -> None:
        super().__init__()
        clear, _, vague, _, _, _ = seeing(1.0)
        self.clear, self.vague = clear, vague
        self.mixed = nn.Conv1d(64, 64, REACH, padding=REACH // 2)
        self.scores = nn.Linear(64 * 16, 5)

    def forward(self, signals: Tensor) -> Tensor:
        found: Tensor = self.scores(self.mixed(self.vague(self.clear(signals).relu()).relu()).flatten(1))
        return found


def test_where_place_is_lost_on_the_way_the_last_clear_map_is_taken() -> None:
    network = Lost().eval()
    assert list(layers(network)) == ["clear", "vague"]
    assert default(network) == "clear"


def test_locality_is_that_of_shares_written_out() -> None:
    places = (np.arange(5) + 0.5) / 5
    answers = np.random.default_rng(0).random((8, 5))
    middle = (np.arange(8) + 0.5) / 8
    shares = answers / answers.sum(axis=0)
    slope = np.polyfit(places, middle @ shares, 1)[0]
    found = Locality.of([(answers, places), (answers, places)])
    assert found.follows == pytest.approx(1 - (1 - max(slope, 0)) ** 2)
    assert found.share == pytest.approx(float((1 / (8 * (shares**2).sum(axis=0))).mean()) ** 2)
