"""A signal in time: its waveform before the heat, and the heat over its spectrogram, above an axis in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..errors import InputError
from .colors import Cmap, Floats, checked_heat, colors_of
from .figures import FAINT, INK, as_picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH, WAVE, SPECTRUM = 1000, 180, 170  # pixels
COLUMNS = 900  # of a drawing: more are not seen
LEAST = 64  # samples below which there is no spectrogram
DECIBELS = 80.0  # of the spectrogram, below its loudest place


class Strip(NamedTuple):
    """One map of a signal, (m,), and what it is called."""

    title: str
    heat: npt.ArrayLike


def sound_picture(samples: npt.ArrayLike, strips: Sequence[Strip], *, rate: float | None, **style: Any) -> Image.Image:
    """Draw a signal (n,) or (channels, n) with each of its maps; see `sound_figure`.

    >>> signal = np.sin(np.arange(4000) / 9)
    >>> sound_picture(signal, [Strip("", np.linspace(0, 1, 7))], rate=16000).size
    (1000, 350)
    """
    return as_picture(sound_figure(samples, strips, rate=rate, **style))


def sound_figure(
    samples: npt.ArrayLike,
    strips: Sequence[Strip],
    *,
    rate: float | None,
    heading: str = "",
    caption: str = "",
    signed: bool = False,
    cmap: Cmap | None = None,
    alpha: float = 0.6,
) -> Figure:
    """The same as a figure of matplotlib; without a rate the axis counts samples."""
    from matplotlib.figure import Figure

    lines = np.atleast_2d(np.asarray(samples, np.float32))
    if lines.ndim != 2 or lines.size == 0 or not np.isfinite(lines).all():
        raise InputError(
            f"A signal of shape {np.shape(samples)} cannot be drawn; give finite values (n,) or (channels, n)."
        )
    heats = [checked_heat(strip.heat, signed=signed, ndim=1) for strip in strips]
    spectrum = spectrogram(lines.mean(axis=0), rate or 1.0) if lines.shape[1] >= LEAST else None
    each = WAVE + (0 if spectrum is None else SPECTRUM)
    words = 30 * bool(heading) + 26 * bool(caption)
    figure = Figure(figsize=(WIDTH / 100, (each * len(strips) + words) / 100), dpi=100, layout="constrained")
    ratios = ([WAVE] if spectrum is None else [WAVE, SPECTRUM]) * len(strips)
    panels = figure.subplots(len(ratios), 1, sharex=True, squeeze=False, height_ratios=ratios)[:, 0].tolist()
    seconds = lines.shape[1] / (rate or 1.0)
    for strip, heat in zip(strips, heats, strict=True):
        axes = panels.pop(0)
        _wave(axes, lines, heat, seconds, signed=signed, cmap=cmap)
        if strip.title:
            axes.set_title(_plain(strip.title), fontsize=9, loc="left", color=INK)
        if spectrum is not None:
            axes = panels.pop(0)
            _spectrum(axes, spectrum, heat, seconds, signed=signed, cmap=cmap, alpha=alpha)
            axes.set_ylabel("kHz" if rate else "cycles\nper sample", fontsize=8, color=FAINT)
    axes.set_xlabel("seconds" if rate else "samples", fontsize=8, color=FAINT)
    axes.set_xlim(0, seconds)
    if heading:
        figure.suptitle(_plain(heading), fontsize=11, fontweight="bold", x=0.01, ha="left")
    if caption:
        figure.supxlabel(_plain(caption), fontsize=8, color=FAINT, x=0.01, ha="left")
    return figure


class Spectrogram(NamedTuple):
    """Loudness between 0 and 1, (frequencies, columns), and the outer edges of both axes."""

    loudness: Floats
    times: tuple[float, float]
    frequencies: tuple[float, float]


def spectrogram(samples: Floats, rate: float) -> Spectrogram:
    """Windowed spectra of a signal, in decibels below its loudest place; the windows reach half beyond its ends."""
    length = int(2 ** np.clip(np.floor(np.log2(len(samples) / 8)), 4, 10))
    step = max(1, length // 8, -(-len(samples) // COLUMNS))
    padded = np.pad(samples - samples.mean(), length // 2)
    starts = np.arange(0, len(samples), step)
    frames = np.lib.stride_tricks.sliding_window_view(padded, length)[starts]
    power = np.abs(np.fft.rfft(frames * np.hanning(length), axis=1)).T ** 2
    level = 10 * np.log10(np.maximum(power, 1e-20) / max(float(power.max()), 1e-20))
    bins = rate / length / 2
    edges = (starts[0] - step / 2) / rate, (starts[-1] + step / 2) / rate
    return Spectrogram((level / DECIBELS + 1).clip(0, 1).astype(np.float32), edges, (-bins, rate / 2 + bins))


def _wave(axes: Any, lines: Floats, heat: Floats, seconds: float, *, signed: bool, cmap: Cmap | None) -> None:
    """The lines of the channels, one above the other, before a background in the colours of the heat."""
    along = _stretched(heat, COLUMNS)
    fade = 0.75 * np.abs(along)[None, :, None]
    shaded = np.rint(255 * (1 - fade) + colors_of(along, signed=signed, cmap=cmap)[None] * fade).astype(np.uint8)
    extent = (0.0, seconds, 0.0, 1.0)
    axes.imshow(shaded, extent=extent, transform=axes.get_xaxis_transform(), aspect="auto", zorder=0)
    apart = max(float(np.ptp(lines, axis=1).max()), 1e-6) * 1.1
    for number, line in enumerate(lines):
        base = -number * apart
        low, high = _envelope(line - (line.max() + line.min()) / 2 if len(lines) > 1 else line)
        centres = (np.arange(len(low)) + 0.5) / len(low) * seconds
        if len(low) < len(line):
            axes.fill_between(centres, low + base, high + base, color=INK, linewidth=0.4, zorder=1)
        else:
            axes.plot(centres, low + base, color=INK, linewidth=1.0, zorder=1)
    if len(lines) > 1:
        axes.set_yticks([-number * apart for number in range(len(lines))], range(1, len(lines) + 1))
        axes.set_ylabel("channel", fontsize=8, color=FAINT)
    _quiet(axes)


def _spectrum(
    axes: Any, found: Spectrogram, heat: Floats, seconds: float, *, signed: bool, cmap: Cmap | None, alpha: float
) -> None:
    """The spectrogram in grey under the heat, which is the same for all frequencies."""
    unit = 1000.0 if found.frequencies[1] > 2 else 1.0
    low, high = (edge / unit for edge in found.frequencies)
    axes.imshow(
        found.loudness, cmap="gray_r", vmin=0, vmax=1, extent=(*found.times, low, high), aspect="auto", origin="lower"
    )
    along = _stretched(heat, COLUMNS)
    layer = np.dstack([colors_of(along, signed=signed, cmap=cmap)[None] / 255.0, alpha * np.abs(along)[None]])
    axes.imshow(layer, extent=(0.0, seconds, max(low, 0.0), high), aspect="auto", origin="lower", zorder=1)
    axes.set_ylim(0, found.frequencies[1] / unit)
    _quiet(axes)


def _envelope(line: Floats) -> tuple[Floats, Floats]:
    """The least and the greatest sample of each column of a drawing; of a short line, the line itself."""
    if len(line) <= 2 * COLUMNS:
        return line, line
    edges = np.linspace(0, len(line), COLUMNS + 1).astype(int)[:-1]
    return np.minimum.reduceat(line, edges), np.maximum.reduceat(line, edges)


def _stretched(values: Floats, length: int) -> Floats:
    """Heat at `length` points; cells are areas, so their centres lie half a cell inside the ends."""
    centres = (np.arange(len(values)) + 0.5) / len(values)
    return np.interp((np.arange(length) + 0.5) / length, centres, values).astype(np.float32)


def _quiet(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8, colors=FAINT)


def _plain(words: str) -> str:
    return words.replace("$", r"\$")
