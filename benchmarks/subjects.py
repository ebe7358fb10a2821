"""The networks and photographs that are measured on."""

from __future__ import annotations

import skimage.data
import torch
from PIL import Image
from torch import Tensor, nn

from l2caf.networks.catalogue import load
from l2caf.networks.imports import import_torchvision

PHOTOGRAPHS = (
    "astronaut",
    "brick",
    "camera",
    "cell",
    "chelsea",
    "clock",
    "coffee",
    "coins",
    "grass",
    "gravel",
    "hubble_deep_field",
    "immunohistochemistry",
    "moon",
    "page",
    "retina",
    "rocket",
    "text",
)


def photographs() -> dict[str, Image.Image]:
    """All photographs that scikit-image carries in its package, as RGB."""
    return {name: Image.fromarray(getattr(skimage.data, name)()).convert("RGB") for name in PHOTOGRAPHS}


def batch(size: int | None = None) -> Tensor:
    """A batch of photographs, preprocessed for the embedded network, repeated to the size."""
    model = load()
    pictures = [model.preprocess(picture) for picture in photographs().values()]
    size = size or len(pictures)
    return torch.stack([pictures[index % len(pictures)] for index in range(size)])


def lite() -> nn.Module:
    return load().network


def torchvision_network(name: str) -> nn.Module:
    """A torchvision architecture with random weights and living batch-norm statistics."""
    torch.manual_seed(0)
    network: nn.Module = import_torchvision().models.get_model(name, weights=None)
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = None
        norm.reset_running_stats()
    if norms:
        with torch.no_grad():
            network.train()(batch(4))
    return network.eval()


class Recurrent(nn.Module):
    """Frames through one shared trunk, then an LSTM: the shape of the paper's video network."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.trunk = lite()
        self.lstm = nn.LSTM(1280, 128, batch_first=True)
        self.embedding = nn.Linear(128, 64)

    def forward(self, clip: Tensor) -> Tensor:
        frames = [self.trunk.global_pool(self.trunk.forward_features(frame)) for frame in clip.unbind(1)]
        found: Tensor = self.embedding(self.lstm(4 * torch.stack(frames, dim=1))[0][:, -1])
        return found
