"""A network of one's own with all that feeds it, for photographs and for the command line.

python examples/extend/network.py
l2caf explain photo.jpg --network examples/extend/network.py:build
"""

import torch
from torch import nn

import l2caf
from l2caf.preprocessing import Preprocessing
from l2caf.tasks.samples import sample

NAMES = ("red", "green", "blue")


def build() -> l2caf.Model:
    """A network that tells colours: each class is one channel less the mean of the others. No training is needed."""
    network = nn.Sequential(nn.Conv2d(3, 3, 16, stride=16), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 3))
    convolution, scores = network[0], network[3]
    with torch.no_grad():
        convolution.weight.copy_(torch.eye(3)[:, :, None, None].expand(3, 3, 16, 16) / 256)
        convolution.bias.zero_()
        scores.weight.copy_(1.5 * torch.eye(3) - 0.5)
        scores.bias.zero_()
    prepare = Preprocessing(input_size=(224, 224), resize_size=(224, 224), mean=(0.0,) * 3, std=(1.0,) * 3)
    return l2caf.Model("colours", network.eval(), prepare, class_names=NAMES)


def main() -> l2caf.Heatmap:
    model = build()
    heatmap = model.explain(sample("motorcycle"), objective=l2caf.ClassSpecific(model.class_index("red")))
    print(heatmap)  # the tank of the motorcycle
    return heatmap


if __name__ == "__main__":
    main()
