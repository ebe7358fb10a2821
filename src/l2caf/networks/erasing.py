"""Adversarial complementary learning: a second classifier learns from what the first does not look at.

Zhang et al., CVPR 2018. Two classifiers give a map for each class, whose mean is the class's score. Where the first
one's map of the right class is large, the features that the second one sees are zero.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

THRESHOLD = 0.6  # as published


def unit_range(maps: Tensor) -> Tensor:
    """Each sample's map (B, H, W) shifted and scaled to 0 … 1; one that is flat becomes zero."""
    low = maps.amin(dim=(1, 2), keepdim=True)
    high = maps.amax(dim=(1, 2), keepdim=True)
    return (maps - low) / (high - low).clamp_min(torch.finfo(maps.dtype).tiny)


def erase(features: Tensor, maps: Tensor, threshold: float) -> Tensor:
    """Features (B, C, H, W), zero where the map (B, H, W), brought to 0 … 1, is at least `threshold`.

    What is erased is a constant for gradients.

    >>> erase(torch.ones(1, 2, 1, 3), torch.tensor([[[0.0, 5.0, 10.0]]]), 0.6)[0, 0]
    tensor([[1., 1., 0.]])
    """
    kept = (unit_range(maps.detach()) < threshold).to(features.dtype)
    return features * kept.unsqueeze(1)


def of_classes(maps: Tensor, classes: Tensor) -> Tensor:
    """The map of one class per sample: (B, classes, H, W) to (B, H, W)."""
    return maps[torch.arange(len(maps), device=maps.device), classes]


class ClassMaps(nn.Sequential):
    """Features (B, C, H, W) to a map per class, by 3×3 convolutions with rectifiers, and one of 1×1."""

    def __init__(self, channels: int, classes: int, *, width: int, layers: int) -> None:
        super().__init__(*convolutions(channels, width, layers), nn.Conv2d(width or channels, classes, 1))


class Fuse(nn.Module):
    """The larger of two maps, cell by cell."""

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        return torch.maximum(first, second)


class ErasingHead(nn.Module):
    """Two classifiers on the features of a backbone; what they give is fused when the network is used.

    It returns the mean of the fused maps, so the fused map of a class is its class activation map, and a filter at
    `fuse` explains the fused output. There the first classifier's best class says what is erased, since nobody tells
    the label. The published form scales each map to 0 … 1 before it takes the larger; then no score of a class would
    be left, so here they are compared as they are.

    >>> head = ErasingHead(8, 3, width=4, layers=1)
    >>> head(torch.rand(2, 8, 7, 7)).shape, head.scores(torch.rand(2, 8, 7, 7), torch.tensor([0, 2])).shape
    (torch.Size([2, 3]), torch.Size([2, 2, 3]))
    """

    def __init__(
        self, channels: int, classes: int, *, width: int, layers: int = 2, threshold: float = THRESHOLD
    ) -> None:
        super().__init__()
        self.threshold = threshold
        self.first = ClassMaps(channels, classes, width=width, layers=layers)
        self.second = ClassMaps(channels, classes, width=width, layers=layers)
        self.fuse = Fuse()
        self.pool = nn.AdaptiveAvgPool2d(1)

    @property
    def is_linear(self) -> bool:
        """Whether nothing that is trained from random numbers comes before its last layers."""
        return len(self.first) == 1

    def maps(self, features: Tensor, labels: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The class maps of both; `labels` are the classes by whose maps is erased, or else the best ones."""
        first = self.first(features)
        classes = first.mean(dim=(2, 3)).argmax(dim=1) if labels is None else labels
        return first, self.second(erase(features, of_classes(first, classes), self.threshold))

    def scores(self, features: Tensor, labels: Tensor) -> Tensor:
        """What is trained: the scores of both, (2, B, classes)."""
        return torch.stack([maps.mean(dim=(2, 3)) for maps in self.maps(features, labels)])

    def forward(self, features: Tensor) -> Tensor:
        return self.pool(self.fuse(*self.maps(features))).flatten(1)


def convolutions(channels: int, width: int, layers: int) -> list[nn.Module]:
    """3×3 convolutions of `width` channels with rectifiers; none where the width is 0.

    >>> len(convolutions(512, 1024, 2)), len(convolutions(512, 0, 2))
    (4, 0)
    """
    made: list[nn.Module] = []
    for layer in range(layers if width else 0):
        made += [nn.Conv2d(channels if layer == 0 else width, width, 3, padding=1), nn.ReLU()]
    return made
