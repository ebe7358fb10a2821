"""A torchvision `Compose` read as a `Preprocessing`, so that boxes can follow it and pictures of it are sharp.

Resize, CenterCrop and Normalize are looked for by name, of either version of torchvision's transforms; so are the
attributes of the transforms that torchvision ships with its weights. What was read counts only if it gives the same
numbers as the function itself on a trial picture; else the function stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image

from .errors import InputError
from .preprocessing import Preprocess, Preprocessing, as_preprocess

_PASSING = frozenset(
    {"ToTensor", "PILToTensor", "ToImage", "ToDtype", "ConvertImageDtype", "Identity", "RGB"}
    | {"MaybeToTensor", "MaybePILToTensor"}  # timm's
)
GREY_LEVELS = 3  # by which two resizings that differ in rounding may differ; another size or crop differs by dozens


def readable(function: Callable[[Image.Image], Any] | Preprocess) -> Preprocess:
    """The preprocessing that a callable is, followed by boxes where it can be read."""
    known = as_preprocess(function)
    if known is function:
        return known
    read = _read(function)
    return read if read is not None and _agrees(read, function) else known


def _read(function: Any) -> Preprocessing | None:
    steps = _steps(function)
    if steps is None:
        return _of_weights(function)
    by_name = {type(step).__name__: step for step in steps}
    known = _PASSING | {"Resize", "CenterCrop", "Normalize"}
    if len(by_name) < len(steps) or not known >= by_name.keys():
        return None
    resize, crop, normalize = (by_name.get(name) for name in ("Resize", "CenterCrop", "Normalize"))
    if resize is None:
        return None
    size = _numbers(resize.size)
    stretched = len(size) == 2
    if crop is None and not stretched:  # of a photograph's own shape
        return None
    return _made(
        resized=(size[0], size[-1]),
        cut=_pair(crop.size) if crop is not None else (size[0], size[-1]),
        mean=getattr(normalize, "mean", (0.0, 0.0, 0.0)),
        std=getattr(normalize, "std", (1.0, 1.0, 1.0)),
        interpolation=getattr(resize, "interpolation", "bilinear"),
        stretched=stretched,
    )


def _steps(function: Any) -> list[Any] | None:
    """What a Compose does, one after the other, those inside of it included; None where it is none."""
    own = getattr(function, "transforms", None)
    if not isinstance(own, list | tuple):
        return None
    return [step for one in own for step in (_steps(one) or [one])]


def _of_weights(function: Any) -> Preprocessing | None:
    """What `weights.transforms()` of torchvision is."""
    wanted = ("resize_size", "crop_size", "mean", "std", "interpolation")
    if not all(hasattr(function, name) for name in wanted):
        return None
    size = _numbers(function.resize_size)
    return _made(
        resized=(size[0], size[-1]),
        cut=_pair(function.crop_size),
        mean=function.mean,
        std=function.std,
        interpolation=function.interpolation,
        stretched=len(size) == 2,
    )


def _made(
    *, resized: tuple[int, int], cut: tuple[int, int], mean: Any, std: Any, interpolation: Any, stretched: bool
) -> Preprocessing | None:
    try:
        return Preprocessing(
            input_size=cut,
            resize_size=resized,
            mean=tuple(map(float, mean)),
            std=tuple(map(float, std)),
            interpolation=str(getattr(interpolation, "value", interpolation)),
            fit="squash" if stretched else "crop",
        )
    except (InputError, TypeError, ValueError):
        return None


def _numbers(size: Any) -> tuple[int, ...]:
    return (size,) if isinstance(size, int) else tuple(size)


def _pair(size: Any) -> tuple[int, int]:
    numbers = _numbers(size)
    return numbers[0], numbers[-1]


def _agrees(read: Preprocessing, function: Callable[[Image.Image], Any]) -> bool:
    """Whether both give the same numbers for a trial picture that is neither square nor symmetric."""
    ramp = np.linspace(0, 255, 301)[:, None, None] * np.linspace(0.2, 1, 427)[None, :, None] * [1.0, 0.7, 0.4]
    trial = Image.fromarray(ramp.astype(np.uint8))
    try:
        theirs = np.asarray(function(trial), np.float32)
    except Exception:  # noqa: BLE001 - the user's function may fail in any way, and says so when it is used
        return False
    ours = read.normalised(read.view(trial))
    slack = GREY_LEVELS / 255 / np.array(read.std)[:, None, None]
    return ours.shape == theirs.shape and bool((np.abs(ours - theirs) <= slack).all())
