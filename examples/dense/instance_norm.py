"""A network with InstanceNorm throughout: its head does not feel scale, so a region is raised along its own values.

python examples/dense/instance_norm.py docs/pictures/dense-instance-norm.png
"""

from __future__ import annotations

import sys

import torch
from torch import nn
from unet import discs

import l2caf


def block(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.InstanceNorm2d(outputs), nn.ReLU())


def build() -> nn.Sequential:
    """Normalised after every convolution, as restyling and medical networks are."""
    return nn.Sequential(
        block(3, 16, 2),
        block(16, 24, 2),
        block(24, 24, 2),
        nn.Upsample(scale_factor=2),
        block(24, 16),
        nn.Upsample(scale_factor=4),
        block(16, 8),
        nn.Conv2d(8, 2, 1),
    )


def main(out: str = "instance_norm.png", steps: int = 120) -> l2caf.Heatmap:
    torch.manual_seed(0)
    network = build()
    optimizer = torch.optim.Adam(network.parameters(), 1e-2)
    for _ in range(steps):
        pictures, marked = discs(8)
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(pictures), marked, torch.tensor([1.0, 3.0])).backward()
        optimizer.step()
    picture, marked = discs(1)
    # A mask, and no channel: what keeps the logits of the disc as they are.
    heatmap = l2caf.explain(network.eval(), picture, objective=l2caf.Region(marked))
    heatmap.save(out, picture[0].permute(1, 2, 0).numpy(), width=240)
    return heatmap


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
