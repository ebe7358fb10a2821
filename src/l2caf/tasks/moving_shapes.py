"""Clips whose answer is known: a shape that moves over a photograph, and where it is in each frame.

A kind is what moves and where to (`disc-left`, `cross-up`), and nothing else tells kinds apart: backgrounds, colours,
places and speeds are drawn from the same lot for all of them. A background is a photograph with a shape on it that does
not move. So a network that tells the kinds apart has to look at the one that moves, and whether it does can be counted.
"""

from __future__ import annotations

import colorsys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from ..errors import InputError
from ..images import save_picture
from .samples import SAMPLES, sample

SHAPES = ("disc", "cross")
DIRECTIONS = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}
KINDS = tuple(f"{shape}-{direction}" for shape, direction in product(SHAPES, DIRECTIONS))

BACKGROUNDS = 2 * len(SAMPLES)  # each photograph, and its mirror image

_FINER = 4  # times as many pixels while a shape is drawn, so that it glides and does not jump
_RADIUS = (0.10, 0.13)  # of the side
_TRAVEL = (0.34, 0.46)  # from the first frame to the last
_EDGE = 0.14  # how near its centre comes to the border


@dataclass(frozen=True, eq=False)
class MovingClip:
    """The frames (T, side, side, 3), and the box (T, 4) of the moving shape in each: x0, y0, x1, y1, half-open."""

    kind: str
    frames: npt.NDArray[np.uint8] = field(repr=False)
    boxes: npt.NDArray[np.float64] = field(repr=False)

    def save(self, folder: Path) -> Path:
        """Write the frames into a folder of their own."""
        folder.mkdir(parents=True, exist_ok=True)
        for number, frame in enumerate(self.frames):
            save_picture(Image.fromarray(frame), folder / f"{number:03}.jpg")
        return folder


def moving_clip(kind: str, number: int, *, length: int = 8, side: int = 256, seed: int = 0) -> MovingClip:
    """The clip of this number of a kind; the same arguments give the same clip.

    >>> clip = moving_clip("disc-left", 0, length=3, side=64)
    >>> clip.frames.shape, bool(clip.boxes[0, 0] > clip.boxes[2, 0])
    ((3, 64, 64, 3), True)
    """
    if kind not in KINDS:
        raise InputError(f"There is no kind {kind!r} of moving shapes: take one of {', '.join(KINDS)}.", field="kind")
    shape, _, direction = kind.partition("-")
    draw = np.random.default_rng((seed, KINDS.index(kind), number))
    still = _background(int(draw.integers(BACKGROUNDS)), side)
    radius, colour = draw.uniform(*_RADIUS), _colour(draw)
    start, travel = _path(draw, np.array(DIRECTIONS[direction]))
    centres = [start + travel * part for part in np.linspace(0, 1, length)]
    frames = []
    for centre in centres:
        frame = still.copy()
        _paint(frame, shape, centre, radius, colour)
        frames.append(np.asarray(frame))
    boxes = side * np.array([[*(centre - radius), *(centre + radius)] for centre in centres])
    return MovingClip(kind, np.stack(frames), boxes)


def write_clips(
    folder: Path,
    *,
    each: int,
    kinds: Sequence[str] = KINDS,
    length: int = 8,
    side: int = 256,
    seed: int = 0,
    save: Callable[[MovingClip, Path], object] = MovingClip.save,
) -> Iterator[Path]:
    """Write `each` clips of every kind, one folder per kind; yield each as it is there.

    `save` is given a clip and its path without a suffix.
    """
    for kind, number in product(kinds, range(each)):
        target = folder / kind / f"{number:03}"
        save(moving_clip(kind, number, length=length, side=side, seed=seed), target)
        yield target


@lru_cache(maxsize=64)
def _background(number: int, side: int) -> Image.Image:
    """The middle of a photograph, mirrored or not, with a shape in one of its corners.

    There are few of them, and each comes in all kinds: of one that came in a single clip, the clip could be known.
    """
    mirrored, place = divmod(number, len(SAMPLES))
    image = sample([*SAMPLES][place])
    length = min(image.size)
    left, top = (image.width - length) / 2, (image.height - length) / 2
    square = image.resize((side, side), Image.Resampling.BICUBIC, box=(left, top, left + length, top + length))
    made = square.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if mirrored else square
    draw = np.random.default_rng(number)
    corner = np.where(draw.integers(2, size=2), _EDGE, 1 - _EDGE)
    _paint(made, SHAPES[number % len(SHAPES)], corner, _RADIUS[0], _colour(draw))
    return made


def _path(draw: np.random.Generator, towards: npt.NDArray[np.int64]) -> tuple[Any, Any]:
    """Where it starts, and how far it goes, in sides of the frame."""
    travel = draw.uniform(*_TRAVEL) * towards
    low, high = _EDGE - np.minimum(travel, 0), 1 - _EDGE - np.maximum(travel, 0)
    return draw.uniform(low, high), travel


def _colour(draw: np.random.Generator) -> tuple[int, ...]:
    red, green, blue = colorsys.hsv_to_rgb(draw.uniform(), draw.uniform(0.7, 1), draw.uniform(0.8, 1))
    return round(255 * red), round(255 * green), round(255 * blue)


def _paint(
    image: Image.Image, shape: str, centre: npt.NDArray[np.float64], radius: float, colour: tuple[int, ...]
) -> None:
    """Draw a shape onto an image, in place; lengths are in sides of the image."""
    side = image.width
    first = np.floor((centre - radius) * side).astype(int) - 1
    width = int(np.ceil(2 * radius * side)) + 3
    mask = Image.new("L", (_FINER * width, _FINER * width))
    x, y = (centre * side - first) * _FINER
    reach = radius * side * _FINER
    pen = ImageDraw.Draw(mask)
    if shape == "disc":
        pen.ellipse((x - reach, y - reach, x + reach, y + reach), fill=255)
    else:
        arm = reach / 3
        pen.rectangle((x - reach, y - arm, x + reach, y + arm), fill=255)
        pen.rectangle((x - arm, y - reach, x + arm, y + reach), fill=255)
    soft = mask.resize((width, width), Image.Resampling.BOX)
    image.paste(colour, (int(first[0]), int(first[1])), soft)
