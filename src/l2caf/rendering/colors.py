"""Heat values to colours, and the checks that every picture of heat begins with."""

from __future__ import annotations

from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..errors import InputError

if TYPE_CHECKING:
    from matplotlib.colors import Colormap

Cmap: TypeAlias = "str | Colormap"
Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

UNSIGNED = "turbo"
AGAINST = ((16, 44, 255), (40, 200, 255))
FOR = ((255, 170, 0), (255, 0, 20))
"""The two colours of signed heat, each from its outer to its inner end or back: -1, -0, +0, 1."""


def checked_heat(heat: npt.ArrayLike, *, signed: bool, ndim: int = 2) -> Floats:
    """Heat as float32, or one sentence on why it is none: its shape, NaN, or values out of range."""
    values = np.asarray(heat, dtype=np.float32)
    if values.ndim != ndim or values.size == 0:
        raise InputError(
            f"The heat has shape {values.shape}, but a picture needs {ndim} axes, none of them empty; "
            "give the map of one sample and one class."
        )
    if not np.isfinite(values).all():
        raise InputError("The heat holds NaN or infinite values; look at the outcome of its solution first.")
    lowest, highest = float(values.min()), float(values.max())
    tolerance = 1e-4  # resizing in float32 overshoots by a little, and that is no fault
    if highest > 1 + tolerance or lowest < -1 - tolerance:
        raise InputError(
            f"The heat runs from {lowest:.3g} to {highest:.3g}; divide it by its greatest magnitude first."
        )
    if lowest < -tolerance and not signed:
        raise InputError(f"The heat goes down to {lowest:.3g}; pass signed=True, or keep its positive part only.")
    return values.clip(-1 if signed else 0, 1)


def colors_of(heat: Floats, *, signed: bool, cmap: Cmap | None = None) -> Bytes:
    """Colours (..., 3) of checked heat; signed heat has 0 in the middle of the colour map."""
    table = _two_colors() if signed and cmap is None else _table(UNSIGNED if cmap is None else cmap)
    position = (heat + 1) / 2 if signed else heat
    # Rounded to the nearest of 256 entries while still float: a cast alone would wrap at 256.
    return table[np.rint(position * 255).clip(0, 255).astype(np.intp)]


def resized(heat: Floats, size: tuple[int, int]) -> Floats:
    """Heat brought smoothly to `size` (width, height), never beyond its own extremes."""
    if (heat.shape[1], heat.shape[0]) == size:
        return heat
    smooth = Image.fromarray(heat, mode=None).resize(size, Image.Resampling.BICUBIC)
    return np.asarray(smooth, dtype=np.float32).clip(heat.min(), heat.max())


def _two_colors() -> Bytes:
    halves = [np.linspace(start, end, 128) for start, end in (AGAINST, FOR)]
    return np.rint(np.concatenate(halves)).astype(np.uint8)


def _table(cmap: Cmap) -> Bytes:
    if isinstance(cmap, str):
        return _named(cmap)
    from matplotlib.colors import Colormap

    if not isinstance(cmap, Colormap):
        raise InputError(
            f"cmap is a {type(cmap).__name__}; give a colour map of matplotlib, or its name, such as 'viridis'.",
            field="cmap",
        )
    if cmap.name == UNSIGNED:  # plt.get_cmap("turbo") is the same as "turbo"
        return _named(UNSIGNED)
    own: Bytes = cmap(np.linspace(0, 1, 256), bytes=True)[:, :3]
    return own


@lru_cache(maxsize=16)
def _named(name: str) -> Bytes:
    import matplotlib

    if name not in matplotlib.colormaps:
        near = get_close_matches(name, list(matplotlib.colormaps), n=3) or ["turbo", "viridis", "inferno"]
        raise InputError(f"There is no colour map '{name}'; try {', '.join(near)}.", field="cmap")
    # turbo ends in a dark red that hides what lies under the hottest spot, so its last bit stays unused.
    end = 0.92 if name == "turbo" else 1.0
    table: Bytes = matplotlib.colormaps[name](np.linspace(0, end, 256), bytes=True)[:, :3]
    return table
