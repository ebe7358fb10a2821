"""Networks over the frames of a clip, each written in two ways, and clips whose answer is known."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from networks_for_tests import seeded

FEATURES, CLASSES, SIDE, PATCH = 12, 3, 32, 8


class Reader(nn.Module):
    """What reads the frames one after the other, (B, T, F), by name."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        options = {"batch_first": True, "bidirectional": kind == "both ways", "num_layers": 1 + (kind == "two layers")}
        if kind in ("lstm", "both ways", "two layers", "packed"):
            self.memory: nn.Module = nn.LSTM(FEATURES, FEATURES, **options)
        elif kind == "gru":
            self.memory = nn.GRU(FEATURES, FEATURES, **options)
        elif kind == "attention":
            self.memory = nn.Linear(FEATURES, 1)
        self.scores = nn.Linear(FEATURES * (1 + (kind == "both ways")), CLASSES)

    def forward(self, frames: Tensor) -> Tensor:
        if self.kind == "attention":
            return self.scores((self.memory(frames).softmax(dim=1) * frames).sum(dim=1))
        if self.kind == "mean":
            return self.scores(frames.mean(dim=1))
        if self.kind == "packed":
            lengths = torch.full((len(frames),), frames.shape[1])
            packed = nn.utils.rnn.pack_padded_sequence(frames, lengths, batch_first=True)
            _, (last, _) = self.memory(packed)
            return self.scores(last[-1])
        return self.scores(self.memory(frames)[0].mean(dim=1))


class Clip(nn.Module):
    """(B, T, 3, H, W): a shared network for every frame, in a loop or with the frames in the batch, and a reader."""

    def __init__(self, kind: str, *, loop: bool) -> None:
        super().__init__()
        self.loop = loop
        self.stem = nn.Sequential(nn.Conv2d(3, FEATURES, 4, stride=4), nn.ReLU())
        self.layer = nn.Sequential(nn.Conv2d(FEATURES, FEATURES, 1), nn.ReLU())
        self.reader = Reader(kind)

    def forward(self, clip: Tensor) -> Tensor:
        if self.loop:
            maps = [self.layer(self.stem(clip[:, number])) for number in range(clip.shape[1])]
            frames = torch.stack([one.mean(dim=(2, 3)) for one in maps], dim=1)
        else:
            maps = self.layer(self.stem(clip.flatten(0, 1)))
            frames = maps.mean(dim=(2, 3)).unflatten(0, clip.shape[:2])
        return self.reader(frames)


class ConvLSTM(nn.Module):
    """A state that is a map itself: each step convolves the frame's map and the state."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, FEATURES, 4, stride=4), nn.ReLU())
        self.gates = nn.Conv2d(2 * FEATURES, 4 * FEATURES, 3, padding=1)
        self.scores = nn.Linear(FEATURES, CLASSES)

    def forward(self, clip: Tensor) -> Tensor:
        state = cell = None
        for number in range(clip.shape[1]):
            frame = self.stem(clip[:, number])
            state = torch.zeros_like(frame) if state is None else state
            cell = torch.zeros_like(frame) if cell is None else cell
            enter, forget, show, new = self.gates(torch.cat([frame, state], dim=1)).chunk(4, dim=1)
            cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
            state = show.sigmoid() * cell.tanh()
        return self.scores(state.mean(dim=(2, 3)))


class Volume(nn.Module):
    """(B, 3, T, H, W) with a map over time: affine after its last convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Sequential(
            nn.Conv3d(3, FEATURES, (1, 4, 4), stride=(1, 4, 4)), nn.ReLU(), nn.Conv3d(FEATURES, FEATURES, 1), nn.ReLU()
        )
        self.scores = nn.Linear(FEATURES, CLASSES)

    def forward(self, clip: Tensor) -> Tensor:
        return self.scores(self.layer(clip).mean(dim=(2, 3, 4)))


def planted(number: int, frames: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Noise with one patch, whose colour is the class, in one frame: clips, classes, frames, corners (y, x)."""
    generator = torch.Generator().manual_seed(seed)
    level = 0.4 * torch.rand(
        number, frames, 1, 1, 1, generator=generator
    )  # so that how bright a frame is tells nothing
    clips = level * torch.rand(number, frames, 3, SIDE, SIDE, generator=generator)
    classes = torch.randint(CLASSES, (number,), generator=generator)
    when = torch.randint(frames, (number,), generator=generator)
    corners = torch.randint((SIDE - PATCH) // 4 + 1, (number, 2), generator=generator) * 4
    for clip, kind, frame, (y, x) in zip(clips, classes, when, corners.tolist(), strict=True):
        clip[frame, kind, y : y + PATCH, x : x + PATCH] += 1.0
    return clips, classes, when, corners


def trained(
    make: Callable[[], nn.Module], *, frames: int = 3, steps: int = 150, channels_first: bool = False
) -> nn.Module:
    """A network that tells the classes of planted clips, made in a second or two."""
    network = seeded(make)
    optimiser = torch.optim.Adam(network.parameters(), 1e-2)
    for step in range(steps):
        clips, classes, _, _ = planted(32, frames, seed=1000 + step)
        loss = cross_entropy(network(clips.transpose(1, 2) if channels_first else clips), classes)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return network.requires_grad_(False)
