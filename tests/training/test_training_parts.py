"""Batches, losses and cuts, each against something written out at length."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from l2caf.errors import DatasetError, InputError
from l2caf.networks.embedding import load_backbone
from l2caf.training.batches import ClassBatches, share_of
from l2caf.training.freezing import Cut, auto_cut, resolve
from l2caf.training.retrieval.held_out import hold_out
from l2caf.training.retrieval.losses import NPair, SemiHardTriplet, loss_by_name
from l2caf.training.retrieval.projection import pca
from l2caf.training.state import Averages

LABELS = np.repeat(np.arange(5), 6)


def test_a_batch_has_so_many_classes_with_so_many_pictures_each() -> None:
    batches = ClassBatches(LABELS, classes=3, each=4, seed=1)
    for iteration in range(20):
        batch = batches(iteration)
        labels, counts = np.unique(LABELS[batch], return_counts=True)
        assert len(labels) == 3
        assert counts.tolist() == [4, 4, 4]
        assert len(set(batch.tolist())) == batches.size == 12


def test_a_batch_follows_from_seed_and_iteration_alone() -> None:
    first, again, other = (ClassBatches(LABELS, classes=3, each=2, seed=seed) for seed in (1, 1, 2))
    first(3)
    assert first(9).tolist() == again(9).tolist()
    assert any(first(n).tolist() != other(n).tolist() for n in range(5))
    assert len({tuple(first(n)) for n in range(30)}) > 25


def test_a_small_class_fills_its_place_by_turns() -> None:
    labels = np.array([0, 0, 1, 1, 1, 1, 1])
    batch = ClassBatches(labels, classes=2, each=5, seed=0)(0)
    assert (labels[batch] == 0).sum() == 5


def test_parts_of_a_batch_make_the_batch() -> None:
    batch = ClassBatches(LABELS, classes=3, each=4)(0)
    parts = [share_of(batch, rank=rank, processes=3) for rank in range(3)]
    assert np.concatenate(parts).tolist() == batch.tolist()
    with pytest.raises(InputError, match="cannot be split over 5"):
        share_of(batch, rank=0, processes=5)


def test_held_out_pictures_are_none_of_those_trained_on() -> None:
    train, held = hold_out(LABELS, share=1 / 3)
    assert sorted([*train, *held]) == list(range(30))
    assert np.unique(LABELS[held], return_counts=True)[1].tolist() == [2] * 5
    assert hold_out(LABELS, share=1 / 3, seed=5)[1].tolist() != held.tolist()
    small, none = hold_out([0, 0, 1, 1, 1], share=0.5)
    assert (len(small), len(none)) == (5, 0)


def test_bad_batches() -> None:
    with pytest.raises(DatasetError, match="class 1 has 1 picture"):
        ClassBatches(np.array([0, 0, 1]), classes=2, each=2)
    with pytest.raises(DatasetError, match="nothing to tell apart"):
        ClassBatches(np.array([0, 0]), classes=2, each=2)
    with pytest.raises(InputError, match="make no pair"):
        ClassBatches(LABELS, classes=2, each=1)
    with pytest.raises(DatasetError, match="no pictures"):
        hold_out([], share=0.2)
    with pytest.raises(InputError, match="cannot be held out"):
        hold_out(LABELS, share=1.0)


def test_triplet_loss_is_the_mean_over_semi_hard_triplets() -> None:
    torch.manual_seed(0)
    raw, labels = torch.randn(10, 4), torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 2, 2])
    points = [row / row.norm() for row in raw]
    costs = []
    for a in range(10):
        for p in range(10):
            for n in range(10):
                if a == p or labels[a] != labels[p] or labels[a] == labels[n]:
                    continue
                gap = float((points[a] - points[n]).norm() - (points[a] - points[p]).norm())
                if 0 < gap < 0.2:
                    costs.append(0.2 - gap)
    assert len(costs) > 5
    assert float(SemiHardTriplet()(raw, labels)) == pytest.approx(sum(costs) / len(costs), abs=1e-6)


def test_a_batch_without_semi_hard_triplets_costs_nothing() -> None:
    raw = torch.tensor([[1.0, 0.0], [2.0, 0.0], [-1.0, 0.0], [-3.0, 0.0]], requires_grad=True)
    loss = SemiHardTriplet()(raw, torch.tensor([0, 0, 1, 1]))
    loss.backward()
    assert float(loss.detach()) == 0


def test_n_pair_loss_is_a_softmax_over_the_positives_of_all_classes() -> None:
    torch.manual_seed(0)
    raw, labels = 2 * torch.randn(8, 5), torch.arange(4).repeat_interleave(2)
    costs = []
    for i in range(4):
        scores = [float(raw[2 * i] @ raw[2 * j + 1]) for j in range(4)]
        costs.append(math.log(sum(math.exp(score) for score in scores)) - scores[i])
    assert float(NPair()(raw, labels)) == pytest.approx(sum(costs) / 4, rel=1e-5)
    held = float(NPair(weight=0.1)(raw, labels)) - float(NPair()(raw, labels))
    assert held == pytest.approx(0.1 * float(raw.square().sum(dim=1).mean()), rel=1e-4)


def test_a_loss_that_is_not_there() -> None:
    with pytest.raises(InputError, match="take triplet or npair"):
        loss_by_name("contrastive")


@pytest.mark.parametrize(
    ("name", "expected"),
    [("efficientnet_lite0", "blocks.5"), ("timm:resnet18", "layer3"), ("timm:convnext_atto", "stages.2")],
)
def test_a_trunk_in_two_parts_is_the_trunk(name: str, expected: str) -> None:
    backbone = load_backbone(name, pretrained=False)
    trunk, probe = backbone.trunk.eval(), torch.randn(1, 3, 64, 64)
    assert auto_cut(trunk, probe) == expected
    cut = Cut(trunk, expected, probe)
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        assert torch.allclose(cut.upper(cut.lower(images)), trunk(images), atol=1e-5)
    names = dict(trunk.named_parameters())
    moving = dict(cut.upper.named_parameters())
    assert 0 < len(moving) < len(names)
    assert all(value is names[key] for key, value in moving.items())


def test_freezing_by_name() -> None:
    trunk, probe = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 8, 3)), torch.zeros(1, 3, 9, 9)
    assert resolve("1", trunk, probe, has_accelerator=False) == "1"
    assert resolve("auto", trunk, probe, has_accelerator=True) == "none"
    assert list(Cut(trunk, "trunk", probe).upper.parameters()) == []
    assert Cut(trunk, "none", probe).upper is trunk
    with pytest.raises(InputError, match="no module 'layer9'"):
        resolve("layer9", trunk, probe, has_accelerator=False)


def test_a_cut_through_a_skip_connection_is_refused() -> None:
    class Skipping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.third = (nn.Conv2d(3, 3, 1) for _ in range(3))

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            early = self.first(images)
            return self.third(self.second(early)) + early

    with pytest.raises(InputError, match="cannot be cut at second"):
        Cut(Skipping().eval(), "second", torch.randn(1, 3, 8, 8))


def test_principal_axes_keep_distances_and_set_the_length() -> None:
    features = torch.randn(50, 12, generator=torch.Generator().manual_seed(0)) @ torch.randn(12, 12)
    weight, bias = pca(features, 12)
    assert torch.allclose(torch.cdist(features @ weight.T + bias, features @ weight.T + bias)[0],
                          torch.cdist(features, features)[0], rtol=1e-3, atol=1e-3)  # fmt: skip
    weight, bias = pca(features, 6, whiten=1.0, length=5.0)
    made = features @ weight.T + bias
    assert float(made.square().sum(dim=1).mean()) == pytest.approx(5, rel=1e-4)
    assert torch.allclose(made.std(dim=0), made.std(dim=0)[0].expand(6), rtol=1e-3)
    weight, _ = pca(features[:4], 8)
    assert weight.shape == (8, 12)
    assert bool(weight.isfinite().all())


def test_what_is_shipped_lies_between_start_and_mean() -> None:
    layer = nn.Linear(2, 2)
    start = {name: torch.zeros_like(value) for name, value in layer.named_parameters()}
    averages = Averages(start, decay=0.0, keep=0.25)
    averages.add(layer, 0)
    for name, value in layer.named_parameters():
        assert torch.allclose(averages.shipped()[name], 0.75 * value)
