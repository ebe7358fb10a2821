"""Clips made by the tests: every frame tells its own number, and which corner is which."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
from PIL import Image

Pixels = npt.NDArray[np.uint8]
CORNERS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255), "white": (255, 255, 255)}
DIGITS = 6  # bits of a frame's number, as bright and dark bars across its middle


def numbered(number: int, *, width: int = 96, height: int = 64) -> Pixels:
    """Red, green, blue and white in the corners, clockwise from the upper left; the number's bits in the middle."""
    pixels = np.full((height, width, 3), 96, np.uint8)
    rows, columns = height // 4, width // 4
    for place, color in zip(((0, 0), (0, 1), (1, 1), (1, 0)), CORNERS.values(), strict=True):
        pixels[place[0] * (height - rows) :][:rows, place[1] * (width - columns) :][:, :columns] = color
    for digit in range(DIGITS):
        bright = 255 if number >> digit & 1 else 0
        left, right = (edge * width // DIGITS for edge in (digit, digit + 1))
        pixels[height * 3 // 8 : height * 5 // 8, left:right] = bright
    return pixels


def number_of(pixels: Pixels) -> int:
    """The number that a frame was given, whatever a codec did to its colours; of an upright frame."""
    height, width = pixels.shape[:2]
    middles = [round((digit + 0.5) * width / DIGITS) for digit in range(DIGITS)]
    return sum((int(pixels[height // 2, x].mean()) > 128) << digit for digit, x in enumerate(middles))


def corners_of(pixels: Pixels) -> list[str]:
    """The nearest of the four colours in each corner, clockwise from the upper left."""
    rows, columns = pixels.shape[0] // 10, pixels.shape[1] // 10
    spots = [
        pixels[y, x].astype(int) for y, x in ((rows, columns), (rows, -columns), (-rows, -columns), (-rows, columns))
    ]
    return [min(CORNERS, key=lambda name: abs(spot - np.array(CORNERS[name])).sum()) for spot in spots]


def write_clip(
    path: Path,
    frames: Sequence[Pixels],
    *,
    codec: str = "libx264",
    pixels: str = "yuv420p",
    times: Sequence[float] | None = None,
    rate: int = 10,
    aspect: Fraction | None = None,
    metadata: dict[str, str] | None = None,
    **options: Any,
) -> Path:
    """Encode frames by PyAV alone; `options` are those of the container."""
    height, width = frames[0].shape[:2]
    with av.open(str(path), "w", metadata_encoding="latin-1", **options) as container:
        container.metadata.update(metadata or {})
        stream: Any = container.add_stream(codec, rate=rate)
        stream.width, stream.height, stream.pix_fmt = width, height, pixels
        if aspect is not None:
            stream.codec_context.sample_aspect_ratio = aspect
        stream.codec_context.time_base = Fraction(1, 1000 if times else rate)
        for number, one in enumerate(frames):
            frame = av.VideoFrame.from_ndarray(one, "rgba" if one.shape[2] == 4 else "rgb24")
            frame.pts = round(1000 * times[number]) if times else number
            frame.time_base = stream.codec_context.time_base
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def turned(path: Path, matrix: Sequence[int]) -> Path:
    """The same mp4 with a display matrix (a, b, c, d) of -1, 0 and 1, as a telephone writes that was held upright."""
    content = bytearray(path.read_bytes())
    place = content.index(b"tkhd") + 4 + 4 + 36  # version and flags, then what stands before the matrix
    a, b, c, d = (number << 16 for number in matrix)
    values = np.array([a, b, 0, c, d, 0, 0, 0, 1 << 30], ">i4")
    content[place : place + 36] = values.tobytes()
    path.write_bytes(bytes(content))
    return path


def write_folder(folder: Path, frames: Sequence[Pixels]) -> Path:
    """Frames as pictures whose names do not sort by letters: 9 comes before 10."""
    folder.mkdir()
    for number, one in enumerate(frames, start=1):
        Image.fromarray(one).save(folder / f"frame{number}.png")
    return folder
