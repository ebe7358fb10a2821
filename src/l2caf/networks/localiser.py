"""Networks that are fine-tuned to localise: a backbone with fine maps, a mean, a linear layer; or two classifiers.

`vgg16-gap` and `resnet50-se` are those of the literature; any convolutional backbone of timm will do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError, L2cafError, WeightsError
from ..preprocessing import Preprocessing
from .config import Config
from .embedding import Backbone, MeanOverMap, load_backbone
from .erasing import THRESHOLD, ErasingHead, convolutions
from .fineness import make_finer
from .from_timm import Timm
from .model import Model
from .weights import Header, load_weights, read_header, save_checkpoint

LOADER = "localiser"  # the key of `load_localiser` among the loaders of checkpoints
VGG, RESNET = "vgg16-gap", "resnet50-se"
STRIDE = 16  # pixels per cell of the map: 14 × 14 cells of 224 × 224 pixels, as in the literature
WIDTH, LAYERS = 1024, 2  # 3×3 convolutions behind VGG's trunk, and in each classifier of ACoL


@dataclass(frozen=True)
class LocaliserConfig(Config):
    """All that is needed to build a localiser again, to feed it, and to read its answer.

    backbone   vgg16-gap, resnet50-se, tf_efficientnet_lite0 or timm:NAME
    recipe     gap, adl or acol: what it was trained by; ADL leaves nothing in the network
    stride     pixels per cell of the map
    width      channels of the 3×3 convolutions behind the trunk; 0: there are none
    layers     how many of them
    threshold  of ACoL: from which share of the range on cells are erased
    classes    names of the classes in the order of the outputs
    training   what was done: settings, iterations, scores, and what was cut for a budget
    """

    backbone: str
    recipe: str = "gap"
    stride: int = STRIDE
    width: int = 0
    layers: int = LAYERS
    threshold: float = THRESHOLD
    loss: str = "cross-entropy"
    preprocessing: Preprocessing = field(default_factory=Preprocessing)
    dataset: str = ""
    classes: tuple[str, ...] = ()
    training: Mapping[str, Any] = field(default_factory=dict)


class MeanHead(nn.Module):
    """Convolutions, if any, a mean over the map, and a linear layer.

    >>> MeanHead(8, 3, width=4)(torch.rand(2, 8, 7, 7)).shape
    torch.Size([2, 3])
    """

    def __init__(
        self, channels: int, classes: int, *, width: int = 0, layers: int = LAYERS, channels_last: bool = False
    ) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(*convolutions(channels, width, layers))
        self.pool: nn.Module = MeanOverMap(channels_last=channels_last)
        self.linear = nn.Linear(width or channels, classes)

    @property
    def is_linear(self) -> bool:
        """Whether nothing that is trained from random numbers comes before its last layer."""
        return not len(self.convolutions)

    def scores(self, features: Tensor, labels: Tensor) -> Tensor:
        """What is trained: the scores, (1, B, classes)."""
        return self(features).unsqueeze(0)

    def forward(self, features: Tensor) -> Tensor:
        maps = features if self.is_linear else self.convolutions(features)
        return self.linear(self.pool(maps))


class Localiser(nn.Module):
    """`trunk` (image → map) and `head` (map → scores of classes).

    >>> Localiser(nn.Conv2d(3, 8, 3), MeanHead(8, 5))(torch.zeros(2, 3, 9, 9)).shape
    torch.Size([2, 5])
    """

    def __init__(self, trunk: nn.Module, head: MeanHead | ErasingHead) -> None:
        super().__init__()
        self.trunk = trunk
        self.head = head

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.trunk(images))


def localiser_backbone(name: str, *, stride: int = STRIDE, pretrained: bool = True) -> Backbone:
    """A backbone whose map has a cell for every `stride` pixels."""
    if stride not in (8, 16, 32):
        raise InputError(f"A cell for every {stride} pixels cannot be had: take 8, 16 or 32.", field="stride")
    if name == VGG:
        backbone = _vgg(pretrained=pretrained)
    elif name == RESNET:
        backbone = replace(load_backbone("timm:seresnet50", pretrained=pretrained), name=RESNET)
    else:
        backbone = load_backbone(name, pretrained=pretrained)
    backbone.trunk.eval()
    if not backbone.channels_last:
        make_finer(backbone.trunk, stride, probe_of(backbone))
    elif stride < 32:
        raise InputError(f"The map of {name} cannot be made finer: take a stride of 32.", field="stride")
    return backbone


def probe_of(backbone: Backbone) -> Tensor:
    """An input of the right size, on which to try things."""
    return torch.randn(1, 3, *backbone.preprocessing.input_size, generator=torch.Generator().manual_seed(0))


def build(backbone: Backbone, config: LocaliserConfig) -> Localiser:
    """The network of a config, with random weights behind the trunk."""
    channels, classes = backbone.channels, len(config.classes)
    if config.recipe == "acol":
        if backbone.channels_last:
            raise InputError(f"ACoL needs channels before positions, which {backbone.name} has not.", field="backbone")
        head: MeanHead | ErasingHead = ErasingHead(
            channels, classes, width=config.width, layers=config.layers, threshold=config.threshold
        )
    else:
        last = backbone.channels_last
        head = MeanHead(channels, classes, width=config.width, layers=config.layers, channels_last=last)
    return Localiser(backbone.trunk, head).eval()


def save_localiser(path: str | Path, network: Localiser, config: LocaliserConfig) -> Path:
    """Write weights and config, each file whole or not at all."""
    return save_checkpoint(path, network, Header(LOADER, config.as_json()))


def read_localiser(path: str | Path) -> tuple[Localiser, LocaliserConfig]:
    """The network of a checkpoint, in eval mode, and its config."""
    try:
        config = LocaliserConfig.from_json(read_header(path).config)
    except L2cafError:
        raise
    except Exception as error:
        raise WeightsError(
            f"The config of {Path(path).name} cannot be read ({type(error).__name__}): take the file as it was written."
        ) from error
    network = build(localiser_backbone(config.backbone, stride=config.stride, pretrained=False), config)
    load_weights(network, path)
    return network, config


def load_localiser(path: str | Path) -> Model:
    """A checkpoint as a model, whose classes are those that it was trained on."""
    network, config = read_localiser(path)
    source = f"checkpoint {path}: {config.backbone}, {config.recipe}"
    return Model(str(path), network, config.preprocessing, config.classes, source, weights="trained")


def _vgg(*, pretrained: bool) -> Backbone:
    """VGG16 up to its last convolution, without the pooling behind it."""
    model = Timm().load("timm:vgg16", pretrained=pretrained)
    features: Any = model.network.features
    assert isinstance(model.preprocess, Preprocessing)
    return Backbone(VGG, nn.Sequential(*list(features)[:-1]), 512, False, model.preprocess)
