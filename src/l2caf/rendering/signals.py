"""Heat over a signal of one axis, and over the slices of a volume."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from ..errors import InputError
from .colors import Cmap, Floats, checked_heat, colors_of, resized
from .figures import as_picture, bare_figure
from .grid import grid
from .overlay import ALPHA, overlay

LEAST = 320  # pixels of a plane's longer side: volumes are coarse, and a screen is not


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


def planes_picture(
    volume: npt.ArrayLike,
    heat: npt.ArrayLike,
    *,
    plane: int | tuple[str, int] | None = None,
    signed: bool = False,
    cmap: Cmap | None = None,
    alpha: float = ALPHA,
    contours: bool | float | Sequence[float] | None = False,
    spacing: Sequence[float] = (1.0, 1.0, 1.0),
    cell_height: int = 320,
) -> Image.Image:
    """Show the three planes of a volume (d, h, w) that go through the hottest place, or the one plane that is named.

    The heat has three axes too, of any sizes. `plane` is a place along the first axis, or an axis and a place on it:
    ("y", 40). `spacing` is how far apart the volume's values are along its axes, in any unit. In three planes thin
    lines show where the other two lie.
    """
    grey, values = _checked_volume(volume, heat, signed=signed)
    steps = _checked_spacing(spacing)
    fine = _as_fine(values, grey.shape)
    options = {"signed": signed, "cmap": cmap, "alpha": alpha, "contours": contours}
    if plane is not None:
        axis, place = _checked_plane(plane, grey.shape)
        return _plane_picture(grey, fine, axis, place, steps, **options)
    peak = np.unravel_index(int(np.abs(fine).argmax()), fine.shape)
    pictures = []
    for axis in range(3):
        drawn = _plane_picture(grey, fine, axis, int(peak[axis]), steps, **options)
        across, down = (other for other in (2, 1, 0) if other != axis)
        x, y = ((peak[other] + 0.5) / grey.shape[other] for other in (across, down))
        pictures.append(_fitted_height(drawn, cell_height, cross=(float(x), float(y))))
    titles = [f"{name} = {place} of {length}" for name, place, length in zip("zyx", peak, grey.shape, strict=True)]
    return grid([pictures], titles=[titles], cell_height=cell_height)


def volume_picture(
    volume: npt.ArrayLike,
    heat: npt.ArrayLike,
    *,
    slices: int = 8,
    signed: bool = False,
    cmap: Cmap | None = None,
    cell_height: int = 160,
) -> Image.Image:
    """Show evenly spaced slices of a volume (d, h, w) along its first axis, each under its own heat.

    The heat has three axes too, of any sizes: slice i of d takes the heat at the same relative depth.
    """
    if slices < 1:
        raise InputError(f"{slices} slices cannot be shown; ask for at least one.")
    grey, values = _checked_volume(volume, heat, signed=signed)
    depth = len(grey)
    chosen = np.unique(np.rint(np.linspace(0, depth - 1, min(slices, depth))).astype(int))
    across = int(np.ceil(np.sqrt(len(chosen) * 1.6)))
    pictures = [overlay(grey[i], _at_depth(values, (i + 0.5) / depth), signed=signed, cmap=cmap) for i in chosen]
    titles = [f"slice {i + 1} of {depth}" for i in chosen]
    starts = range(0, len(chosen), across)
    return grid(
        [pictures[start : start + across] for start in starts],
        titles=[titles[start : start + across] for start in starts],
        cell_height=cell_height,
    )


def _checked_volume(volume: npt.ArrayLike, heat: npt.ArrayLike, *, signed: bool) -> tuple[Floats, Floats]:
    """The volume between 0 and 1, and its heat."""
    grey = np.asarray(volume, dtype=np.float32)
    if grey.ndim != 3 or grey.size == 0 or not np.isfinite(grey).all():
        raise InputError(f"A volume of shape {grey.shape} cannot be drawn; give finite values (d, h, w).")
    low, high = float(grey.min()), float(grey.max())
    return (grey - low) / max(high - low, 1e-12), checked_heat(heat, signed=signed, ndim=3)


def _checked_spacing(spacing: Sequence[float]) -> tuple[float, float, float]:
    if len(spacing) != 3 or not all(np.isfinite(step) and step > 0 for step in spacing):
        raise InputError(f"The spacing is {spacing!r}; give three lengths above 0, for z, y and x.")
    z, y, x = spacing
    return float(z), float(y), float(x)


def _checked_plane(plane: int | tuple[str, int], shape: tuple[int, ...]) -> tuple[int, int]:
    name, place = plane if isinstance(plane, tuple) and len(plane) == 2 else ("z", plane)
    if name not in ("z", "y", "x") or isinstance(place, bool) or not isinstance(place, int | np.integer):
        raise InputError(f"slice={plane!r} names no plane; give a number along z, or such as ('y', 40).", field="slice")
    axis = "zyx".index(name)
    if not -shape[axis] <= place < shape[axis]:
        raise InputError(f"There are {shape[axis]} planes along {name}, so slice must be below that.", field="slice")
    return axis, int(place) % shape[axis]


def _as_fine(values: Floats, shape: tuple[int, ...]) -> Floats:
    """Heat as fine as the volume: smooth in each plane, linear from plane to plane."""
    planes = np.stack([resized(plane, (shape[2], shape[1])) for plane in values])
    return np.stack([_at_depth(planes, (place + 0.5) / shape[0]) for place in range(shape[0])])


def _plane_picture(
    grey: Floats, heat: Floats, axis: int, place: int, spacing: tuple[float, float, float], **options: Any
) -> Image.Image:
    """One plane under its heat, at least so large that a person sees something, in its true proportions."""
    down, across = (other for other in range(3) if other != axis)
    lengths = grey.shape[down] * spacing[down], grey.shape[across] * spacing[across]
    scale = max(1.0 / min(spacing), LEAST / max(lengths))
    size = (max(1, round(lengths[1] * scale)), max(1, round(lengths[0] * scale)))
    under = resized(np.ascontiguousarray(grey.take(place, axis)), size).clip(0, 1)
    return overlay(under, np.ascontiguousarray(heat.take(place, axis)), **options)


def _fitted_height(picture: Image.Image, height: int, *, cross: tuple[float, float]) -> Image.Image:
    """A plane at the height of its cell, with thin lines at a relative place where the other planes cut it."""
    scale = min(height / picture.height, 2 * height / picture.width)
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    drawn = picture.resize(size, Image.Resampling.LANCZOS)
    lines = Image.new("L", size)
    draw = ImageDraw.Draw(lines)
    x, y = int(cross[0] * size[0]), int(cross[1] * size[1])
    free = max(6, min(size) // 12)  # the place itself stays free
    for start, stop in (((0, y), (x - free, y)), ((x + free, y), (size[0], y))):
        if stop[0] > start[0]:
            draw.line((start, stop), fill=110)
    for start, stop in (((x, 0), (x, y - free)), ((x, y + free), (x, size[1]))):
        if stop[1] > start[1]:
            draw.line((start, stop), fill=110)
    drawn.paste("white", mask=lines)
    return drawn


def _stretched(values: Floats, length: int) -> Floats:
    """Heat at `length` points; cells are areas, so their centres lie half a cell inside the ends."""
    centres = (np.arange(len(values)) + 0.5) / len(values)
    points = (np.arange(length) + 0.5) / length
    return np.interp(points, centres, values).astype(np.float32)


def _at_depth(values: Floats, depth: float) -> Floats:
    """The heat between its two nearest slices, at a relative depth from 0 to 1."""
    position = min(max(depth * len(values) - 0.5, 0.0), len(values) - 1.0)
    lower = int(position)
    upper = min(lower + 1, len(values) - 1)
    share = position - lower
    return values[lower] * (1 - share) + values[upper] * share
