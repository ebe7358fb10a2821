"""Clips from disk, frame by frame: whatever holds them, upright RGB pictures with their times, or one clear sentence.

A clip is a file of moving pictures (mp4, webm, mkv, avi, gif, whatever FFmpeg reads), or a folder of frames. It is read
as it is asked for, so that memory does not grow with its length. PyAV does the decoding: `pip install av`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from .errors import ClipError, ExtraError, ImageError, InputError
from .images import SUFFIXES as PICTURES
from .images import image_files, open_image

Pixels = npt.NDArray[np.uint8]

SUFFIXES = frozenset(".3gp .avi .flv .gif .m4v .mkv .mov .mp4 .mpeg .mpg .mts .ogv .ts .webm .wmv".split())
"""What counts as a clip inside a folder; a file that is named outright may have any suffix."""
RATE = 25.0  # frames per second of what does not say: a folder of frames
WIDEST_PIXEL = 4  # a file that claims pixels longer than this many times their width is not believed


class Frame(NamedTuple):
    """One picture of a clip: RGB (height, width, 3), upright, and the seconds from the clip's first frame."""

    pixels: Pixels
    time: float

    @property
    def picture(self) -> Image.Image:
        return Image.fromarray(self.pixels)


Told = Callable[[str], None]
"""Told in one sentence what of a clip could not be read."""


def unheard(sentence: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class ClipInput:
    """How a network takes clips.

    frames          how many at once; None for any number
    channels_first  (B, C, T, H, W), as 3-D networks have it; else (B, T, C, H, W), as recurrent ones have it
    rate            frames per second that it was trained on; None where that is not known
    spread          whether its frames are spread over all of a clip, as a few for a recurrent network are; else they
                    follow one another

    >>> ClipInput(frames=3, spread=True).channels_first
    False
    """

    frames: int | None = None
    channels_first: bool = False
    rate: float | None = None
    spread: bool = False


@dataclass(frozen=True)
class Clip:
    """A clip on disk, opened by `open_clip`; going through it decodes it anew each time.

    rate       frames per second, on average, as the file says; None where it does not
    announced  how many frames the file says it has, or its duration does; None where neither is told. Files are wrong
               about it: `count` counts
    """

    path: Path
    rate: float | None = None
    announced: int | None = None

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder of frames, which tell no times."""
        return self.path.is_dir()

    def __iter__(self) -> Iterator[Frame]:
        return self.frames()

    def frames(self, damaged: Told = unheard) -> Iterator[Frame]:
        """The frames in the order in which they are shown; `damaged` is told of what could not be read."""
        return self._frames(damaged, None)

    @cached_property
    def count(self) -> int:
        """How many frames can be read; all of them are decoded once."""
        return sum(1 for _ in self._frames(unheard, frozenset()))

    def at(self, places: Iterable[int], damaged: Told = unheard) -> list[Frame]:
        """The frames at these places, counted from 0, in the order given; one may be asked for several times."""
        asked = [int(place) for place in places]
        wanted = frozenset(asked)
        found: dict[int, Frame] = {}
        for place, frame in enumerate(self._frames(damaged, wanted)):
            if frame is not None and place in wanted:
                found[place] = frame
                if len(found) == len(wanted):
                    break
        missing = wanted - found.keys()
        if missing:
            raise ClipError(f"'{self.path}' has no frame {min(missing)}: it holds {self.count}, counted from 0.")
        return [found[place] for place in asked]

    def _frames(self, damaged: Told, wanted: frozenset[int] | None) -> Iterator[Any]:
        """Every frame, but None in place of those that nobody wants: they are decoded and not made pictures."""
        if self.is_folder:
            made = _of_folder(self.path, wanted, self.rate or RATE)
        else:
            made = _of_file(self.path, damaged, wanted)
        empty = True
        for frame in made:
            empty = False
            yield frame
        if empty:
            raise ClipError(f"'{self.path}' holds no frame that can be read: save or download it again.")


def open_clip(path: str | os.PathLike[str], *, fps: float | None = None) -> Clip:
    """Open a clip, a file or a folder of frames; what is none raises `ClipError`.

    `fps` is how many frames of a folder make a second, 25 where nobody says; a file tells its own times.
    """
    if fps is not None and (isinstance(fps, bool) or not isinstance(fps, int | float) or not 0 < fps <= 1000):
        raise ClipError(f"fps is {fps!r}: give the frames per second, such as 25.", field="fps")
    if not isinstance(path, str | os.PathLike):
        raise ClipError(f"The clip is a {type(path).__name__}: give the path of a file, or of a folder of frames.")
    path = Path(path)
    if path.is_dir():
        return Clip(path, None if fps is None else float(fps), len(_pictures_in(path)))
    with _opened(path) as (container, stream):
        rate = float(stream.average_rate) if stream.average_rate else None
        seconds = (container.duration or 0) / 1e6  # FFmpeg's unit for files
        return Clip(path, rate, stream.frames or round(seconds * (rate or 0)) or None)


def read(path: str | os.PathLike[str], frames: int | None = None) -> Pixels:
    """A clip as one array of RGB bytes, (T, height, width, 3): all of it, or so many frames spread evenly over it.

    All of a long clip does not fit into memory: `for frame in open_clip(path)` goes through it one by one.
    """
    clip = open_clip(path)
    if frames is None:
        return np.stack([frame.pixels for frame in clip])
    return np.stack([frame.pixels for frame in clip.at(spread(clip.count, frames))])


def spread(count: int, frames: int) -> list[int]:
    """The places of so many frames spread evenly over `count`, each in the middle of its share of the clip.

    Of a clip with fewer frames, some come several times.

    >>> spread(90, 3), spread(2, 4)
    ([15, 45, 75], [0, 0, 1, 1])
    """
    if isinstance(frames, bool) or not isinstance(frames, int) or frames < 1:
        raise InputError(f"{frames!r} frames cannot be taken from a clip: give a whole number above 0.", field="frames")
    return [min(int((number + 0.5) * count / frames), count - 1) for number in range(frames)]


def clip_files(paths: Sequence[Path]) -> list[Path]:
    """The clips that paths stand for: a file, a folder of frames, or the clips in a folder and below."""
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise ClipError(f"'{path}' does not exist: check the path.")
        below = sorted(_clips_below(path)) if path.is_dir() else []
        found += below or [path]
    return found


def _clips_below(folder: Path) -> Iterator[Path]:
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES:
                yield Path(where, name)


def _pictures_in(folder: Path) -> list[Path]:
    """The frames of a folder in the order of their numbers: frame-10 comes after frame-9."""
    try:
        files = [file for file in image_files(folder) if file.parent == folder]
    except ImageError:
        files = []
    if not files:
        raise ClipError(
            f"'{folder}' holds neither clips nor frames: give a folder with {', '.join(sorted(PICTURES)[:4])} … files,"
            " or a clip."
        )
    return sorted(files, key=lambda file: [int(part) if part.isdigit() else part for part in _DIGITS.split(file.name)])


_DIGITS = re.compile(r"(\d+)")


def _of_folder(folder: Path, wanted: frozenset[int] | None, rate: float) -> Iterator[Frame | None]:
    size: tuple[int, int] | None = None
    for place, file in enumerate(_pictures_in(folder)):
        if wanted is not None and place not in wanted:
            yield None
            continue
        picture = open_image(file)
        size = size or picture.size
        if picture.size != size:
            raise ClipError(
                f"'{file}' is {picture.width}×{picture.height}, and the frames before it are {size[0]}×{size[1]}:"
                " bring the frames of a clip to one size."
            )
        yield Frame(np.asarray(picture), place / rate)


def _of_file(path: Path, damaged: Told, wanted: frozenset[int] | None) -> Iterator[Frame | None]:
    with _opened(path) as (container, stream):
        clock = _Clock(stream, keeps_times=container.format.name != "avi")  # which has an order, and no times
        size: tuple[int, int] | None = None
        place = -1
        for place, frame in enumerate(_decoded(path, container, stream, damaged)):
            time = clock.time_of(frame)
            if wanted is not None and place not in wanted:
                yield None
                continue
            shape = _Shape.of(frame, stream)
            size = size or shape.size  # it may change within a clip, and the pictures of one must not
            yield Frame(shape.upright(frame, size), time)
        announced = stream.frames
        # Files count one too many often enough; half a clip that is not there was cut off.
        if 0 <= place + 1 < 0.9 * announced - 1:
            damaged(f"'{path}' should hold {announced} frames and ends after {place + 1}: it was cut off.")


def _decoded(path: Path, container: Any, stream: Any, damaged: Told) -> Iterator[Any]:
    """The frames that can be decoded; what is damaged between them is left out and told of once."""
    import av

    lost = ""
    packets = container.demux(stream)
    while True:
        try:
            packet = next(packets, None)
        except (av.error.FFmpegError, OSError) as error:
            lost = lost or _said(error)
            break
        if packet is None:
            break
        try:
            frames = packet.decode()
        except (av.error.FFmpegError, OSError) as error:
            lost = lost or _said(error)
            continue
        for frame in frames:
            lost = lost or ("broken data within a frame" if frame.is_corrupt else "")
            yield frame
    if lost:
        damaged(f"'{path}' is damaged ({lost}): what could be read of it is shown.")


class _Clock:
    """When each frame is shown: as the file says, and after the frame before it in any case."""

    def __init__(self, stream: Any, *, keeps_times: bool) -> None:
        self.step = 1 / float(stream.average_rate or stream.guessed_rate or RATE)
        self.keeps_times = keeps_times
        self.first: float | None = None
        self.last = -self.step

    def time_of(self, frame: Any) -> float:
        said = frame.time if self.keeps_times else None
        if said is not None:
            self.first = said if self.first is None else self.first
        time = self.last + self.step if said is None or self.first is None else said - self.first
        self.last = time if time > self.last else self.last + self.step
        return self.last


class _Shape(NamedTuple):
    """How a decoded frame is brought to what a player shows: its width for square pixels, and how it is turned."""

    width: int
    height: int
    turned: tuple[tuple[int, int], tuple[int, int]]

    @classmethod
    def of(cls, frame: Any, stream: Any) -> _Shape:
        aspect = float(stream.sample_aspect_ratio or 1)
        believed = 1 / WIDEST_PIXEL <= aspect <= WIDEST_PIXEL
        return cls(max(1, round(frame.width * aspect)) if believed else frame.width, frame.height, _turned(frame))

    @property
    def lies(self) -> bool:
        """Whether rows become columns."""
        return self.turned[0][0] == 0

    @property
    def size(self) -> tuple[int, int]:
        """Width and height as shown."""
        return (self.height, self.width) if self.lies else (self.width, self.height)

    def upright(self, frame: Any, size: tuple[int, int]) -> Pixels:
        """The pixels as they are shown, at a width and height; transparency on white."""
        width, height = size[::-1] if self.lies else size
        see_through = any(part.is_alpha for part in frame.format.components) or frame.format.name == "pal8"
        pixels: Pixels = frame.reformat(width, height, format="rgba" if see_through else "rgb24").to_ndarray()
        if see_through:
            alpha = pixels[:, :, 3:].astype(np.float32) / 255
            pixels = np.rint(pixels[:, :, :3] * alpha + 255 * (1 - alpha)).astype(np.uint8)
        # x', y' = a x + c y, b x + d y: transposed where rows become columns, and turned about where that is negative.
        ((a, b), (c, d)) = self.turned
        pixels = pixels.transpose(1, 0, 2) if self.lies else pixels
        across, down = (c, b) if self.lies else (a, d)
        return np.ascontiguousarray(pixels[:: -1 if down < 0 else 1, :: -1 if across < 0 else 1])


def _turned(frame: Any) -> tuple[tuple[int, int], tuple[int, int]]:
    """How a frame is turned or mirrored for showing: the rotation of its display matrix by quarters, as -1, 0 and 1."""
    for data in frame.side_data:
        if data.type.name == "DISPLAYMATRIX":
            matrix = np.frombuffer(bytes(data), np.int32)[[0, 1, 3, 4]].reshape(2, 2)
            straight = np.sign(matrix) * (abs(matrix) > abs(matrix).max() / 2)
            if abs(straight).sum() == 2 and straight.any(axis=0).all() and straight.any(axis=1).all():
                (a, b), (c, d) = straight.tolist()
                return (a, b), (c, d)
    return (1, 0), (0, 1)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, Any]]:
    """A file and its stream of pictures, closed in the end."""
    if not path.exists():
        raise ClipError(f"'{path}' does not exist: check the path.")
    if not path.is_file():  # a pipe or a device would be read without end
        raise ClipError(f"'{path}' is not a regular file: save the clip to disk first.")
    if path.stat().st_size == 0:
        raise ClipError(f"'{path}' is empty (0 bytes): save or download it again.")
    av = import_av()
    try:
        # An absolute path is never taken for an address, whatever the file is called.
        container = av.open(str(path.resolve()), metadata_errors="ignore")
    except PermissionError as error:
        raise ClipError(f"'{path}' may not be read: grant read permission.") from error
    except (av.error.FFmpegError, OSError, ValueError) as error:
        raise ClipError(
            f"'{path}' is no clip that can be read, or was cut off ({_said(error)}): save or download it again."
        ) from error
    with container:
        stream = container.streams.best("video")  # a picture of a record's sleeve is one of the last choice
        if stream is None or stream.codec_context is None:
            raise ClipError(f"'{path}' holds no pictures that can be decoded: give a clip.")
        # Several frames at once would be decoded faster, but where one is damaged its neighbours are lost with it.
        stream.thread_type = "SLICE"
        yield container, stream


def import_av() -> Any:
    """PyAV, which an extra brings."""
    try:
        import av
    except ImportError as error:
        raise ExtraError("Clips need PyAV: pip install av.") from error
    return av


def _said(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error or type(error).__name__)
