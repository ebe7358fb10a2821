"""Odd networks, first part: inputs that are no batch of pictures, several inputs, outputs that are no vector."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .entry import Network, Path, Reading, clip, first, frames, picture, seeded, tokens

CLASSES = 7


def convolutions(*channels: int, axes: int = 2, stride: int = 2) -> nn.Sequential:
    """Convolutions of kernel 3 with a rectifier behind each."""
    kind = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[axes]
    layers: list[nn.Module] = []
    for before, after in pairwise(channels):
        layers += [kind(before, after, 3, stride, 1), nn.ReLU()]
    return nn.Sequential(*layers)


def odd(
    name: str,
    network: Callable[[], nn.Module],
    inputs: Callable[[], Any],
    *right: Reading,
    why: str = "",
    select: Any = None,
    also: str = r"(?!)",
    may_refuse: bool = False,
    held_out: bool = True,
) -> Network:
    def build() -> tuple[nn.Module, Any]:
        return seeded(network), inputs()

    return Network(name, "odd", build, right, select, held_out, why, also, may_refuse)


class Pooled(nn.Module):
    """A body, a mean over whatever axes there are, a linear head."""

    def __init__(self, body: nn.Module, channels: int) -> None:
        super().__init__()
        self.body = body
        self.head = nn.Linear(channels, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).flatten(2).mean(dim=2))


# One axis


class Crepe(nn.Module):
    """A waveform (B, T) through convolutions of two axes, the second of length 1: maps of (B, C, T, 1)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, (32, 1), (4, 1), (14, 0))
        self.conv2 = nn.Conv2d(16, 16, (9, 1), (2, 1), (4, 0))
        self.pool = nn.MaxPool2d((2, 1))
        self.classifier = nn.Linear(16 * 32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(torch.relu(self.conv1(x[:, None, :, None])))
        x = self.pool(torch.relu(self.conv2(x)))
        return torch.sigmoid(self.classifier(x.permute(0, 2, 1, 3).reshape(x.shape[0], -1)))


class Transformer1d(nn.Module):
    """(B, C, T): an embedding of patches, tokens (B, T', E) with attention, a mean."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv1d(4, 32, 8, 8)
        self.place = nn.Parameter(torch.randn(1, 24, 32) * 0.1)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True, norm_first=True) for _ in range(2)
        )
        self.norm = nn.LayerNorm(32)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x).transpose(1, 2) + self.place
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x).mean(dim=1))


class SpectrogramInside(nn.Module):
    """A waveform becomes frequencies and times inside: the input has no axis of frequencies."""

    def __init__(self) -> None:
        super().__init__()
        self.body = convolutions(1, 8, 16)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        spectrum = torch.stft(x, 62, 32, window=torch.hann_window(62), return_complex=True).abs()
        return self.head(self.body(spectrum[:, None]).mean(dim=(2, 3)))


class TimeFirst(nn.Module):
    """An LSTM with time before the batch: (T, B, C), and as many times as samples."""

    def __init__(self) -> None:
        super().__init__()
        self.body = convolutions(3, 8, 16, axes=1, stride=4)
        self.project = nn.Linear(16, 16)
        self.lstm = nn.LSTM(16, 16)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        sequence = torch.relu(self.project(self.body(x).permute(2, 0, 1)))
        return self.head(self.lstm(sequence)[0][-1])


class PointNet(nn.Module):
    """A cloud of points (B, 3, N), each on its own, and their maximum."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(3, 16, 1), nn.ReLU(), nn.Conv1d(16, 32, 1), nn.ReLU())
        self.head = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).amax(dim=2))


class TextCnn(nn.Module):
    """Words as integers (B, L)."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.body = convolutions(16, 16, axes=1, stride=1)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(self.embed(x).transpose(1, 2)).mean(dim=2))


class FeatureTokens(nn.Module):
    """A row of a table (B, 16): a token for each number, with a class token before them."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 32))
        self.cls = nn.Parameter(torch.randn(1, 1, 32))
        self.layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.norm = nn.LayerNorm(32)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([self.cls.expand(len(x), -1, -1), x[:, :, None] * self.weight], dim=1)
        return self.head(self.norm(self.layer(x)).mean(dim=1))


# Pictures, otherwise


class IntegerPictures(nn.Module):
    """Pictures as bytes, made floating and scaled inside."""

    def __init__(self) -> None:
        super().__init__()
        self.body = convolutions(3, 8, 16, 16)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x.float() / 128 - 1).mean(dim=(2, 3)))


class ChannelsLast(nn.Module):
    """(B, H, W, C) in, as ports from other frameworks have it."""

    def __init__(self) -> None:
        super().__init__()
        self.body = convolutions(3, 8, 16, 16)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x.permute(0, 3, 1, 2)).mean(dim=(2, 3)))


class FramesAndGru(nn.Module):
    """(B, T, C, H, W): each frame on its own, then a recurrent network over the frames: (B, T, C)."""

    def __init__(self) -> None:
        super().__init__()
        self.body = convolutions(3, 8, 16, 16)
        self.gru = nn.GRU(16, 16, batch_first=True)
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        each = self.body(x.flatten(0, 1)).mean(dim=(2, 3)).unflatten(0, x.shape[:2])
        return self.head(self.norm(self.gru(each)[0]).mean(dim=1))


class VolumeOfFrames(nn.Module):
    """(B, T, C, H, W) turned to (B, C, T, H, W) inside: three colours are no depth."""

    def __init__(self) -> None:
        super().__init__()
        self.body = convolutions(3, 8, 16, axes=3)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x.transpose(1, 2)).mean(dim=(2, 3, 4)))


class SmallI3d(nn.Module):
    """I3D's end: a window of (2, 7, 7) slides over the last map, so that only time is left: (B, classes, 5, 1, 1)."""

    def __init__(self) -> None:
        super().__init__()
        self.body = convolutions(3, 4, 8, 16, axes=3)
        self.space = nn.MaxPool3d((1, 2, 2))
        self.pool = nn.AvgPool3d((2, 7, 7), stride=1)
        self.logits = nn.Conv3d(16, CLASSES, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.logits(self.pool(self.space(self.body(x)))).squeeze(4).squeeze(3).mean(dim=2)


# Several inputs


class Siamese(nn.Module):
    """Two pictures through one trunk."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = convolutions(3, 8, 16, 16)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        return self.head((self.trunk(one).mean(dim=(2, 3)) - self.trunk(other).mean(dim=(2, 3))).abs())


class Tracker(nn.Module):
    """A template is looked for in a larger picture: the answer is a map of the larger one."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = convolutions(3, 8, 16, 16)

    def forward(self, template: Tensor, search: Tensor) -> Tensor:
        kernels, found = self.trunk(template), self.trunk(search)
        each = found.reshape(1, -1, *found.shape[2:])
        return F.conv2d(each, kernels, groups=len(found)).squeeze(0).flatten(1)


class Question(nn.Module):
    """A question in words steers what is seen in a picture."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.read = nn.Linear(16, 32)
        self.trunk = convolutions(3, 8, 16, 16)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, words: Tensor, image: Tensor) -> Tensor:
        scale, shift = self.read(self.words(words)).mean(dim=1).chunk(2, dim=1)
        return self.head(torch.relu(self.trunk(image).mean(dim=(2, 3)) * scale + shift))


class ColourAndDepth(nn.Module):
    """Colours and distances of the same scene, added."""

    def __init__(self) -> None:
        super().__init__()
        self.colour = convolutions(3, 8, 16)
        self.depth = convolutions(1, 8, 16)
        self.body = convolutions(16, 16)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, *, colour: Tensor, depth: Tensor) -> Tensor:
        return self.head(self.body(self.colour(colour) + self.depth(depth)).mean(dim=(2, 3)))


class OneBatch(nn.Module):
    """A batch as Lightning passes it: one dict."""

    def __init__(self) -> None:
        super().__init__()
        self.body = convolutions(3, 8, 16, 16)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        return self.head(self.body(batch["image"]).mean(dim=(2, 3)))


# Not the usual kind of module


def _exported() -> tuple[nn.Module, Any]:
    x = picture(2, 3, 64, 80)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.export(seeded(lambda: Pooled(convolutions(3, 8, 16, 16), 16)), (x,)).module(), x


def _traced() -> tuple[nn.Module, Any]:
    x = picture(2, 3, 64, 80)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(seeded(lambda: Pooled(convolutions(3, 8, 16, 16), 16)), x), x


LAST = r"body(\.5)?"
IMAGE: Path = ("0", "image")


def _picture() -> Tensor:
    return picture(2, 3, 64, 80)


def _words(length: int = 12) -> Tensor:
    return torch.randint(0, 50, (2, length), generator=torch.Generator().manual_seed(5))


NETWORKS = (
    odd("waveform_crepe", Crepe, lambda: picture(2, 1, 1024)[:, 0],
        Reading(r"pool", (32,), first, axes=(1,), call=1), Reading(r"pool", (32, 1), first, axes=(1,), call=1),
        also=r"conv2", held_out=False,
        why="(B, T) in, (B, C, T, 1) inside"),
    odd("waveform_conv1d", lambda: Pooled(convolutions(1, 8, 16, 16, axes=1, stride=4), 16),
        lambda: picture(2, 1, 1024), Reading(LAST, (16,)), why="(B, 1, T)"),
    odd("sensors_of_one_column", lambda: Pooled(nn.Sequential(nn.Conv2d(4, 16, (7, 1), (4, 1), (3, 0)), nn.ReLU()), 16),
        lambda: picture(2, 4, 128, 1), Reading(r"body(\.1)?", (32, 1), axes=(2, 3)),
        Reading(r"body(\.1)?", (32,), axes=(2,)), why="(B, C, T, 1) in and inside"),
    odd("transformer_1d", Transformer1d, lambda: picture(2, 4, 192),
        Reading(r"norm|layers\.1", (24,), tokens(), axes=(2,)), held_out=False, why="(B, C, T) in, (B, T', C) inside"),
    odd("spectrogram_inside", SpectrogramInside, lambda: picture(2, 1, 1024)[:, 0],
        why="frequencies that the input does not have"),
    odd("time_before_batch", TimeFirst, lambda: picture(8, 3, 128), Reading(r"body(\.3)?", (8,), axes=(2,)),
        why="(T, B, C) with T = B"),
    odd("points", PointNet, lambda: picture(2, 3, 40), Reading(r"body(\.3)?", (40,), axes=(2,)),
        why="points in no order"),
    odd("text_cnn", TextCnn, _words, Reading(r"body(\.1)?", (12,), axes=(1,)), may_refuse=True,
        why="words as integers"),
    odd("table_row", lambda: nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, CLASSES)),
        lambda: picture(2, 1, 16)[:, 0], why="a row of a table"),
    odd("table_row_as_tokens", FeatureTokens, lambda: picture(2, 1, 16)[:, 0],
        Reading(r"norm|layer", (16,), tokens(1), axes=(1,)), may_refuse=True, why="a token for each number of a table"),
    odd("integer_pictures", IntegerPictures,
        lambda: (picture(2, 3, 64, 80) * 60 + 128).clamp(0, 255).to(torch.uint8), Reading(LAST, (8, 10)),
        may_refuse=True, why="bytes"),
    odd("channels_last_input", ChannelsLast, lambda: picture(2, 3, 64, 80).permute(0, 2, 3, 1).contiguous(),
        Reading(LAST, (8, 10), axes=(1, 2)), why="(B, H, W, C)"),
    odd("frames_and_gru", FramesAndGru, lambda: clip(2, 4, 3, 64, 80),
        Reading(LAST, (4, 8, 10), frames(4), axes=(1, 3, 4)), why="four times that are no 2×2"),
    odd("frames_and_gru_of_16", FramesAndGru, lambda: clip(1, 16, 3, 32, 48),
        Reading(LAST, (16, 4, 6), frames(16), axes=(1, 3, 4)), why="sixteen times that are no 4×4"),
    odd("volume_of_frames", VolumeOfFrames, lambda: clip(2, 16, 3, 48, 64),
        Reading(r"body(\.3)?", (4, 12, 16), axes=(1, 3, 4)), why="(B, T, C, H, W): colour is no depth"),
    odd("volume", lambda: Pooled(convolutions(1, 8, 16, 16, axes=3), 16), lambda: picture(2, 1, 32, 40, 48),
        Reading(LAST, (4, 5, 6)), why="(B, 1, D, H, W)"),
    odd("small_i3d", SmallI3d, lambda: picture(1, 3, 48, 112, 112), Reading(r"space", (6, 7, 7)), held_out=False,
        why="behind it only time is left: 5×1×1"),
    odd("siamese", Siamese, lambda: (picture(2, 3, 64, 80), picture(2, 3, 64, 80, seed=1)),
        Reading(r"trunk(\.5)?", (8, 10), call=0), Reading(r"trunk(\.5)?", (8, 10), input=("1",), call=1),
        why="the second call is of the second picture"),
    odd("template_and_search", Tracker, lambda: (picture(2, 3, 48, 48), picture(2, 3, 96, 128, seed=1)),
        Reading(r"trunk(\.5)?", (6, 6), call=0), Reading(r"trunk(\.5)?", (12, 16), input=("1",), call=1),
        why="two sizes"),
    odd("question_and_picture", Question, lambda: (_words(16), picture(2, 3, 64, 80)),
        Reading(r"trunk(\.5)?", (8, 10), input=("1",)), why="16 words that are no 4×4"),
    odd("colour_and_depth", ColourAndDepth,
        lambda: {"colour": picture(2, 3, 64, 80), "depth": picture(2, 1, 64, 80, seed=1)},
        *(Reading(r"body(\.1)?", (8, 10), input=(name,)) for name in ("colour", "depth")),
        why="a map of both inputs"),
    odd("lightning_batch", OneBatch, lambda: ({"image": _picture()},), Reading(LAST, (8, 10), input=IMAGE),
        why="({'image': x},)"),
    Network("exported", "odd", _exported, why="torch.export: no module is called"),
    Network("traced", "odd", _traced, (Reading(LAST, (8, 10)),), may_refuse=True, why="torch.jit.trace"),
)  # fmt: skip
