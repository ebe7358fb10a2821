"""Letters on pictures: one typeface, and lines that fit."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from PIL import ImageFont


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
        broken += _wrapped(paragraph, letters, width)
    kept = broken[:lines]
    if len(broken) > lines:
        kept[-1] += " …"
    return [_shortened(line, letters, width) for line in kept]


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
