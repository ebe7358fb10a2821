"""From a clip on disk to the input of a network for clips: which frames it is shown, and how they are laid out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from ..clips import ClipInput, open_clip, spread
from ..preprocessing import Input, Prepared, Preprocess

FRAMES = 16  # of a clip, for a network that takes any number


@dataclass(frozen=True)
class PreparedClip:
    """The input (T, 3, H, W), or (3, T, H, W) where the network has it so, and a sharp picture and the time of each."""

    input: Input
    views: tuple[Image.Image, ...]
    times: tuple[float, ...]


@dataclass(frozen=True)
class ClipPreparation:
    """How a network for clips is shown one: each frame as `preprocess` has it, laid out as `clip` says."""

    preprocess: Preprocess
    clip: ClipInput

    def prepare_file(self, path: Path) -> Prepared:
        """The input; its picture is that of the first frame."""
        made = [self.preprocess.prepare(picture) for picture, _ in self._frames(path)]
        return Prepared(self._laid([one.input for one in made]), made[0].view, made[0].crop)

    def open(self, path: Path) -> PreparedClip:
        """The input with what is needed to draw on it."""
        frames = self._frames(path)
        inputs = [self.preprocess.prepare(picture).input for picture, _ in frames]
        views = tuple(self.preprocess.sharp_view(picture) for picture, _ in frames)
        return PreparedClip(self._laid(inputs), views, tuple(time for _, time in frames))

    def places(self, count: int) -> list[int]:
        """Which frames of a clip with so many: spread over it, or the middle ones in a row.

        >>> from l2caf.preprocessing import Preprocessing
        >>> frames = ClipPreparation(Preprocessing(), ClipInput(frames=3))
        >>> frames.places(9), frames.places(2)
        ([3, 4, 5], [0, 1, 1])
        """
        frames = self.clip.frames or FRAMES
        if self.clip.spread or count < frames:
            return spread(count, frames)
        first = (count - frames) // 2
        return [*range(first, first + frames)]

    def _frames(self, path: Path) -> list[tuple[Image.Image, float]]:
        clip = open_clip(path)
        return [(frame.picture, frame.time) for frame in clip.at(self.places(clip.count))]

    def _laid(self, inputs: Sequence[Input]) -> Input:
        return np.stack(inputs, axis=1 if self.clip.channels_first else 0)
