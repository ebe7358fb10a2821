"""One picture under its heat."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..errors import InputError
from ..images import as_photograph
from .colors import Bytes, Cmap, Floats, checked_heat, colors_of, resized
from .marks import Box, draw_boxes, draw_contours

ALPHA = 0.65  # at the hottest spot what lies under it can still be told
Picture = Image.Image | npt.NDArray[np.uint8] | npt.NDArray[np.floating]


def overlay(
    image: Picture,
    heat: npt.ArrayLike,
    *,
    signed: bool = False,
    cmap: Cmap | None = None,
    alpha: float = ALPHA,
    contours: bool | float | Sequence[float] | None = False,
    boxes: Iterable[Box | Sequence[float]] = (),
    seen: tuple[int, int, int, int] | None = None,
) -> Image.Image:
    """Lay heat (h, w) over an image of any size; the picture has the size of the image.

    ``picture = (1 - a) image + a colour(heat)`` with ``a = alpha · ramp(|heat|)``, and ramp(0) = 0: where
    there is no heat the image is untouched. Heat lies in [0, 1]; with `signed` in [-1, 1], what speaks for in
    warm and what speaks against in cool colours, over the image in grey, because a warm colour says nothing
    on a red cup. `cmap` names a colour map of matplotlib. `contours` draws the outlines at these levels (True: at
    0.5); `boxes` are x0, y0, x1, y1, half-open, in pixels of the image, or `Box` to name a colour. `seen` is such a box
    too: what lies outside of it was not shown to the network, and is drawn pale.

    >>> overlay(np.zeros((32, 48), np.uint8), np.eye(7)).size
    (48, 32)
    """
    check_alpha(alpha)
    under = as_rgb(image)
    if signed:
        under = as_rgb(Image.fromarray(under).convert("L"))
    values = checked_heat(heat, signed=signed)
    values = resized(values, (under.shape[1], under.shape[0]))
    picture = Image.fromarray(_blend(under, values, signed=signed, cmap=cmap, alpha=alpha))
    if seen is not None:
        picture = _pale_outside(picture, seen)
    picture = draw_contours(picture, np.abs(values), contour_levels(contours))
    return draw_boxes(picture, boxes)


def colorize(
    heat: npt.ArrayLike,
    *,
    signed: bool = False,
    cmap: Cmap | None = None,
    size: tuple[int, int] | None = None,
) -> Image.Image:
    """Heat (h, w) as plain colours, at its own size or at `size` (width, height).

    >>> colorize([[0.0, 1.0]], cmap="gray").getpixel((1, 0))
    (255, 255, 255)
    """
    values = checked_heat(heat, signed=signed)
    if size is not None:
        values = resized(values, size)
    if signed and cmap is None:  # two colours that fade into white, since neither of them stands for 0
        white = np.full((*values.shape, 3), 255, np.uint8)
        return Image.fromarray(_blend(white, values, signed=True, cmap=None, alpha=1))
    return Image.fromarray(colors_of(values, signed=signed, cmap=cmap))


def as_rgb(image: Picture) -> Bytes:
    """Any image as bytes (h, w, 3): Pillow, or an array (h, w[, 3 or 4]) of uint8 or of float in [0, 1]."""
    if isinstance(image, Image.Image):
        return np.asarray(as_photograph(image))
    pixels: npt.NDArray[Any] = np.asarray(image)
    drawable = pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] in (1, 3, 4))
    if not drawable or pixels.size == 0:
        raise InputError(
            f"An image of shape {pixels.shape} cannot be drawn; give (height, width) or (height, width, 3)."
        )
    if pixels.dtype.kind == "f":
        if not (np.isfinite(pixels).all() and pixels.min() >= -1e-4 and pixels.max() <= 1 + 1e-4):
            raise InputError("A float image must lie in [0, 1]; undo its normalisation or give the original.")
        pixels = np.rint(pixels.clip(0, 1) * 255).astype(np.uint8)
    elif pixels.dtype != np.uint8:
        raise InputError(f"An image of {pixels.dtype} cannot be drawn; give uint8, or float in [0, 1].")
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    return np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels[:, :, :3]


def _blend(under: Bytes, heat: Floats, *, signed: bool, cmap: Cmap | None, alpha: float) -> Bytes:
    hides = alpha * ramp(np.abs(heat))[:, :, None]
    colours = colors_of(heat, signed=signed, cmap=cmap)
    mixed = under * (1 - hides) + colours * hides
    return np.rint(mixed).clip(0, 255).astype(np.uint8)


def check_alpha(alpha: float) -> None:
    """Refuse an opacity that is none."""
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0 <= alpha <= 1:
        raise InputError(f"The alpha is {alpha!r}; choose one from 0 (image only) to 1 (heat hides it).", field="alpha")


def _pale_outside(picture: Image.Image, seen: tuple[int, int, int, int]) -> Image.Image:
    pale = Image.blend(picture.convert("L").convert("RGB"), Image.new("RGB", picture.size, "white"), 0.45)
    pale.paste(picture.crop(seen), seen[:2])
    return pale


def ramp(heat: Floats) -> Floats:
    """How much of the alpha a heat gets: nothing at 0, most of it from the middle on."""
    return 1 - (1 - heat) ** 2


def contour_levels(contours: bool | float | Sequence[float] | None) -> tuple[float, ...]:
    """The levels at which outlines are drawn.

    >>> contour_levels(True), contour_levels(0.3), contour_levels(None)
    ((0.5,), (0.3,), ())
    """
    if contours is None or isinstance(contours, bool):
        return (0.5,) if contours else ()
    try:
        levels = tuple(float(level) for level in np.atleast_1d(contours))
    except (TypeError, ValueError) as error:
        raise InputError(
            f"contours is {contours!r}: give True, or levels between 0 and 1.", field="contours"
        ) from error
    if any(not 0 < level < 1 for level in levels):
        raise InputError(f"Contours were asked for at {levels}; choose levels between 0 and 1.", field="contours")
    return levels
