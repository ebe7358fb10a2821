"""What the colours of heat mean: a strip of them with words."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw

from .colors import Bytes, Cmap, colors_of
from .marks import font
from .overlay import ramp

FAINT = "#5f6368"


def legend(*, signed: bool, cmap: Cmap | None = None, size: int = 13) -> Image.Image:
    """A strip of the colours between two words, in letters of so many pixels.

    >>> legend(signed=True).height
    18
    """
    before, after = ("against", "for") if signed else ("0", "maximum of the map")
    letters = font(size)
    height, gap, length = round(size * 1.4), size // 2, size * 9
    left = int(letters.getlength(before)) + gap + 1
    width = left + length + gap + int(letters.getlength(after)) + 2
    made = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(made)
    draw.text((0, height / 2), before, font=letters, fill=FAINT, anchor="lm")
    draw.text((left + length + gap, height / 2), after, font=letters, fill=FAINT, anchor="lm")
    made.paste(_strip(length, round(size * 0.8), signed=signed, cmap=cmap), (left, height // 2 - round(size * 0.4)))
    return made


def with_legend(picture: Image.Image, *, signed: bool, cmap: Cmap | None = None) -> Image.Image:
    """A picture with the legend in a white margin below it."""
    strip = legend(signed=signed, cmap=cmap, size=max(9, min(20, picture.width // 28)))
    margin = max(4, strip.height // 3)
    if strip.width > picture.width - 2 * margin:
        scale = max(1, picture.width - 2 * margin) / strip.width
        size = (max(1, round(strip.width * scale)), max(1, round(strip.height * scale)))
        strip = strip.resize(size, Image.Resampling.LANCZOS)
    sheet = Image.new("RGB", (picture.width, picture.height + strip.height + 2 * margin), "white")
    sheet.paste(picture, (0, 0))
    sheet.paste(strip, (margin, picture.height + margin))
    return sheet


def shown_colors(length: int, *, signed: bool, cmap: Cmap | None) -> Bytes:
    """So many colours from the least heat to the greatest, (length, 3); they fade towards 0 as on a picture."""
    heat = np.linspace(-1 if signed else 0, 1, length, dtype=np.float32)
    shown = ramp(np.abs(heat))[:, None]
    return np.rint(255 * (1 - shown) + colors_of(heat, signed=signed, cmap=cmap) * shown).astype(np.uint8)


def _strip(width: int, height: int, *, signed: bool, cmap: Cmap | None) -> Image.Image:
    return Image.fromarray(np.repeat(shown_colors(width, signed=signed, cmap=cmap)[None], height, axis=0))
