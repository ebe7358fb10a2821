"""Affine heads with many positions: the best filter by a few runs of the head, where a map would need one for each."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import l2caf
from l2caf.heads import recorded
from l2caf.heads.affine import DenseMap, ReplayedMap
from networks_for_tests import pixels, seeded


class Overlapping(nn.Module):
    """Means over windows that overlap, so that positions in the middle count more than those at the edge."""

    def __init__(self, *, cut: bool = False) -> None:
        super().__init__()
        self.layer = nn.Sequential(nn.Conv2d(3, 12, 4, stride=4), nn.ReLU())
        self.pool = nn.AvgPool2d(8, stride=2)
        self.scores = nn.Conv2d(12, 9, 1)
        self.cut = cut

    def forward(self, x: Tensor) -> Tensor:
        maps = self.layer(x)
        return self.scores(self.pool(maps.detach() if self.cut else maps)).mean(dim=(2, 3))


def explained(monkeypatch: pytest.MonkeyPatch, most: int, network: nn.Module, **asked: object) -> l2caf.Heatmap:
    monkeypatch.setattr(recorded, "MANY_POSITIONS", most)
    return l2caf.explain(network, pixels(3, size=(64, 64)), layer="layer", **asked)  # type: ignore[arg-type]


@pytest.mark.parametrize("objective", [l2caf.ClassOblivious(), l2caf.Prediction(), l2caf.ClassSpecific(4)])
def test_products_find_what_columns_find(monkeypatch: pytest.MonkeyPatch, objective: l2caf.Objective) -> None:
    few = explained(monkeypatch, 10**9, seeded(Overlapping), objective=objective)
    many = explained(monkeypatch, 128, seeded(Overlapping), objective=objective)
    assert few.outcome == many.outcome == ["exact"] * 3
    assert few.weights.shape == (3, 16, 16)
    assert torch.cosine_similarity(few.weights.flatten(1), many.weights.flatten(1)).min() > 0.9999
    torch.testing.assert_close(few.solution.loss, many.solution.loss, rtol=1e-4, atol=1e-9)


def test_far_fewer_runs_of_the_head_than_positions() -> None:
    head = l2caf.record(seeded(Overlapping), pixels(3, size=(64, 64)), layer="layer").head
    before = head.evaluations
    assert set(l2caf.AttentionFilter().on(head).outcome) == {"exact"}
    assert isinstance(head.affine(), ReplayedMap)
    assert head.evaluations - before < 40


def test_a_map_by_its_products_is_the_map_that_is_written_out() -> None:
    head = l2caf.record(seeded(Overlapping), pixels(3, size=(64, 64)), layer="layer").head
    mapping = head.affine()
    assert isinstance(mapping, ReplayedMap)
    generator = torch.Generator().manual_seed(0)
    weights, directions = torch.randn(2, 3, 256, generator=generator), torch.randn(2, 3, 9, generator=generator)
    written = DenseMap(mapping.jacobian, mapping.offset)
    for one, other in ((weights, directions), (weights[0], directions[0])):
        torch.testing.assert_close(mapping.push(one), written.push(one), atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(mapping(one), written(one), atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(mapping.pull(other), written.pull(other), atol=1e-5, rtol=1e-4)


def test_where_the_gradient_is_cut_the_columns_tell() -> None:
    network = seeded(lambda: Overlapping(cut=True))
    head = l2caf.record(network, pixels(3, size=(64, 64)), layer="layer").head
    assert isinstance(head.affine(), DenseMap)
    heatmap = l2caf.explain(network, pixels(3, size=(64, 64)), layer="layer")
    whole = l2caf.explain(seeded(Overlapping), pixels(3, size=(64, 64)), layer="layer")
    assert torch.cosine_similarity(heatmap.weights.flatten(1), whole.weights.flatten(1)).min() > 0.999
