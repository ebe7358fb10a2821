"""A clip on one page: some of its moments with the heat on them, and a curve over all of its frames."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from ..errors import InputError
from .figures import INK, LOOKS, as_picture, bare_figure
from .grid import grid
from .legend import FAINT
from .legend import legend as colours
from .marks import font

MOMENTS = 8  # columns of a strip: more are too small to be seen on a page
HEIGHT = 176  # pixels of a frame on the strip
CONTOURS = (0.5,)
CURVE = 190  # pixels of the curve's height


class Moment(NamedTuple):
    """A frame of the strip: when it is shown, the frame itself, and the same with heat, once for each map."""

    time: float
    picture: Image.Image
    drawn: tuple[Image.Image, ...]


@dataclass(frozen=True)
class Series:
    """A line of the curve: numbers at times; NaN where there is none."""

    name: str
    times: npt.NDArray[np.float64]
    values: npt.NDArray[np.float64]


class Thinned:
    """Some of a stream of things, evenly spread over it, though nobody knows how long it is.

    Every k-th is kept, and k doubles when there are too many: at most four times `most` of them are held at any time.

    >>> thinned = Thinned(3)
    >>> for number in range(100):
    ...     if thinned.wants:
    ...         thinned.keep(number)
    ...     thinned.count += 1
    >>> thinned.chosen()
    [0, 48, 96]
    """

    def __init__(self, most: int) -> None:
        self.most, self.step, self.count = most, 1, 0
        self.kept: list[Any] = []

    @property
    def wants(self) -> bool:
        """Whether the next one is kept: what it takes to make it is spared otherwise."""
        return self.count % self.step == 0

    def keep(self, one: Any) -> None:
        self.kept.append(one)
        if len(self.kept) > 4 * self.most:  # with fewer in hand, the gaps between those chosen would differ by half
            self.kept, self.step = self.kept[::2], 2 * self.step

    def chosen(self) -> list[Any]:
        """At most so many of them, the first one and the last one kept among them."""
        places = np.linspace(0, len(self.kept) - 1, min(self.most, len(self.kept))).round().astype(int)
        return [self.kept[place] for place in places]


def filmstrip(
    moments: Sequence[Moment],
    *,
    names: Sequence[str] = ("where it looked",),
    heading: str = "",
    caption: str = "",
    signed: bool = False,
    cmap: str | None = None,
    curve: Callable[[int], Image.Image] | None = None,
) -> Image.Image:
    """Moments side by side: above the frame, below it the frame with each map, and the curve under all of it, as wide.

    >>> black = Image.new("RGB", (64, 48))
    >>> strip = filmstrip([Moment(0.0, black, (black,)), Moment(0.5, black, (black,))])
    """
    if not moments:
        raise InputError("There are no frames for a strip: give at least one.")
    rows = [[one.picture for one in moments], *([one.drawn[which] for one in moments] for which in range(len(names)))]
    sheet = grid(
        rows,
        column_titles=[f"{one.time:.2f} s" for one in moments],
        row_labels=["frame", *names],
        heading=heading,
        caption=caption,
        cell_height=HEIGHT,
        legend=colours(signed=signed, cmap=cmap, size=13),
    )
    if curve is None:
        return sheet
    line = curve(sheet.width)
    both = Image.new("RGB", (sheet.width, sheet.height + line.height), "white")
    both.paste(sheet, (0, 0))
    both.paste(line, (0, sheet.height))
    return both


def small(picture: Image.Image, height: int = HEIGHT) -> Image.Image:
    """A frame as large as a strip shows it."""
    size = (max(1, round(picture.width * height / picture.height)), height)
    return picture.resize(size, Image.Resampling.LANCZOS)


def curve_of(
    series: Sequence[Series],
    *,
    title: str,
    width: int = 1200,
    even: float | None = None,
    highest: float | None = None,
    unknown: str = "",
) -> Image.Image:
    """Lines over the seconds of a clip.

    even      a level to compare with, drawn as a dashed line: what each frame would have if all weighed the same
    highest   of the axis; None to fit the lines
    unknown   words in place of lines where there are none
    """
    figure, axes = bare_figure((width, CURVE))
    axes.set_title(title, fontsize=10, color=INK, loc="left")
    axes.set_xlabel("seconds", fontsize=9, color=FAINT)
    for look, one in zip(LOOKS * (1 + len(series) // len(LOOKS)), series, strict=False):
        alone = np.isfinite(one.values).sum() == 1
        axes.plot(
            one.times,
            one.values,
            color=look.color,
            linestyle=look.line,
            linewidth=1.8,
            label=one.name,
            marker="o" if alone or len(one.times) <= 2 * MOMENTS else None,
            markersize=4,
        )
    if even is not None:
        axes.axhline(even, color=FAINT, linewidth=0.9, linestyle=(0, (4, 4)))
    # The limits that fit leave no room above the highest point once they begin at zero: its mark would be cut in half.
    axes.set_ylim(0, 1.06 * max(axes.get_ylim()[1], even or 0) if highest is None else highest)
    if len(series) > 1 or (series and series[0].name):
        axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    if not series and unknown:
        axes.text(0.5, 0.5, unknown, transform=axes.transAxes, ha="center", color=FAINT)
    return as_picture(figure)


def banner(width: int, height: int, text: str, right: str = "") -> Image.Image:
    """A dark strip with words, to be set under a frame of a film."""
    made = Image.new("RGB", (width, height), "#202124")
    draw = ImageDraw.Draw(made)
    letters = font(max(9, round(height * 0.56)))
    gap = height // 3
    room = width - 2 * gap - (letters.getlength(right) + gap if right else 0)
    while text and letters.getlength(text) > room:
        text = text.removesuffix("…")[:-1].rstrip() + "…" if len(text) > 2 else ""
    draw.text((gap, height / 2), text, font=letters, fill="white", anchor="lm")
    draw.text((width - gap, height / 2), right, font=letters, fill="#bdc1c6", anchor="rm")
    return made


def banner_height(height: int) -> int:
    """How high the words under a frame are."""
    return max(20, 2 * (height // 36))
