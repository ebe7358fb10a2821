"""Moving pictures: frames as a GIF that does not flicker, and the descent of a loss beside them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..errors import InputError
from ..files import write_whole
from .figures import as_picture, bare_figure
from .grid import FAINT


def save_gif(
    frames: Sequence[Image.Image],
    path: str | os.PathLike[str],
    *,
    milliseconds: int = 80,
    hold: int = 1500,
    loop: int = 0,
) -> Path:
    """Write frames of one size as a GIF, whole or not at all.

    All frames share one palette and one fixed dither pattern: what does not move in the film does not
    change in the file either. The last frame stays for `hold` milliseconds; `loop` 0 repeats for ever.
    """
    path = Path(path)
    if not frames:
        raise InputError("There are no frames to animate; give at least one.")
    sizes = {frame.size for frame in frames}
    if len(sizes) > 1:
        raise InputError(f"The frames have {len(sizes)} different sizes; bring them to one first.")
    if milliseconds < 20 or hold < 20 or loop < 0:
        raise InputError("A GIF shows a frame for 20 milliseconds or longer, and loop is 0 or more.")
    coloured = [frame.convert("RGB") for frame in frames]
    palette = shared_palette(coloured)
    patterned = [dithered(frame, palette) for frame in coloured]
    durations = [milliseconds] * (len(frames) - 1) + [hold]
    with write_whole(path) as temporary:
        patterned[0].save(
            temporary,
            format="GIF",
            save_all=True,
            append_images=patterned[1:],
            duration=durations,
            loop=loop,
            optimize=False,
        )
    return path


def convergence_frames(
    pictures: Sequence[Image.Image],
    losses: npt.ArrayLike,
    *,
    steps: Sequence[int],
    title: str = "loss",
) -> list[Image.Image]:
    """Set each picture beside the loss curve up to its step: picture k shows the state after `steps[k]`.

    `losses` has one value per step, starting with step 0.
    """
    curve = np.asarray(losses, dtype=np.float64)
    if curve.ndim != 1 or curve.size == 0 or not np.isfinite(curve).all():
        raise InputError(f"Losses of shape {curve.shape} cannot be drawn; give one finite value per step.")
    if len(steps) != len(pictures) or any(not 0 <= step < len(curve) for step in steps):
        raise InputError(
            f"{len(pictures)} pictures need as many steps, each from 0 to {len(curve) - 1}; count them again."
        )
    curves = _growing_curves(pictures, curve, steps, title)
    return [_beside(picture, beside) for picture, beside in zip(pictures, curves, strict=True)]


def _growing_curves(
    pictures: Sequence[Image.Image], losses: npt.NDArray[np.float64], steps: Sequence[int], title: str
) -> list[Image.Image]:
    if not pictures:
        return []
    height = max(160, pictures[0].height)
    figure, axes = bare_figure((round(min(height, 420) * 1.25), height))
    axes.set_title(title, fontsize=10, color="#1a1a1a")
    axes.set_xlabel("step", fontsize=9, color=FAINT)
    if losses.min() > 0 and losses.max() > 30 * losses.min():
        axes.set_yscale("log")
    axes.plot(losses, color="#d5d8dc", linewidth=1.5)  # where it will go, so that the axes stand still
    (line,) = axes.plot([], [], color="#d62728", linewidth=2)
    (dot,) = axes.plot([], [], "o", color="#d62728", markersize=6)
    curves = []
    for step in steps:
        line.set_data(np.arange(step + 1), losses[: step + 1])
        dot.set_data([step], [losses[step]])
        curves.append(as_picture(figure))
        figure.set_layout_engine("none")  # the first frame settled it; the axes must not move after that
    return curves


def _beside(picture: Image.Image, curve: Image.Image) -> Image.Image:
    frame = Image.new("RGB", (picture.width + curve.width, max(picture.height, curve.height)), "white")
    frame.paste(picture, (0, (frame.height - picture.height) // 2))
    frame.paste(curve, (picture.width, 0))
    return frame


def shared_palette(frames: Sequence[Image.Image]) -> Image.Image:
    """256 colours chosen over the whole film, from at most 16 frames spread over it, made small."""
    picked = np.unique(np.rint(np.linspace(0, len(frames) - 1, min(16, len(frames)))).astype(int))
    size = tuple(max(1, side * 160 // max(frames[0].size)) for side in frames[0].size)
    strip = Image.new("RGB", (size[0] * len(picked), size[1]))
    for number, index in enumerate(picked):
        strip.paste(frames[index].resize((size[0], size[1])), (number * size[0], 0))
    chosen = strip.quantize(254, method=Image.Quantize.MEDIANCUT, kmeans=2).getpalette() or []
    palette = Image.new("P", (1, 1))
    palette.putpalette([0, 0, 0, 255, 255, 255, *chosen[: 3 * 254]])  # clean ink and paper, whatever comes
    return palette


def dithered(frame: Image.Image, palette: Image.Image) -> Image.Image:
    """Quantise after adding a fixed pattern: error diffusion would make still parts shimmer."""
    pixels = np.asarray(frame, dtype=np.float32)
    rows, columns = (np.resize(np.arange(8), side) for side in pixels.shape[:2])
    pattern = 8 * _BAYER[rows[:, None], columns[None, :]][:, :, None]
    shifted = Image.fromarray(np.rint(pixels + pattern).clip(0, 255).astype(np.uint8))
    quantised = shifted.quantize(palette=palette, dither=Image.Dither.NONE)
    for index, level in enumerate((0, 255)):  # Pillow's search for the nearest colour is only roughly right
        mask = Image.fromarray((pixels == level).all(axis=2))
        quantised.paste(index, (0, 0, *frame.size), mask)
    return quantised


def _bayer(order: int) -> npt.NDArray[np.float32]:
    """The ordered-dither matrix of 2^order rows, with values spread evenly over (-0.5, 0.5)."""
    matrix = np.zeros((1, 1))
    for _ in range(order):
        matrix = np.block([[4 * matrix, 4 * matrix + 2], [4 * matrix + 3, 4 * matrix + 1]])
    return ((matrix + 0.5) / matrix.size - 0.5).astype(np.float32)


_BAYER = _bayer(3)
