"""A variational autoencoder: the random draw has to be the same in every evaluation.

python examples/dense/vae.py docs/pictures/dense-vae.png
"""

from __future__ import annotations

import sys

import torch
from autoencoder import blobs
from torch import Tensor, nn

import l2caf


class VAE(nn.Module):
    """A code with a mean and a spread at each position; the noise is an argument, so that it can be held."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, 16, 4, stride=4), nn.ReLU(), nn.Conv2d(16, 24, 3, 2, 1), nn.ReLU())
        self.mean, self.spread = nn.Conv2d(24, 8, 1), nn.Conv2d(24, 8, 1)
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(8, 16, 2, stride=2), nn.ReLU(), nn.ConvTranspose2d(16, 1, 4, stride=4)
        )

    def forward(self, pictures: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        seen = self.encoder(pictures)
        mean, spread = self.mean(seen), self.spread(seen)
        surprise = (mean.square() + spread.exp() - spread - 1).mean()
        return self.decoder(mean + (spread / 2).exp() * noise), surprise


def main(out: str = "vae.png", steps: int = 120) -> l2caf.Heatmap:
    torch.manual_seed(1)
    network = VAE()
    optimizer = torch.optim.Adam(network.parameters(), 5e-3)
    for _ in range(steps):
        pictures = blobs(16)
        optimizer.zero_grad()
        made, surprise = network(pictures, torch.randn(16, 8, 8, 8))
        (nn.functional.mse_loss(made, pictures) + 1e-4 * surprise).backward()
        optimizer.step()
    picture, noise = blobs(1), torch.randn(1, 8, 8, 8)
    y, x = divmod(int(picture.argmax()), 64)
    box = (max(0, x - 7), max(0, y - 7), min(64, x + 8), min(64, y + 8))
    heatmap = l2caf.explain(
        network.eval(), (picture, noise), objective=l2caf.Region(box, channel=0), output=0, of=0, layer="encoder"
    )
    heatmap.save(out, picture[0, 0].numpy(), width=240)
    return heatmap


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
