"""A U-Net that marks discs: what in its bottleneck makes a region of the mask what it is?

python examples/dense/unet.py docs/pictures/dense-unet.png
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor, nn

import l2caf


class UNet(nn.Module):
    """Skip connections carry what is fine; the bottleneck sees far."""

    def __init__(self) -> None:
        super().__init__()
        self.fine = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU())
        self.coarse = nn.Sequential(nn.Conv2d(8, 16, 5, stride=4, padding=2), nn.ReLU())
        self.bottom = nn.Sequential(nn.Conv2d(16, 16, 3, stride=2, padding=1), nn.ReLU())
        self.up = nn.Sequential(nn.ConvTranspose2d(16, 16, 2, stride=2), nn.ReLU())
        self.top = nn.Sequential(nn.ConvTranspose2d(32, 8, 4, stride=4), nn.ReLU())
        self.answer = nn.Conv2d(16, 2, 1)

    def forward(self, pictures: Tensor) -> Tensor:
        fine = self.fine(pictures)
        coarse = self.coarse(fine)
        up = self.up(self.bottom(coarse))
        return self.answer(torch.cat([self.top(torch.cat([up, coarse], dim=1)), fine], dim=1))


def discs(count: int, size: int = 64) -> tuple[Tensor, Tensor]:
    """Noise with two bright discs in each picture, and where they are."""
    places = torch.randint(10, size - 10, (count, 2, 2, 1, 1))
    across = torch.arange(size)
    distance = (across[:, None] - places[:, :, 0]) ** 2 + (across - places[:, :, 1]) ** 2
    inside = (distance < 49).any(dim=1)
    return 0.3 * torch.rand(count, 3, size, size) + 0.7 * inside.unsqueeze(1), inside.long()


def main(out: str = "unet.png", steps: int = 80) -> l2caf.Heatmap:
    torch.manual_seed(0)
    network = UNet()
    optimizer = torch.optim.Adam(network.parameters(), 5e-3)
    for _ in range(steps):
        pictures, marked = discs(8)
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(pictures), marked, torch.tensor([1.0, 3.0])).backward()
        optimizer.step()
    picture, marked = discs(1)
    y, x = (int(one) for one in marked[0].nonzero()[0])
    box = (max(0, x - 8), y, min(64, x + 8), min(64, y + 14))
    heatmap = l2caf.explain(network.eval(), picture, objective=l2caf.Region(box, channel=1, predicted=True))
    heatmap.save(out, picture[0].permute(1, 2, 0).numpy(), width=240)
    return heatmap


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
