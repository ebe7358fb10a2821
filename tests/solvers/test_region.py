"""Questions about a region of an image-like output."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import l2caf
from l2caf.errors import L2cafError
from l2caf.solvers.exact import Exact


def affine() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 6, 8, stride=8), nn.ReLU(), nn.Upsample(scale_factor=8, mode="bilinear"), nn.Conv2d(6, 3, 1)
    ).eval()


@pytest.mark.parametrize("channel", [None, 1])
def test_a_region_is_what_a_selected_output_is(channel: int | None) -> None:
    network, pictures = affine(), torch.rand(2, 3, 32, 32)
    asked = l2caf.Region((8, 0, 20, 16), channel=channel)

    def part(output: torch.Tensor) -> torch.Tensor:
        return output[:, :, 0:16, 8:20].flatten(1)

    def raised(output: torch.Tensor) -> torch.Tensor:
        mean = output[:, :, 0:16, 8:20].mean(dim=(2, 3))
        return mean[:, 1:2] - mean.mean(dim=1, keepdim=True)

    found = l2caf.explain(network, pictures, objective=asked)
    selected: Any = part if channel is None else raised
    objective = None if channel is None else l2caf.ClassSpecific(0)
    slow = l2caf.explain(network, pictures, objective=objective, output=selected, layer=found.layer, solver=Exact())
    assert found.outcome == ["exact", "exact"]
    torch.testing.assert_close(found.weights, slow.weights, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("where", "channel", "words"),
    [
        (torch.zeros(32, 32), None, "is empty"),
        (torch.ones(5, 5), None, "has shape"),
        ((0, 0, 40, 8), None, "lies outside"),
        ((0, 0, 0, 8), None, "is empty"),
        ((0, 0, 8, 8), 3, "out of range"),
        ("cat", None, "is no region"),
    ],
)
def test_a_wrong_region_is_told_in_a_sentence(where: Any, channel: int | None, words: str) -> None:
    with pytest.raises(L2cafError, match=words):
        l2caf.explain(affine(), torch.rand(1, 3, 32, 32), objective=l2caf.Region(where, channel=channel))
