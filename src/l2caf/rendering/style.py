"""`Style`: how heat is drawn, the same for every map of a run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from ..errors import InputError
from ..localization import boxes_of
from .colors import colors_of
from .legend import legend
from .marks import Box, fitted, font
from .overlay import ALPHA, check_alpha, overlay
from .settings import BOX_LEVEL

FAINT_SHARE = 0.4  # of the opacity, for a class that the network hardly sees


@dataclass(frozen=True)
class Style:
    """Colours and marks.

    cmap    a colour map of matplotlib; None for turbo, and for two colours where there is a sign
    alpha   how much of the picture the heat hides where it is greatest, from 0 to 1
    signed  what speaks for and what speaks against, in two colours
    box     the box around the largest region of `threshold` times the greatest heat or more
    """

    cmap: str | None = None
    contours: bool = False
    box: bool = False
    signed: bool = False
    alpha: float = ALPHA
    threshold: float = BOX_LEVEL

    def check(self) -> None:
        """Say at once, not after the work, that there is no such colour map, opacity or threshold."""
        check_alpha(self.alpha)
        if not 0 <= self.threshold <= 1:
            raise InputError(f"threshold is {self.threshold}: give a number from 0 to 1.", field="threshold")
        colors_of(np.zeros((1, 1), np.float32), signed=self.signed, cmap=self.cmap)

    def draw(
        self,
        view: Image.Image,
        heat: npt.NDArray[np.float32],
        *,
        grid: npt.NDArray[np.float32] | None = None,
        faint: bool = False,
    ) -> Image.Image:
        """Lay heat (h, w) over the picture of what the network saw.

        grid   the same on the layer's own grid, which gives smoother colours; boxes are those of the heat
        faint  for a class that the network hardly sees: full colours would claim more than there is
        """
        found = box_of(heat, level=self.threshold) if self.box else None
        boxes: list[Box] = []
        if found is not None:
            # Drawn at the picture's own size, which is finer than the map's.
            across, down = view.width / heat.shape[1], view.height / heat.shape[0]
            x0, y0, x1, y1 = found
            boxes = [Box(x0 * across, y0 * down, x1 * across, y1 * down)]
        return overlay(
            view,
            heat if grid is None else grid,
            signed=self.signed,
            cmap=self.cmap,
            alpha=self.alpha * (FAINT_SHARE if faint else 1),
            contours=self.contours,
            boxes=boxes,
        )

    @property
    def legend(self) -> Image.Image:
        """What the colours mean."""
        return legend(signed=self.signed, cmap=self.cmap, size=16)


def box_of(heat: npt.NDArray[np.float32], *, level: float = BOX_LEVEL) -> tuple[int, int, int, int] | None:
    """The box x0, y0, x1, y1 (half-open) of the largest region above a share of the greatest heat.

    >>> heat = np.zeros((6, 8), np.float32)
    >>> heat[1:3, 2:7] = 1
    >>> box_of(heat)
    (2, 1, 7, 3)
    """
    x0, y0, x1, y1 = (int(edge) for edge in boxes_of(heat.clip(min=0), [level])[0])
    return (x0, y0, x1, y1) if x1 > x0 else None


def note(text: str, size: tuple[int, int]) -> Image.Image:
    """A quiet cell with words where a picture cannot be."""
    cell = Image.new("RGB", size, "#f1f3f4")
    draw = ImageDraw.Draw(cell)
    letters = font(max(12, size[1] // 20))
    lines = fitted(text, letters, width=round(size[0] * 0.84), lines=10)
    middle = (size[0] / 2, size[1] / 2)
    draw.multiline_text(middle, "\n".join(lines), font=letters, fill="#5f6368", anchor="mm", align="center", spacing=6)
    return cell
