"""Retrieval networks: backbone → mean over the map → one linear layer → embedding, and what their checkpoints hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import CatalogueError, InputError, L2cafError, WeightsError
from ..preprocessing import Preprocessing
from . import embedded
from .catalogue import ALIASES
from .config import Config
from .from_timm import Timm
from .model import Model
from .weights import Header, load_weights, read_header, save_checkpoint

LOADER = "embedding"  # the key of `load_embedding` among the loaders of checkpoints


@dataclass(frozen=True)
class EmbeddingConfig(Config):
    """All that is needed to build a retrieval network again, to feed it, and to compare what it returns.

    backbone      a name of the catalogue: tf_efficientnet_lite0 or timm:NAME
    normalized    whether embeddings are compared on the unit sphere (triplet) or as they are (N-pair)
    classes       names of the classes that it was trained on; empty before training
    training      what was done: recipe, iterations, scores
    """

    backbone: str
    dimension: int = 128
    normalized: bool = True
    loss: str = "triplet"
    preprocessing: Preprocessing = field(default_factory=Preprocessing)
    dataset: str = ""
    classes: tuple[str, ...] = ()
    training: Mapping[str, Any] = field(default_factory=dict)


class MeanOverMap(nn.Module):
    """Global average pooling: (B, C, H, W), or (B, H, W, C) where channels come last, to (B, C)."""

    def __init__(self, *, channels_last: bool = False) -> None:
        super().__init__()
        self.channels_last = channels_last

    def forward(self, features: Tensor) -> Tensor:
        if self.channels_last:
            return features.mean(dim=(1, 2))
        if features.is_contiguous(memory_format=torch.channels_last):
            # The same numbers; but the gradient of this mean lies in memory as the features do, and all that comes
            # before works on it without turning it round: a seventh of a training step on a processor.
            return features.permute(0, 2, 3, 1).mean(dim=(1, 2))
        return features.mean(dim=(2, 3))


class EmbeddingNetwork(nn.Module):
    """`trunk` (image → map), `pool` (map → C numbers), `embed` (C → dimension).

    It returns the raw embedding (B, dimension), which is what attention has to explain: on the unit sphere its
    length, and with it half of what the filter can be held to, would be gone.

    >>> EmbeddingNetwork(nn.Conv2d(3, 8, 3), channels=8, dimension=4)(torch.zeros(2, 3, 9, 9)).shape
    torch.Size([2, 4])
    """

    def __init__(self, trunk: nn.Module, *, channels: int, dimension: int = 128, channels_last: bool = False) -> None:
        super().__init__()
        if dimension < 1:
            raise InputError(f"An embedding of {dimension} numbers was asked for: give 1 or more, such as 128.")
        self.trunk = trunk
        self.pool = MeanOverMap(channels_last=channels_last)
        self.embed = nn.Linear(channels, dimension)

    @property
    def dimension(self) -> int:
        return self.embed.out_features

    def pooled(self, images: Tensor) -> Tensor:
        """What the backbone knows of images (B, 3, H, W), before the linear layer: (B, C)."""
        return self.pool(self.trunk(images))

    def forward(self, images: Tensor) -> Tensor:
        return self.embed(self.pooled(images))


@dataclass(frozen=True)
class Backbone:
    """A network without its classifier: image → map; `layer` is where it ends, if that is not its last one."""

    name: str
    trunk: nn.Module
    channels: int
    channels_last: bool
    preprocessing: Preprocessing
    layer: str = ""


def load_backbone(name: str, *, pretrained: bool = True) -> Backbone:
    """The trunk of tf_efficientnet_lite0, with its installed weights, or of any convolutional network of timm."""
    name = ALIASES.get(name, name)  # checkpoints keep the name that they were trained under
    source = embedded.Embedded() if name == embedded.NAME else Timm()
    model = source.load(name, pretrained=pretrained)
    trunk: Any = model.network
    try:
        trunk.reset_classifier(0, "")
    except (AttributeError, AssertionError, TypeError, ValueError) as error:
        raise _no_map(name) from error
    assert isinstance(model.preprocess, Preprocessing)
    shape = _shape_of_map(trunk, model.preprocess.input_size)
    # What timm calls features may have gone through another layer before it leaves the trunk.
    widths = {int(trunk.num_features), int(getattr(trunk, "head_hidden_size", 0) or 0)}
    if len(shape) != 4 or not widths & {shape[1], shape[3]}:
        raise _no_map(name)
    channels_last = shape[1] not in widths
    return Backbone(model.name, trunk, shape[3 if channels_last else 1], channels_last, model.preprocess)


def save_embedding(path: str | Path, network: EmbeddingNetwork, config: EmbeddingConfig) -> Path:
    """Write weights and config, each file whole or not at all."""
    return save_checkpoint(path, network, Header(LOADER, config.as_json()))


def read_config(path: str | Path) -> EmbeddingConfig:
    """The config of a checkpoint."""
    try:
        return EmbeddingConfig.from_json(read_header(path).config)
    except L2cafError:
        raise
    except Exception as error:
        raise WeightsError(
            f"The config of {Path(path).name} cannot be read ({type(error).__name__}): take the file as it was written."
        ) from error


def load_embedding(path: str | Path) -> Model:
    """A checkpoint as a model; it has no class names, since it returns no scores."""
    network, config = read_embedding(path)
    source = f"checkpoint {path}: {config.backbone}, {config.loss} loss"
    return Model(
        str(path),
        network,
        config.preprocessing,
        source=source,
        embedding=True,
        normalized=config.normalized,
        weights="trained",
    )


def read_embedding(path: str | Path) -> tuple[EmbeddingNetwork, EmbeddingConfig]:
    """The network of a checkpoint, in eval mode, and its config."""
    config = read_config(path)
    source = load_backbone(config.backbone, pretrained=False)
    network = EmbeddingNetwork(
        source.trunk, channels=source.channels, dimension=config.dimension, channels_last=source.channels_last
    )
    load_weights(network, path)
    return network.eval(), config


def _shape_of_map(trunk: nn.Module, size: tuple[int, int]) -> tuple[int, ...]:
    was_training = trunk.training
    with torch.inference_mode():
        output = trunk.eval()(torch.zeros(1, 3, *size))
    trunk.train(was_training)
    return tuple(output.shape) if isinstance(output, Tensor) else ()


def _no_map(name: str) -> CatalogueError:
    return CatalogueError(
        f"{name} ends in no map that can be averaged: take a convolutional backbone, such as tf_efficientnet_lite0"
        " or timm:resnet50."
    )
