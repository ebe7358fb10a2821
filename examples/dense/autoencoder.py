"""An autoencoder of two blobs: which part of the code holds this part of the reconstruction?

python examples/dense/autoencoder.py docs/pictures/dense-autoencoder.png
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor, nn

import l2caf


def build() -> nn.Sequential:
    """16 times smaller in the middle; nothing goes around it."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 4, stride=4),
        nn.ReLU(),
        nn.Conv2d(16, 24, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.ConvTranspose2d(24, 16, 2, stride=2),
        nn.ReLU(),
        nn.ConvTranspose2d(16, 1, 4, stride=4),
    )


def blobs(count: int, size: int = 64) -> Tensor:
    """Two soft blobs in each picture."""
    places = torch.randint(8, size - 8, (count, 2, 2, 1, 1))
    across = torch.arange(size)
    distance = (across[:, None] - places[:, :, 0]) ** 2 + (across - places[:, :, 1]) ** 2
    return (-distance / 40.0).exp().amax(dim=1, keepdim=True)


def main(out: str = "autoencoder.png", steps: int = 120) -> l2caf.Heatmap:
    torch.manual_seed(1)
    network = build()
    optimizer = torch.optim.Adam(network.parameters(), 5e-3)
    for _ in range(steps):
        pictures = blobs(16)
        optimizer.zero_grad()
        nn.functional.mse_loss(network(pictures), pictures).backward()
        optimizer.step()
    picture = blobs(1)
    y, x = divmod(int(picture.argmax()), 64)
    box = (max(0, x - 7), max(0, y - 7), min(64, x + 8), min(64, y + 8))
    # No channel: what keeps the region as it is.
    heatmap = l2caf.explain(network.eval(), picture, objective=l2caf.Region(box))
    heatmap.save(out, picture[0, 0].numpy(), width=240)
    return heatmap


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
