"""A U-Net that marks large discs and no small ones: what in its bottleneck makes a region of the mask what it is?

python examples/dense/unet.py docs/pictures/dense-unet.png
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor, nn

import l2caf


class UNet(nn.Module):
    """The skip connection carries edges; only the bottleneck sees how large a disc is."""

    def __init__(self) -> None:
        super().__init__()
        self.fine = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU())
        self.coarse = nn.Sequential(nn.Conv2d(8, 16, 5, stride=4, padding=2), nn.ReLU())
        self.bottom = nn.Sequential(nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU())
        self.up = nn.Sequential(nn.ConvTranspose2d(32, 8, 8, stride=8), nn.ReLU())
        self.answer = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 2, 1))

    def forward(self, pictures: Tensor) -> Tensor:
        fine = self.fine(pictures)
        return self.answer(torch.cat([self.up(self.bottom(self.coarse(fine))), fine], dim=1))


def discs(count: int, size: int = 64) -> tuple[Tensor, Tensor]:
    """Noise with a large disc on the left or the right and a small one on the other side; where the large one is."""
    sides = torch.rand(count).lt(0.5).long()
    places = torch.stack([torch.randint(12, size - 12, (count,)), 16 + 32 * sides + torch.randint(-3, 4, (count,))], 1)
    others = torch.stack([torch.randint(12, size - 12, (count,)), 48 - 32 * sides], 1)
    rows, columns = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    far, other = (((rows - y) ** 2 + (columns - x) ** 2) for y, x in (p.T[..., None, None] for p in (places, others)))
    seen = (far < 100) | (other < 16)
    return 0.3 * torch.rand(count, 3, size, size) + 0.7 * seen.unsqueeze(1), (far < 100).long()


def main(out: str = "unet.png", steps: int = 120) -> l2caf.Heatmap:
    torch.manual_seed(0)
    network = UNet()
    optimizer = torch.optim.Adam(network.parameters(), 5e-3)
    for _ in range(steps):
        pictures, marked = discs(8)
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(pictures), marked, torch.tensor([1.0, 3.0])).backward()
        optimizer.step()
    picture, _ = discs(1)
    heatmap = l2caf.explain(network.eval(), picture, objective=l2caf.Region(channel=1))
    heatmap.save(out, picture[0].permute(1, 2, 0).numpy(), width=240)
    return heatmap


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
