"""WAV of every usual kind and .npy become the same samples; what is no signal is refused in one sentence."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from scipy.io import wavfile

from l2caf.errors import InputError
from l2caf.signals import is_signal, read_signal

RATE = 8000


def made(channels: int, length: int = 400) -> np.ndarray:
    time = np.arange(length) / RATE
    return np.stack([0.7 * np.sin(2 * np.pi * 200 * (number + 1) * time) for number in range(channels)])


def write_24_bit(path: Path, samples: np.ndarray) -> None:
    """By hand, from the format's own description: scipy reads 24 bit, but writes none."""
    channels = len(samples)
    whole = np.rint(samples.T * (2**23 - 1)).astype("<i4")
    data = whole.reshape(-1, 1).view(np.uint8)[:, :3].tobytes()
    head = struct.pack("<4sI4s4sIHHIIHH", b"RIFF", 36 + len(data), b"WAVE", b"fmt ", 16, 1, channels, RATE,
                       RATE * channels * 3, channels * 3, 24)  # fmt: skip
    path.write_bytes(head + struct.pack("<4sI", b"data", len(data)) + data)


@pytest.mark.parametrize("channels", [1, 2, 8])
@pytest.mark.parametrize("kind", ["8", "16", "24", "32", "float32", "float64"])
def test_every_kind_of_wav_gives_the_same_samples(kind: str, channels: int, tmp_path: Path) -> None:
    samples, path = made(channels), tmp_path / "tone.wav"
    if kind == "24":
        write_24_bit(path, samples)
    elif kind == "8":
        wavfile.write(path, RATE, np.rint(samples.T * 127 + 128).astype(np.uint8))
    elif kind.startswith("float"):
        wavfile.write(path, RATE, samples.T.astype(kind))
    else:
        wavfile.write(path, RATE, np.rint(samples.T * (2.0 ** (int(kind) - 1) - 1)).astype(f"int{kind}"))
    found = read_signal(path)
    assert found.rate == RATE
    assert found.samples.shape == (channels, 400)
    assert found.samples.dtype == np.float32
    np.testing.assert_allclose(found.samples, samples, atol=0.013 if kind == "8" else 1e-4)
    np.testing.assert_allclose(found.mixed, samples.mean(axis=0, keepdims=True), atol=0.013)


def test_npy_of_one_and_of_several_channels(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", made(1)[0])
    np.save(tmp_path / "many.npy", made(3))
    np.save(tmp_path / "volume.npy", np.zeros((4, 5, 6)))
    assert read_signal(tmp_path / "one.npy", rate=RATE).samples.shape == (1, 400)
    assert read_signal(tmp_path / "one.npy", rate=RATE).rate == RATE
    assert read_signal(tmp_path / "many.npy").samples.shape == (3, 400)
    assert read_signal(tmp_path / "many.npy").rate is None
    assert [is_signal(tmp_path / f"{name}.npy") for name in ("one", "many", "volume")] == [True, True, False]


def test_what_is_no_signal_is_told_in_one_sentence(tmp_path: Path) -> None:
    wavfile.write(tmp_path / "empty.wav", RATE, np.zeros(0, np.int16))
    wavfile.write(tmp_path / "nan.wav", RATE, np.array([0.0, np.nan, 0.0], np.float32))
    (tmp_path / "broken.wav").write_bytes(b"RIFF1234WAVEnothing")
    (tmp_path / "broken.npy").write_bytes(b"nothing")
    (tmp_path / "words.txt").write_text("hello")
    np.save(tmp_path / "zero.npy", np.zeros(0))
    np.save(tmp_path / "inf.npy", np.array([0.0, np.inf]))
    np.save(tmp_path / "turned.npy", np.zeros((400, 2)))
    np.save(tmp_path / "letters.npy", np.array(["a"]))
    for name, words in {
        "none.wav": "There is no file",
        "empty.wav": "length of zero",
        "nan.wav": "NaN or infinity",
        "broken.wav": "cannot be read as a WAV",
        "broken.npy": "cannot be read",
        "words.txt": "is no signal",
        "zero.npy": "length of zero",
        "inf.npy": "NaN or infinity",
        "turned.npy": r"store it as \(channels, samples\)",
        "letters.npy": "a signal is numbers",
    }.items():
        with pytest.raises(InputError, match=words) as caught:
            read_signal(tmp_path / name)
        assert len(str(caught.value).splitlines()) == 1
    np.save(tmp_path / "fine.npy", np.ones(9))
    with pytest.raises(InputError, match="The rate is 0"):
        read_signal(tmp_path / "fine.npy", rate=0)
