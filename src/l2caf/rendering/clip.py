"""The maps of a clip on its frames, as a film or as a strip, from whatever the frames are kept in."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ..clips import RATE, Frame, open_clip
from ..errors import InputError
from ..images import as_photograph, save_picture
from .drawn import Heat
from .film import ENDINGS, filming
from .filmstrip import CONTOURS, MOMENTS, Moment, filmstrip, small
from .overlay import as_rgb

Heats = Callable[[Image.Image | None], Sequence[Heat]]
"""The maps of all frames, placed on a picture of the clip's size; None where there is none."""


def is_clip(frames: Any) -> bool:
    """Whether something holds frames in colour, or the path of a clip, and no volume of numbers."""
    if isinstance(frames, str | os.PathLike):
        return True
    if isinstance(frames, list | tuple):
        return bool(frames)
    return getattr(frames, "ndim", 0) == 4 and 3 in (frames.shape[-1], frames.shape[1])


def save_clip(
    path: Path, frames: Any, heats: Heats, *, count: int, signed: bool, fps: float | None = None, **style: Any
) -> Path:
    """Draw each map on its frame and write a film (.mp4, .gif), or a strip of some moments (any other picture).

    frames   (T, height, width, 3), (T, 3, height, width) or (T, height, width), bytes or 0 to 1; a list of pictures; or
             the path of a clip. None draws the maps alone
    count    how many frames the network saw
    fps      frames per second, where the frames do not tell their times
    """
    rate = RATE if fps is None else fps
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= 1000:
        raise InputError(f"fps is {fps!r}: give the frames per second, such as 25.", field="fps")
    if path.suffix.lower() in ENDINGS:
        with filming(path) as film:
            for heat, frame, time in _placed(frames, heats, count, rate):
                film.add(heat.on(None if frame is None else frame, **style), time)
        return path
    wanted = set(np.linspace(0, count - 1, min(count, MOMENTS)).round().astype(int).tolist())
    moments = [
        _moment(heat, frame, time, style)
        for place, (heat, frame, time) in enumerate(_placed(frames, heats, count, rate))
        if place in wanted
    ]
    return save_picture(filmstrip(moments, signed=signed, cmap=style.get("cmap")), path)


def _moment(heat: Heat, frame: Image.Image | None, time: float, style: dict[str, Any]) -> Moment:
    drawn = heat.on(None if frame is None else small(frame), **{"contours": CONTOURS, **style} if frame else style)
    return Moment(time, drawn if frame is None else small(frame), (drawn,))


def _placed(frames: Any, heats: Heats, count: int, rate: float) -> Iterator[tuple[Heat, Image.Image | None, float]]:
    if frames is None:
        for place, heat in enumerate(heats(None)):
            yield heat, None, place / rate
        return
    laid: Sequence[Heat] = ()
    for place, frame in enumerate(_frames(frames, count, rate)):
        picture = frame.picture
        laid = laid or heats(picture)
        yield laid[place], picture, frame.time


def _frames(frames: Any, count: int, rate: float) -> Iterator[Frame]:
    """Frames with their times, as many as the network saw."""
    if isinstance(frames, str | os.PathLike):
        clip = open_clip(frames)
        _check_count(clip.count, count, of=f"'{clip.path}'")
        yield from clip
        return
    if hasattr(frames, "detach"):
        frames = frames.detach().cpu().numpy()
    if not hasattr(frames, "__len__") or (hasattr(frames, "ndim") and frames.ndim not in (3, 4)):
        got = f"of shape {tuple(frames.shape)}" if hasattr(frames, "shape") else f"a {type(frames).__name__}"
        raise InputError(f"The frames are {got}: give (T, height, width, 3), a list of pictures, or a clip's path.")
    if getattr(frames, "ndim", 0) == 4 and frames.shape[-1] != 3 and frames.shape[1] == 3:
        frames = np.moveaxis(np.asarray(frames), 1, -1)
    _check_count(len(frames), count, of="What was given")
    for place, one in enumerate(frames):
        picture = (
            one if hasattr(one, "__array_interface__") and not isinstance(one, Image.Image) else as_photograph(one)
        )
        yield Frame(np.ascontiguousarray(as_rgb(picture)), place / rate)


def _check_count(given: int, count: int, *, of: str) -> None:
    if given != count:
        raise InputError(
            f"{of} has {given} frame{'s' * (given != 1)}, and the network saw {count}: give those that it saw, such as"
            f" l2caf.clips.read(path, frames={count})."
        )
