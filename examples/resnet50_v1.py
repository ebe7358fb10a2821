"""A network that is brought along: `l2caf explain photo.jpg --network examples/resnet50_v1.py:build --weights FILE`."""

from __future__ import annotations

from l2caf.networks.class_names import imagenet_class_names
from l2caf.networks.imports import import_torchvision
from l2caf.networks.model import Model
from l2caf.preprocessing import Preprocessing


def build() -> Model:
    """Return a ResNet-50 whose strides sit in the first convolution of a stage, as in the first publication."""
    network = import_torchvision().models.resnet50(weights=None)
    for stage in (network.layer2, network.layer3, network.layer4):
        stage[0].conv1.stride, stage[0].conv2.stride = (2, 2), (1, 1)
    mean = tuple(value / 255 for value in (123.68, 116.779, 103.939))
    return Model("resnet50_v1", network, Preprocessing(mean=mean, interpolation="bicubic"), imagenet_class_names())
