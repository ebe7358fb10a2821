"""Frames as a file that plays: H.264 in mp4, or a GIF; written as they come, and there as a whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ..clips import Pixels, import_av
from ..errors import ClipError, FileError, InputError
from ..files import write_whole
from .animation import dithered, shared_palette

ENDINGS = (".mp4", ".gif")
TICKS = 90_000  # of a second: divided by all usual frame rates
QUALITY = "20"  # x264's constant rate factor; 18 is as good as the frames themselves
HUNDREDTHS, SHORTEST = 100, 2  # a GIF counts so; browsers slow down a frame that is shorter than two of them
KNOWN_FIRST = 32  # frames of a GIF that its colours are chosen from
BT709 = 1  # the number of the colours of today's screens, in FFmpeg as in the standard


class Film:
    """What frames are added to, in the order of their times."""

    def __init__(self, encoder: _Mp4 | _Gif, path: Path) -> None:
        self._encoder, self._path = encoder, path
        self._size: tuple[int, ...] | None = None
        self._last: float | None = None
        self.count = 0

    def add(self, frame: Image.Image | Pixels, time: float) -> None:
        """Add a frame that is shown from `time` on, in seconds."""
        pixels = np.asarray(frame.convert("RGB") if isinstance(frame, Image.Image) else frame)
        if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8 or not pixels.size:
            raise InputError(
                f"A frame of {pixels.dtype} {pixels.shape} cannot be filmed: give (height, width, 3) bytes."
            )
        if self._size not in (None, pixels.shape):
            raise InputError("The frames of a film have different sizes: bring them to one first.")
        if self._last is not None and time <= self._last:
            raise InputError(f"A frame at {time:g} s cannot follow one at {self._last:g} s: give them in order.")
        self._size, self._last = pixels.shape, time
        self.count += 1
        self._encoder.add(pixels, time)

    def finish(self, until: float | None) -> None:
        if not self.count:
            raise ClipError(f"'{self._path}' would be a film without a frame: give at least one.")
        self._encoder.finish(until)


@contextmanager
def filming(path: str | os.PathLike[str], *, until: float | None = None) -> Iterator[Film]:
    """Lend a film that frames are added to; after an error or Ctrl-C nothing is left behind.

    until   the second at which the last frame ends; without it, it is shown as long as the one before

    >>> with filming("clip.mp4") as film:  # doctest: +SKIP
    ...     film.add(frame.pixels, frame.time)
    """
    path = Path(path)
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise FileError(f"'{path}' names no film: end it in {' or '.join(ENDINGS)}.")
    with write_whole(path) as temporary:
        encoder: _Mp4 | _Gif = _Mp4(temporary) if ending == ".mp4" else _Gif(temporary)
        film = Film(encoder, path)
        try:
            yield film
            film.finish(until)
        finally:
            encoder.close()


class _File:
    """A container that is opened with its first frame, when the size is known."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.path, self.options = path, options
        self.av = import_av()
        self.container: Any = None
        self.stream: Any = None
        self.ticks: list[int] = []  # of the last two frames

    def open(self, codec: str, width: int, height: int, *, pixels: str, ticks: int, options: dict[str, str]) -> None:
        self.container = self.av.open(str(self.path), "w", options=self.options)
        self.stream = self.container.add_stream(codec, rate=Fraction(25), options=options)
        self.stream.width, self.stream.height, self.stream.pix_fmt = width, height, pixels
        self.stream.codec_context.time_base = Fraction(1, ticks)

    def put(self, frame: Any, tick: int) -> None:
        self.ticks = [*self.ticks[-1:], tick]
        frame.pts, frame.time_base = tick, self.stream.codec_context.time_base
        self.container.mux(self.stream.encode(frame))

    def flush(self, until: int | None) -> None:
        """Write what the encoder held back; the last frame lasts until a tick."""
        before, last = self.ticks[0], self.ticks[-1]
        end = max(last + 1, last + (last - before or 1) if until is None else until)
        for packet in self.stream.encode():
            if packet.pts == last:
                packet.duration = end - last
            self.container.mux(packet)

    def close(self) -> None:
        if self.container is not None:
            self.container.close()
            self.container = None


class _Mp4(_File):
    """8 bits, 4:2:0, even sides, no frames out of order, the index in front: what every player and browser takes."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, movflags="+faststart")

    def add(self, pixels: Pixels, time: float) -> None:
        height, width = pixels.shape[:2]
        if height % 2 or width % 2:
            pixels = np.pad(pixels, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
        if self.container is None:
            # At veryfast x264 takes no longer than a small network does, and files are hardly larger.
            options = {"crf": QUALITY, "preset": "veryfast", "bf": "0", "rc-lookahead": "10"}
            self.open("libx264", pixels.shape[1], pixels.shape[0], pixels="yuv420p", ticks=TICKS, options=options)
            said = self.stream.codec_context
            said.colorspace = said.color_primaries = said.color_trc = BT709
            said.color_range = 1  # as television has it: black is 16
        frame = self.av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), "rgb24")
        frame = frame.reformat(format="yuv420p", dst_colorspace="ITU709", dst_color_range="MPEG")
        frame.colorspace, frame.color_range = BT709, 1
        self.put(frame, round(time * TICKS))

    def finish(self, until: float | None) -> None:
        self.flush(None if until is None else round(until * TICKS))


class _Gif(_File):
    """256 colours chosen from the first frames, and a dither pattern that stands still."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.waiting: list[tuple[Image.Image, float]] = []
        self.palette: Image.Image | None = None

    def add(self, pixels: Pixels, time: float) -> None:
        self.waiting.append((Image.fromarray(pixels), time))
        if self.palette is not None or len(self.waiting) == KNOWN_FIRST:
            self._write()

    def finish(self, until: float | None) -> None:
        self._write()
        self.flush(None if until is None else round(until * HUNDREDTHS))

    def _write(self) -> None:
        if self.palette is None:
            self.palette = shared_palette([picture for picture, _ in self.waiting])
            width, height = self.waiting[0][0].size
            self.open("gif", width, height, pixels="pal8", ticks=HUNDREDTHS, options={})
        for picture, time in self.waiting:
            tick = round(time * HUNDREDTHS)
            if not self.ticks or tick - self.ticks[-1] >= SHORTEST:
                self.put(self._frame(dithered(picture, self.palette)), tick)
        self.waiting = []

    def _frame(self, picture: Image.Image) -> Any:
        frame = self.av.VideoFrame(picture.width, picture.height, "pal8")
        colors = np.zeros((256, 4), np.uint8)
        table = np.array(picture.getpalette() or [], np.uint8).reshape(-1, 3)
        colors[: len(table), :3], colors[:, 3] = table[:, ::-1], 255  # blue first
        places = np.zeros((picture.height, frame.planes[0].line_size), np.uint8)
        places[:, : picture.width] = np.asarray(picture)
        frame.planes[0].update(places.tobytes())
        frame.planes[1].update(colors.tobytes())
        return frame
