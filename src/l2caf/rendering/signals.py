"""Heat over a signal of one axis."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..errors import InputError
from .colors import Cmap, Floats, checked_heat, colors_of
from .figures import as_picture, bare_figure


def signal_picture(
    signal: npt.ArrayLike,
    heat: npt.ArrayLike,
    *,
    signed: bool = False,
    cmap: Cmap | None = None,
    size: tuple[int, int] = (800, 260),
) -> Image.Image:
    """Draw a signal (n,) or (channels, n) as lines, before a background in the colours of its heat (m,).

    >>> signal_picture(np.sin(np.arange(100) / 9), np.linspace(0, 1, 7), size=(400, 150)).size
    (400, 150)
    """
    lines = np.atleast_2d(np.asarray(signal, dtype=np.float32))
    if lines.ndim != 2 or lines.size == 0 or not np.isfinite(lines).all():
        raise InputError(
            f"A signal of shape {np.shape(signal)} cannot be drawn; give finite values (n,) or (channels, n)."
        )
    values = checked_heat(heat, signed=signed, ndim=1)
    figure, axes = bare_figure(size)
    length = lines.shape[1]
    extent = (-0.5, length - 0.5, 0.0, 1.0)
    # Heat fades into the white of the page, so that the line stays the darkest thing in the picture.
    strip = colors_of(_stretched(values, size[0]), signed=signed, cmap=cmap)[None]
    fade = 0.75 * np.abs(_stretched(values, size[0]))[None, :, None]
    shaded = np.rint(255 * (1 - fade) + strip * fade).astype(np.uint8)
    axes.imshow(shaded, extent=extent, transform=axes.get_xaxis_transform(), aspect="auto", zorder=0)
    for line in lines:
        axes.plot(np.arange(length), line, color="#1a1a1a", linewidth=1.2, zorder=1)
    axes.set_xlim(-0.5, length - 0.5)
    margin = 0.08 * max(float(np.ptp(lines)), 1e-6)
    axes.set_ylim(float(lines.min()) - margin, float(lines.max()) + margin)
    return as_picture(figure)


def _stretched(values: Floats, length: int) -> Floats:
    """Heat at `length` points; cells are areas, so their centres lie half a cell inside the ends."""
    centres = (np.arange(len(values)) + 0.5) / len(values)
    points = (np.arange(length) + 0.5) / length
    return np.interp(points, centres, values).astype(np.float32)
