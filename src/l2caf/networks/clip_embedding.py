"""Recurrent networks for clips, as in the paper: frozen features of each frame → a shallow CNN → LSTM → embedding.

The frames of a clip are folded into the batch up to the LSTM. Filters sit at the end of the shallow CNN.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from ..clips import ClipInput
from ..errors import InputError, L2cafError, WeightsError
from ..preprocessing import Preprocessing
from .embedding import Backbone, EmbeddingConfig, load_backbone
from .model import Model
from .shortened import AUTO, layer_for_places, shortened
from .weights import Header, load_weights, read_header, save_checkpoint

LOADER = "clips"  # the key of `load_clip_embedding` among the loaders of checkpoints


@dataclass(frozen=True)
class ClipConfig(EmbeddingConfig):
    """All that is needed to build a network for clips again, to feed it, and to compare what it returns.

    frames    of a clip that it was trained on; it takes any number
    layer     where the backbone ends
    width     channels at the end of the shallow CNN, where the filters sit
    hidden    numbers that the LSTM remembers
    motion    whether what all frames of a clip share is taken off before the LSTM
    """

    frames: int = 3
    layer: str = AUTO
    width: int = 8
    hidden: int = 128
    motion: bool = False


class ShallowCNN(nn.Sequential):
    """The features of a frame, (B·T, C, H, W), as a few channels (B·T, width, H, W) that are never negative."""

    def __init__(self, channels: int, width: int, *, between: int = 32) -> None:
        super().__init__(nn.Conv2d(channels, between, 1), nn.ReLU(), nn.Conv2d(between, width, 3, padding=1), nn.ReLU())


class ClipNetwork(nn.Module):
    """`trunk` (frame → features), `shallow` (→ few channels), `recurrent` (over the frames), `embed` (→ dimension).

    clips are (B, T, 3, H, W); it returns the raw embedding (B, dimension), as `EmbeddingNetwork` does. The places of
    the map go to the LSTM as they are, not averaged: where a thing is in each frame is what tells how it moves.

    >>> trunk = nn.Conv2d(3, 16, 8, stride=8)
    >>> ClipNetwork(trunk, channels=16, grid=(4, 4), dimension=5)(torch.zeros(2, 3, 3, 32, 32)).shape
    torch.Size([2, 5])
    """

    def __init__(
        self,
        trunk: nn.Module,
        *,
        channels: int,
        grid: tuple[int, int],
        dimension: int = 128,
        width: int = 8,
        hidden: int = 128,
        motion: bool = False,
    ) -> None:
        super().__init__()
        for name, number in (("dimension", dimension), ("width", width), ("hidden", hidden)):
            if number < 1:
                raise InputError(f"{name} is {number}: give 1 or more.", field=name)
        self.trunk = trunk
        self.shallow = ShallowCNN(channels, width)
        self.recurrent = nn.LSTM(width * grid[0] * grid[1], hidden, batch_first=True)
        self.embed = nn.Linear(hidden, dimension)
        self.grid = grid
        self.motion = motion

    @property
    def dimension(self) -> int:
        return self.embed.out_features

    def features(self, clips: Tensor) -> Tensor:
        """What the trunk makes of each frame, (B, T, C, H, W)."""
        if clips.ndim != 5:
            raise InputError(
                f"The input has the shape {tuple(clips.shape)}, but this network takes clips: give frames after the"
                " batch, (B, T, 3, H, W)."
            )
        return self.trunk(clips.flatten(0, 1)).unflatten(0, clips.shape[:2])

    def from_features(self, features: Tensor) -> Tensor:
        """The embeddings of clips whose features are known."""
        maps = self.shallow(features.flatten(0, 1))
        if maps.shape[2:] != self.grid:  # frames of another size than those that it was trained on
            maps = nn.functional.adaptive_avg_pool2d(maps, self.grid)
        frames = maps.flatten(1).unflatten(0, features.shape[:2])
        if self.motion:
            frames = frames - frames.mean(dim=1, keepdim=True)
        remembered, _ = self.recurrent(frames)
        return self.embed(remembered[:, -1])

    def forward(self, clips: Tensor) -> Tensor:
        return self.from_features(self.features(clips))


def clip_backbone(name: str, layer: str = AUTO, *, size: int | None = None, pretrained: bool = True) -> Backbone:
    """A backbone that ends where its map still tells places well; `size` is that of the frames it is shown."""
    source = load_backbone(name, pretrained=pretrained)
    preprocessing = source.preprocessing if size is None else resized(source.preprocessing, size)
    probe = probe_of(preprocessing)
    trunk = source.trunk.eval()
    chosen = layer_for_places(trunk, probe) if layer == AUTO else layer
    trunk = shortened(trunk, chosen, probe)
    with torch.no_grad():
        channels = trunk(probe).shape[1]
    return Backbone(source.name, trunk, channels, False, preprocessing, layer=chosen)


def resized(preprocessing: Preprocessing, size: int) -> Preprocessing:
    """The same for inputs of another height and width: as much of each picture is seen as before."""
    if size < 2 * 16:
        raise InputError(f"Frames of {size} pixels are too small for a map: give 32 or more.", field="size")
    scale = size / min(preprocessing.input_size)
    height, width = (max(size, round(scale * length)) for length in preprocessing.resize_size)
    return replace(preprocessing, input_size=(size, size), resize_size=(height, width))


def probe_of(preprocessing: Preprocessing) -> Tensor:
    """An input of the right size, on which to try things."""
    return torch.randn(1, 3, *preprocessing.input_size, generator=torch.Generator().manual_seed(0))


def build(backbone: Backbone, config: ClipConfig) -> ClipNetwork:
    """The network of a config, with random weights behind the trunk."""
    with torch.no_grad():
        rows, columns = backbone.trunk(probe_of(config.preprocessing)).shape[2:]
    return ClipNetwork(
        backbone.trunk,
        channels=backbone.channels,
        grid=(rows, columns),
        dimension=config.dimension,
        width=config.width,
        hidden=config.hidden,
        motion=config.motion,
    ).eval()


def save_clip_embedding(path: str | Path, network: ClipNetwork, config: ClipConfig) -> Path:
    """Write weights and config, each file whole or not at all."""
    return save_checkpoint(path, network, Header(LOADER, config.as_json()))


def read_clip_embedding(path: str | Path) -> tuple[ClipNetwork, ClipConfig]:
    """The network of a checkpoint, in eval mode, and its config."""
    try:
        config = ClipConfig.from_json(read_header(path).config)
        assert isinstance(config, ClipConfig)
    except L2cafError:
        raise
    except Exception as error:
        raise WeightsError(
            f"The config of {Path(path).name} cannot be read ({type(error).__name__}): take the file as it was written."
        ) from error
    backbone = clip_backbone(config.backbone, config.layer, size=config.preprocessing.input_size[0], pretrained=False)
    network = build(backbone, config)
    load_weights(network, path)
    return network, config


def load_clip_embedding(path: str | Path) -> Model:
    """A checkpoint as a model for clips; it has no class names, since it returns no scores."""
    network, config = read_clip_embedding(path)
    return Model(
        str(path),
        network,
        config.preprocessing,
        source=f"checkpoint {path}: {config.backbone} up to {config.layer}, LSTM over {config.frames} frames",
        embedding=True,
        normalized=config.normalized,
        weights="trained",
        clip=ClipInput(frames=config.frames, spread=True),
    )
