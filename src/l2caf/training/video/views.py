"""Views of clips: which frames the network is shown, and which part of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ...clips import open_clip, spread
from ...preprocessing import Preprocessing
from ..sources import Views


@dataclass(eq=False)
class ClipViews:
    """Numbered views of clips, (T, 3, H, W) each, as inputs of a network.

    View 0 is what the network sees when it is used: the middle frame of each T-th part of the clip. In all others the
    frame is any of that part. Every other one shows a part of the picture, the same part of all frames.
    """

    preprocessing: Preprocessing
    frames: int
    lengths: dict[Path, int] = field(default_factory=dict)

    def check(self, path: Path) -> None:
        """Count the frames of a clip; one that cannot be read is an error."""
        self.lengths[path] = open_clip(path).count

    def of(self, path: Path, numbers: Iterable[int], *, key: tuple[int, ...]) -> Tensor:
        """The views of these numbers, (V, T, 3, H, W)."""
        if path not in self.lengths:
            self.check(path)
        wanted = {number: self.places(self.lengths[path], number, key=key) for number in numbers}
        every = sorted({place for places in wanted.values() for place in places})
        found = {place: frame.picture for place, frame in zip(every, open_clip(path).at(every), strict=True)}
        shown = Views(self.preprocessing)
        return torch.stack(
            [
                torch.stack(
                    [
                        shown.cut_out(found[place], (*key, number)) if number and not number % 2
                        else self.preprocessing(found[place])
                        for place in places
                    ]
                )
                for number, places in wanted.items()
            ]
        )  # fmt: skip

    def places(self, count: int, number: int, *, key: Sequence[int]) -> list[int]:
        """The frames of a view of a clip with `count` of them.

        >>> ClipViews(Preprocessing(), 3).places(90, 0, key=(0,))
        [15, 45, 75]
        """
        if number == 0:
            return spread(count, self.frames)
        within = np.random.default_rng((*key, number, 1)).uniform(size=self.frames)
        return [min(int((part + inside) * count / self.frames), count - 1) for part, inside in enumerate(within)]
