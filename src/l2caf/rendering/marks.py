"""What is drawn on top of a picture: boxes, contours, and letters in one typeface."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageColor, ImageDraw, ImageFont

from ..errors import InputError
from ..files import printable
from .colors import Floats

PALETTE = ("#ffffff", "#ff4fd8", "#ffd23f", "#3fd8ff", "#39ff6a")
"""The colours of boxes that name none, in turn; white first, which no heat has, and a dark rim tells it from clouds."""
RIM = "#101010"


class Box(NamedTuple):
    """A box, half-open, in pixels: columns x0 .. x1 - 1 and rows y0 .. y1 - 1 belong to it."""

    x0: float
    y0: float
    x1: float
    y1: float
    color: str | None = None
    label: str = ""


def draw_boxes(picture: Image.Image, boxes: Iterable[Box | Sequence[float]]) -> Image.Image:
    """Draw each box by a line that lies inside it, between two dark rims; what is outside the picture is cut off.

    The lines of a box that ends with the picture move in by the rim: a white line would vanish into a white page.
    """
    picture = picture.copy()
    draw = ImageDraw.Draw(picture)
    width = line_width(picture.size)
    for number, given in enumerate(boxes):
        box = checked_box(given, picture.size)
        color = _color(box.color or PALETTE[number % len(PALETTE)])
        x0, y0, x1, y1 = _with_rim((round(edge) for edge in box[:4]), picture.size)
        # Pillow's rectangles include their last pixel, our boxes do not.
        draw.rectangle((x0 - 1, y0 - 1, x1, y1), outline=RIM, width=1)
        draw.rectangle((x0, y0, x1 - 1, y1 - 1), outline=color, width=width)
        inner = (x0 + width, y0 + width, x1 - 1 - width, y1 - 1 - width)
        if inner[2] > inner[0] and inner[3] > inner[1]:
            draw.rectangle(inner, outline=RIM, width=1)
        if box.label:
            _label(draw, box.label, corner=(x0, y0), color=color, size=max(11, picture.height // 24))
    return picture


def _with_rim(edges: Iterable[int], size: tuple[int, int]) -> tuple[int, int, int, int]:
    """A box whose outer rim lies on the picture, where it ends with the picture and leaves room for it."""
    x0, y0, x1, y1 = edges
    if x1 - x0 > 2 and y1 - y0 > 2:
        x0, y0 = x0 + (x0 == 0), y0 + (y0 == 0)
        x1, y1 = x1 - (x1 == size[0]), y1 - (y1 == size[1])
    return x0, y0, x1, y1


def draw_contours(picture: Image.Image, heat: Floats, levels: Sequence[float]) -> Image.Image:
    """Draw the outlines of `heat` (as large as the picture) at each level: white, with a dark rim."""
    from skimage.measure import find_contours

    if not levels or min(heat.shape) < 2:  # a line of pixels has no outline
        return picture
    # Drawn larger and scaled down, which smooths the lines; less so on pictures that are large already.
    scale = 4 if picture.width * picture.height <= 2_000_000 else 1
    width = line_width(picture.size) * scale
    rim = Image.new("L", (picture.width * scale, picture.height * scale))
    core = rim.copy()
    for level in levels:
        for contour in find_contours(heat, level):
            # find_contours speaks of pixel centres (row, column), Pillow's lines of (x, y) from the corner.
            points = [(float(x), float(y)) for y, x in (contour + 0.5) * scale]
            ImageDraw.Draw(rim).line(points, fill=150, width=width + 2 * scale, joint="curve")
            ImageDraw.Draw(core).line(points, fill=255, width=width, joint="curve")
    outlined = picture.copy()
    for mask, color in ((rim, "black"), (core, "white")):
        smooth = mask.resize(picture.size, Image.Resampling.BOX)
        outlined.paste(Image.new("RGB", picture.size, color), mask=smooth)
    return outlined


def line_width(size: tuple[int, int]) -> int:
    return max(1, round(min(size) / 110))


def checked_box(given: Box | Sequence[float], size: tuple[int, int]) -> Box:
    """A box that can be drawn on a picture of (width, height), or one sentence on why it cannot."""
    if not 4 <= len(given) <= 6:
        raise InputError(f"{tuple(given)} is no box; give x0, y0, x1, y1.")
    box = Box(*given)
    if not all(np.isscalar(edge) and not isinstance(edge, str) for edge in box[:4]):
        raise InputError(f"{tuple(given)} is no box; give x0, y0, x1, y1 as numbers.")
    if not np.isfinite(box[:4]).all():
        raise InputError(f"The box {box[:4]} holds NaN or infinite edges; leave it out.")
    if round(box.x1) <= round(box.x0) or round(box.y1) <= round(box.y0):
        raise InputError(f"The box {box[:4]} is empty; give x0 < x1 and y0 < y1, in pixels.")
    if box.x0 >= size[0] or box.y0 >= size[1] or box.x1 <= 0 or box.y1 <= 0:
        raise InputError(f"The box {box[:4]} lies outside a {size[0]}×{size[1]} picture; check its scale.")
    return box


def _color(name: str) -> tuple[int, ...]:
    try:
        return ImageColor.getrgb(name)
    except ValueError as error:
        raise InputError(f"'{name}' is no colour; give a name or '#rrggbb'.") from error


def _label(draw: ImageDraw.ImageDraw, text: str, *, corner: tuple[int, int], color: tuple[int, ...], size: int) -> None:
    """Write above the box, or inside it where there is no room above."""
    letters = font(size, bold=True)
    left, top, right, bottom = letters.getbbox(text)
    x, y = max(0, corner[0]), corner[1] - round(bottom - top) - 8
    y = y if y >= 0 else corner[1]
    draw.rectangle((x, y, x + right - left + 7, y + bottom - top + 7), fill=color)
    dark = sum(color[:3]) > 380
    draw.text((x + 4 - left, y + 4 - top), text, font=letters, fill="black" if dark else "white")


@lru_cache(maxsize=64)
def font(size: int, *, bold: bool = False) -> ImageFont.FreeTypeFont:
    """DejaVu Sans, which comes with matplotlib and so is there on every machine."""
    import matplotlib

    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(str(Path(matplotlib.get_data_path(), "fonts", "ttf", name)), size)


def fitted(text: str, letters: ImageFont.FreeTypeFont, *, width: int, lines: int = 2) -> list[str]:
    """Break a text into at most `lines` lines, none wider than `width`; an ellipsis says that it was cut."""
    broken: list[str] = []
    for paragraph in text.split("\n"):
        broken += _balanced(printable(paragraph), letters, width)
    kept = broken[:lines]
    if len(broken) > lines:
        kept[-1] += " …"
    return [_shortened(line, letters, width) for line in kept]


def _balanced(paragraph: str, letters: ImageFont.FreeTypeFont, width: int) -> list[str]:
    """Break into as few lines as there can be, of about one length: no word stands alone on the last."""
    lines = _wrapped(paragraph, letters, width)
    narrow = width
    while len(lines) > 1 and narrow > width // 2:
        narrow -= max(1, width // 40)
        tried = _wrapped(paragraph, letters, narrow)
        if len(tried) > len(lines) or any(letters.getlength(line) > narrow for line in tried):
            break
        lines = tried
    return lines


def _wrapped(paragraph: str, letters: ImageFont.FreeTypeFont, width: int) -> list[str]:
    lines: list[str] = []
    line = ""
    for word in paragraph.split():
        longer = f"{line} {word}".strip()
        if line and letters.getlength(longer) > width:
            lines.append(line)
            longer = word
        line = longer
    return [*lines, line]


def _shortened(line: str, letters: ImageFont.FreeTypeFont, width: int) -> str:
    if letters.getlength(line) <= width:
        return line
    bare = line.removesuffix(" …")
    while bare and letters.getlength(bare.rstrip() + "…") > width:
        bare = bare[:-1]
    return bare.rstrip() + "…"
