"""Planted answers: one known place of the input decides a region of the output, and the peak has to be there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import l2caf

SIZE, STEP, COUNT = 64, 8, 100


def cells(count: int) -> Tensor:
    """A cell of the 8 x 8 grid per picture, none at the edge: (count, 2), row and column."""
    return torch.randint(1, SIZE // STEP - 1, (count, 2))


def put(pictures: Tensor, places: Tensor, values: Tensor) -> Tensor:
    """A square of 6 pixels within a cell of each picture, in a value per channel."""
    for picture, (row, column), value in zip(pictures, places.tolist(), values, strict=True):
        top, left = STEP * row + 1, STEP * column + 1
        picture[:, top : top + 6, left : left + 6] = value.reshape(-1, 1, 1)
    return pictures


def hits(heatmap: l2caf.Heatmap, places: Tensor) -> int:
    """In how many samples the highest weight is that of the planted cell."""
    best = heatmap.weights.flatten(1).argmax(dim=1)
    return int((best == places[:, 0] * (SIZE // STEP) + places[:, 1]).sum())


class Sign(nn.Module):
    """A sign somewhere in the picture decides what the middle of the mask is; elsewhere the mask is background."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(2, 16, STEP, stride=STEP), nn.ReLU(), nn.Conv2d(16, 16, 1), nn.ReLU())
        self.far = nn.Conv2d(16, 16, 1)  # of the sum over all positions: each of the mask hears every other
        self.where = nn.Parameter(0.1 * torch.randn(1, 16, SIZE // STEP, SIZE // STEP))
        self.decoder = nn.Sequential(nn.ReLU(), nn.Upsample(scale_factor=STEP), nn.Conv2d(16, 3, 1))

    def forward(self, pictures: Tensor) -> Tensor:
        heard = self.far(self.encoder(pictures).sum(dim=(2, 3), keepdim=True))
        found: Tensor = self.decoder(heard + self.where)
        return found


def signs(count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Noise with a sign of one of two kinds; the mask, where the sign is, and its kind."""
    places, kinds = cells(count), torch.randint(0, 2, (count,))
    pictures = put(0.3 * torch.rand(count, 2, SIZE, SIZE), places, nn.functional.one_hot(kinds, 2).float())
    mask = torch.zeros(count, SIZE, SIZE, dtype=torch.long)
    mask[:, 24:40, 24:40] = (1 + kinds).reshape(-1, 1, 1)
    return pictures, mask, places, kinds


def trained(network: nn.Module, loss: Callable[..., Tensor], made: Callable[[int], Any], steps: int) -> nn.Module:
    optimizer = torch.optim.Adam(network.parameters(), 1e-2)
    for _ in range(steps):
        pictures, target = made(16)[:2]
        optimizer.zero_grad()
        loss(network(pictures), target).backward()
        optimizer.step()
    return network.eval()


@pytest.fixture(scope="module")
def seer() -> nn.Module:
    torch.manual_seed(0)
    return trained(Sign(), nn.CrossEntropyLoss(torch.tensor([0.1, 1.0, 1.0])), signs, 200)


@pytest.mark.parametrize("raised", [True, False])
def test_a_sign_that_decides_a_region_of_the_mask_is_found(seer: nn.Module, *, raised: bool) -> None:
    torch.manual_seed(1)
    pictures, mask, places, kinds = signs(COUNT)
    with torch.no_grad():
        assert (seer(pictures).argmax(1) == mask).float().mean() > 0.99
    found = 0
    for kind in (0, 1):
        own = kinds == kind
        asked = l2caf.Region((24, 24, 40, 40), channel=1 + kind if raised else None)
        found += hits(l2caf.explain(seer, pictures[own], objective=asked, layer="encoder"), places[own])
    assert found >= 95


class Mirror(nn.Module):
    """An autoencoder whose decoder turns the picture over: a pixel of the reconstruction is made of another place."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, 32, STEP, stride=STEP), nn.ReLU(), nn.Conv2d(32, 32, 1), nn.ReLU())
        self.decoder = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.ConvTranspose2d(32, 1, STEP, STEP))

    def forward(self, pictures: Tensor) -> Tensor:
        found: Tensor = self.decoder(self.encoder(pictures)).flip(-1)
        return found


def squares(count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Two squares in a picture, its mirror image, and where the second of them is."""
    places = cells(count)
    pictures = put(0.1 * torch.rand(count, 1, SIZE, SIZE), cells(count), torch.full((count, 1), 0.8))
    pictures = put(pictures, places, torch.ones(count, 1))
    return pictures, pictures.flip(-1), places


@pytest.fixture(scope="module")
def mirror() -> nn.Module:
    torch.manual_seed(0)
    return trained(Mirror(), nn.functional.mse_loss, squares, 150)


@pytest.mark.parametrize("channel", [0, None])
def test_the_place_that_decides_a_pixel_of_a_reconstruction_is_found(mirror: nn.Module, channel: int | None) -> None:
    torch.manual_seed(1)
    pictures, _, places = squares(COUNT)
    pixels = torch.zeros(COUNT, SIZE, SIZE)
    rows, columns = STEP * places[:, 0] + 4, SIZE - 1 - (STEP * places[:, 1] + 4)
    pixels[torch.arange(COUNT), rows, columns] = 1
    asked = l2caf.Region(pixels, channel=channel)
    assert hits(l2caf.explain(mirror, pictures, objective=asked, layer="encoder"), places) >= 95
