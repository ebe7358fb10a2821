"""Signals in files: WAV of any usual kind, and `.npy`; samples as floats (channels, n), and how many make a second."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import InputError, first_line

ENDINGS = (".wav", ".npy")
MOST_CHANNELS = 64  # of an .npy: what has more of them than samples is stored the other way round


@dataclass(frozen=True, eq=False)
class Signal:
    """`samples` (channels, n), those of a WAV between -1 and 1; `rate` per second, None where it is not known."""

    samples: npt.NDArray[np.float32]
    rate: float | None = None

    @property
    def mixed(self) -> npt.NDArray[np.float32]:
        """The mean of the channels, (1, n)."""
        return self.samples.mean(axis=0, keepdims=True, dtype=np.float32)


def is_signal(path: Path) -> bool:
    """Whether a file holds a signal: a WAV, or an .npy of one or two axes.

    >>> is_signal(Path("tone.wav")), is_signal(Path("photo.jpg"))
    (True, False)
    """
    if path.suffix.lower() == ".npy" and path.is_file():
        try:
            return np.load(path, mmap_mode="r").ndim <= 2
        except (OSError, ValueError):
            return False
    return path.suffix.lower() == ".wav"


def read_signal(path: str | Path, *, rate: float | None = None) -> Signal:
    """Read a WAV (8, 16, 24, 32 or 64 bit, whole numbers or floats, any number of channels) or an .npy, (n,) or
    (channels, n); `rate` is for the latter, which does not tell."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"There is no file '{path}': give the path of a .wav or .npy signal.")
    if path.suffix.lower() not in ENDINGS:
        raise InputError(f"'{path}' is no signal: give a file that ends in {' or '.join(ENDINGS)}.")
    if rate is not None and not 0 < rate < float("inf"):
        raise InputError(f"The rate is {rate!r}: give the samples per second, such as 16000.", field="rate")
    values, own = _wav(path) if path.suffix.lower() == ".wav" else (_npy(path), rate)
    if values.size == 0:
        raise InputError(f"'{path}' has a length of zero: give a signal with samples.")
    samples = np.ascontiguousarray(values, np.float32)
    if not np.isfinite(samples).all():
        raise InputError(f"'{path}' holds NaN or infinity: give finite samples.")
    return Signal(samples, own)


def _wav(path: Path) -> tuple[npt.NDArray[Any], float]:
    from scipy.io import wavfile

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", wavfile.WavFileWarning)  # chunks of tags, which nobody needs here
            rate, values = wavfile.read(path)
    except Exception as error:  # damaged files fail in any way
        raise InputError(f"'{path}' cannot be read as a WAV ({first_line(error)}): write it again as PCM.") from error
    if rate <= 0:
        raise InputError(f"'{path}' has a rate of {rate} samples per second: write it again with its own.")
    if values.dtype.kind == "u":  # 8 bit, with silence at 128
        values = (values.astype(np.float32) - 128) / 128
    elif values.dtype.kind == "i":  # those of 24 bit stand in the upper part of 32
        values = values / -float(np.iinfo(values.dtype).min)
    return np.atleast_2d(values.T), float(rate)


def _npy(path: Path) -> npt.NDArray[Any]:
    try:
        values = np.load(path)
    except Exception as error:  # damaged files fail in any way
        raise InputError(f"'{path}' cannot be read ({first_line(error)}): write it again with numpy.save.") from error
    if values.ndim not in (1, 2) or values.dtype.kind not in "fiu":
        raise InputError(
            f"'{path}' holds {values.dtype} of shape {values.shape}: a signal is numbers, (samples,) or (channels,"
            " samples)."
        )
    if values.ndim == 2 and values.shape[0] > max(MOST_CHANNELS, values.shape[1]):
        raise InputError(
            f"'{path}' has {values.shape[0]} channels of {values.shape[1]} samples: store it as (channels, samples)."
        )
    return np.atleast_2d(values)
