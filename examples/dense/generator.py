"""A generator from a latent vector has no input pixels: the map is drawn over its output.

python examples/dense/generator.py docs/pictures/dense-generator.png
"""

from __future__ import annotations

import sys

import torch
from autoencoder import blobs
from torch import Tensor, nn

import l2caf


class Canvas(nn.Module):
    """A generator as a function of a canvas as large as its output, which strengthens its first map place by place.

    A canvas of zeros changes nothing. That the output answers to the canvas beneath it is what l2caf verifies, so a map
    over the canvas is one over the output.
    """

    def __init__(self, project: nn.Module, decoder: nn.Module, latent: Tensor) -> None:
        super().__init__()
        self.project, self.decoder, self.latent, self.first = project, decoder, latent, nn.Identity()

    def forward(self, canvas: Tensor) -> Tensor:
        start = self.project(self.latent)
        return self.decoder(self.first(start * (1 + nn.functional.adaptive_avg_pool2d(canvas, start.shape[2:]))))


def main(out: str = "generator.png", steps: int = 150) -> l2caf.Heatmap:
    torch.manual_seed(1)
    project = nn.Sequential(nn.Linear(8, 32 * 8 * 8), nn.ReLU(), nn.Unflatten(1, (32, 8, 8)))
    decoder = nn.Sequential(nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(16, 1, 4, stride=4))
    latents, pictures = torch.randn(16, 8), blobs(16)  # a picture for each latent: a generator that knows sixteen
    optimizer = torch.optim.Adam([*project.parameters(), *decoder.parameters()], 5e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.mse_loss(decoder(project(latents)), pictures).backward()
        optimizer.step()
    network = Canvas(project, decoder, latents[:1]).eval()
    y, x = divmod(int(pictures[0].argmax()), 64)
    box = (max(0, x - 7), max(0, y - 7), min(64, x + 8), min(64, y + 8))
    asked = l2caf.Region(box, channel=0)
    canvas = torch.zeros(1, 1, 64, 64)
    heatmap = l2caf.explain(network, canvas, objective=asked, layer="first")
    with torch.no_grad():
        drawn = network(canvas)[0, 0].clamp(0, 1).numpy()
    heatmap.save(out, drawn, width=240)
    return heatmap


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
