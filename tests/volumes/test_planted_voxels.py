"""One voxel of a volume decides the class; the map of a network that learnt so is hottest there."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import l2caf

SIDE, STRIDE = 24, 3


def drawn(generator: torch.Generator, count: int, side: int = SIDE) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Noise in which one voxel, anywhere, is far brighter or far darker: the volumes, which of both, and where."""
    volumes = 0.1 * torch.randn(count, 1, side, side, side, generator=generator)
    labels = torch.randint(2, (count,), generator=generator)
    places = torch.randint(side, (count, 3), generator=generator)
    for volume, label, (z, y, x) in zip(volumes, labels.tolist(), places.tolist(), strict=True):
        volume[0, z, y, x] = 6.0 if label else -6.0
    return volumes, labels, places


class Summed(nn.Module):
    """One position in 512 decides, and hardly counts in their mean."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(dim=(2, 3, 4))


def trained(outputs: int) -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv3d(1, 12, STRIDE, stride=STRIDE), nn.ReLU(), Summed(), nn.Linear(12, outputs),
    )  # fmt: skip
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    for step in range(460):
        volumes, labels, _ = drawn(generator, 32, 9 if step < 360 else SIDE)  # the small ones teach it faster
        scores = network(volumes)
        loss = (
            nn.functional.cross_entropy(scores, labels)
            if outputs > 1
            else nn.functional.binary_cross_entropy_with_logits(scores[:, 0], labels.float())
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return network.eval()


@pytest.fixture(scope="module")
def two_classes() -> nn.Module:
    return trained(2)


@pytest.fixture(scope="module")
def one_logit() -> nn.Module:
    return trained(1)


def found(heatmap: l2caf.Heatmap, places: torch.Tensor) -> int:
    """In how many volumes the hottest voxel lies in the same cell of the layer as the one that decides."""
    peaks = torch.stack(torch.unravel_index(heatmap.maps.flatten(1).argmax(dim=1), heatmap.size), dim=1)
    return int((peaks // STRIDE == places // STRIDE).all(dim=1).sum())


@pytest.mark.parametrize("objective", [None, "class", l2caf.Prediction()])
def test_the_voxel_that_decides_is_the_peak(two_classes: nn.Module, objective: object) -> None:
    volumes, labels, places = drawn(torch.Generator().manual_seed(7), 100)
    with torch.no_grad():
        assert (two_classes(volumes).argmax(dim=1) == labels).float().mean() > 0.97
    asked = l2caf.ClassSpecific(labels=labels) if objective == "class" else objective
    heatmap = l2caf.explain(two_classes, volumes, objective=asked)  # type: ignore[call-overload]
    assert found(heatmap, places) >= 95
    assert set(heatmap.outcome) == {"exact"}
    boxes = [of_one[0] for of_one in heatmap.boxes(0.5)]
    inside = [
        all(low <= at < high for at, low, high in zip(place[::-1], box[:3], box[3:], strict=True))
        for place, box in zip(places.tolist(), boxes, strict=True)
    ]
    assert sum(inside) >= 90  # the box of the largest part, which is linear between the cells


def test_one_logit_is_raised_or_kept(one_logit: nn.Module) -> None:
    volumes, labels, places = drawn(torch.Generator().manual_seed(8), 200)
    bright = labels == 1
    volumes, places = volumes[bright][:90], places[bright][:90]
    with torch.no_grad():
        assert (one_logit(volumes) > 0).float().mean() > 0.97
    for objective in (None, l2caf.ClassSpecific()):
        assert found(l2caf.explain(one_logit, volumes, objective=objective), places) >= 0.95 * len(volumes)
