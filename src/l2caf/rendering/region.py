"""`OutputRegion`: the region of an output that was asked about, outlined on a picture of that output."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from .marks import draw_contours

# Of channels that compete, the first is mostly the background; the others are told apart by hue.
PALETTE = np.array(
    [(40, 40, 48), (86, 180, 233), (230, 159, 0), (0, 158, 115), (204, 121, 167), (240, 228, 66), (213, 94, 0),
     (0, 114, 178)], np.uint8,
)  # fmt: skip
LEAST = 240  # pixels of the shorter side: an outline on a small output would be all there is to see


class OutputRegion:
    """`mask` is (B, *space), `colors` the output as a picture, (B, *space, 3).

    >>> mask = np.zeros((1, 8, 8), bool)
    >>> mask[:, 2:5, 3:6] = True
    >>> OutputRegion(mask, np.zeros((1, 8, 8, 3), np.uint8)).drawn(0).size
    (240, 240)
    """

    def __init__(self, mask: npt.NDArray[np.bool_], colors: npt.NDArray[np.uint8]) -> None:
        self.mask = mask
        self.colors = colors

    @classmethod
    def of(cls, mask: npt.NDArray[np.bool_], output: npt.NDArray[Any]) -> OutputRegion:
        """With a picture of the output, (B, K, *space): grey of one channel, colours of three that are a picture's,
        else which channel is the largest."""
        return cls(mask, np.stack([_colored(one) for one in output]))

    def only(self, samples: Any) -> OutputRegion:
        """The same of some samples."""
        return OutputRegion(self.mask[samples], self.colors[samples])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OutputRegion):
            return NotImplemented
        return np.array_equal(self.mask, other.mask) and np.array_equal(self.colors, other.colors)

    def __hash__(self) -> int:
        return hash(self.mask.shape)

    @property
    def is_drawable(self) -> bool:
        """Whether the output is a picture or a volume: a signal has no outline."""
        return self.mask.ndim in (3, 4)

    def drawn(self, index: int) -> Image.Image:
        """The output of one sample with the region's outline; of a volume, the plane through the region's middle."""
        mask, colors = self.mask[index], self.colors[index]
        if mask.ndim == 3:
            inside = np.flatnonzero(mask.any(axis=(1, 2)))
            plane = int(inside[len(inside) // 2])
            mask, colors = mask[plane], colors[plane]
        times = max(1, -(-LEAST // min(mask.shape)))
        large = Image.fromarray(colors.repeat(times, axis=0).repeat(times, axis=1))
        # With a border of nothing, a region at the edge has its outline there, too.
        heat = np.pad(mask.repeat(times, axis=0).repeat(times, axis=1).astype(np.float32)[1:-1, 1:-1], 1)
        return draw_contours(large, heat, [0.5])


def _colored(output: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """(K, *space) to (*space, 3)."""
    is_picture = (
        len(output) == 3 and np.abs(output).max() <= 1.001 and not np.allclose(output.sum(axis=0), 1, atol=1e-3)
    )
    if len(output) > 1 and not is_picture:
        return PALETTE[output.argmax(axis=0) % len(PALETTE)]
    low, high = float(output.min()), float(output.max())
    gray = ((output - low) / max(high - low, 1e-30) * 255).round().astype(np.uint8)
    return np.moveaxis(gray if len(gray) == 3 else gray.repeat(3, axis=0), 0, -1)
