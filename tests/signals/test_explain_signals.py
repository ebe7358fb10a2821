"""From a sound file to a picture with one command; the second that decides is where the map is hot."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import wavfile
from torch import nn

import l2caf
from l2caf.cli.app import run
from l2caf.rendering.sound import Strip, sound_picture, spectrogram

RATE, SECONDS = 400, 8
NETS = """
import torch
from torch import nn

class Flat(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = build()
    def forward(self, x):
        if x.ndim != 2:
            raise ValueError("(batch, samples) is wanted")
        return self.inner(x[:, None])

def build(channels=1):
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv1d(channels, 8, 16, stride=8), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(),
                         nn.Linear(8, 3))

def flat():
    return Flat()

def stereo():
    return build(2)

def prepared():
    return build(), lambda image: torch.zeros(3, 8, 8)
"""


def drawn(generator: torch.Generator, count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Noise with a tone of one second somewhere, high or low: the signals, which tone, and in which second."""
    time = torch.arange(RATE) / RATE
    signals = 0.3 * torch.randn(count, 1, RATE * SECONDS, generator=generator)
    labels = torch.randint(2, (count,), generator=generator)
    places = torch.randint(SECONDS, (count,), generator=generator)
    for signal, label, place in zip(signals, labels.tolist(), places.tolist(), strict=True):
        signal[0, place * RATE : (place + 1) * RATE] += torch.sin(2 * torch.pi * (100 if label else 30) * time)
    return signals, labels, places


@pytest.fixture(scope="module")
def trained() -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv1d(1, 16, 33, stride=4), nn.ReLU(), nn.Conv1d(16, 16, 9, stride=4), nn.ReLU(), nn.AdaptiveAvgPool1d(1),
        nn.Flatten(), nn.Linear(16, 2),
    )  # fmt: skip
    optimizer = torch.optim.Adam(network.parameters(), lr=5e-3)
    for _ in range(60):
        signals, labels, _ = drawn(generator, 32)
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(signals), labels).backward()
        optimizer.step()
    return network.eval()


@pytest.mark.parametrize("objective", [None, l2caf.Prediction(), "class"])
def test_the_second_that_decides_is_the_peak(trained: nn.Module, objective: object) -> None:
    signals, labels, places = drawn(torch.Generator().manual_seed(7), 100)
    with torch.no_grad():
        assert (trained(signals).argmax(dim=1) == labels).float().mean() > 0.97
    asked = l2caf.ClassSpecific(labels=labels) if objective == "class" else objective
    heatmap = l2caf.explain(trained, signals, objective=asked)  # type: ignore[call-overload]
    assert heatmap.size == (RATE * SECONDS,)
    peaks = heatmap.maps.argmax(dim=1) // RATE
    assert int((peaks == places).sum()) >= 95


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "nets.py").write_text(NETS)
    rng = np.random.default_rng(0)
    wavfile.write(tmp_path / "tone.wav", 8000, (3000 * rng.normal(size=4000)).astype(np.int16))
    wavfile.write(tmp_path / "stereo.wav", 8000, rng.normal(size=(4000, 2)).astype(np.float32))
    np.save(tmp_path / "tone.npy", rng.normal(size=4000))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("file", "build", "said"),
    [
        ("tone.wav", "build", None),
        ("tone.wav", "flat", None),
        ("tone.npy", "build", None),
        ("stereo.wav", "stereo", None),
        ("stereo.wav", "build", "the 2 channels are given as their mean"),
        ("stereo.wav", "flat", "the 2 channels are given as their mean"),
    ],
)
def test_one_command_from_file_to_picture(
    folder: Path, file: str, build: str, said: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["explain", file, "--network", f"nets.py:{build}", "--out", "maps", "--npy", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (found,) = document["images"]
    assert found["maps"][0]["outcome"] == "exact"
    assert ("mean" in document["assumed"]["preprocessing"]) == (said is not None)
    assert said is None or said in document["assumed"]["preprocessing"]
    assert np.load(found["npy"]).shape == (4000,)
    with Image.open(found["pictures"][0]) as picture:
        assert picture.width == 1000
        assert picture.height > 350
        assert len(set(np.asarray(picture.convert("RGB")).reshape(-1, 3)[:, 0].tolist())) > 50


def test_classes_figures_and_several_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "tone.wav", "-n", "nets.py:build", "--top", "2", "--signed", "--out", "where.pdf"]) == 0
    assert (folder / "where.pdf").read_bytes().startswith(b"%PDF")
    assert run(["explain", "tone.wav", "tone.npy", "-n", "nets.py:build", "--rate", "8000", "--method", "gradcam"]) == 0
    assert "2 signals explained" in capsys.readouterr().out


def test_what_goes_wrong_is_one_sentence(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wavfile.write(folder / "empty.wav", 8000, np.zeros(0, np.int16))
    wavfile.write(folder / "nan.wav", 8000, np.full(400, np.nan, np.float32))
    wavfile.write(folder / "short.wav", 8000, np.zeros(4, np.int16))
    (folder / "photo.jpg").write_bytes(b"")
    for words, network, expected in (
        (["empty.wav"], "nets.py:build", "length of zero"),
        (["nan.wav"], "nets.py:build", "NaN or infinity"),
        (["short.wav"], "nets.py:build", "1 channel of 4 samples"),
        (["none.wav"], "nets.py:build", "There is no file"),
        (["tone.wav", "photo.jpg"], "nets.py:build", "Signals and photographs are given together"),
        (["tone.wav"], "nets.py:prepared", "prepares photographs, and 'tone.wav' is a signal"),
        (["tone.wav", "--class", "9"], "nets.py:build", "Class 9 is out of range"),
        (["tone.npy", "--rate", "-1"], "nets.py:build", "The rate is -1"),
        (["tone.wav", "tone.npy", "--out", "one.png"], "nets.py:build", "names one picture"),
    ):
        assert run(["explain", *words, "--network", network]) == 2
        told = " ".join(capsys.readouterr().err.split())
        assert expected in told
        assert "Traceback" not in told
    assert run(["explain", "tone.wav", "empty.wav", "--network", "nets.py:build"]) == 1


def test_silence_has_no_map_and_is_drawn_all_the_same(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wavfile.write(folder / "silence.wav", 8000, np.zeros(4000, np.int16))
    assert run(["explain", "silence.wav", "--network", "nets.py:build", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["images"]
    assert found["maps"][0]["outcome"] in ("uniform", "unmoved")
    assert Path(found["pictures"][0]).exists()


def test_the_heat_lies_at_its_second_in_both_drawings() -> None:
    time = np.arange(4 * RATE) / RATE
    heat = np.zeros(16)
    heat[8:12] = 1  # the third of four seconds
    picture = np.asarray(sound_picture(np.sin(300 * time), [Strip("", heat)], rate=RATE), float)
    colourful = np.ptp(picture, axis=2) > 40
    for half in (colourful[:170], colourful[180:320]):
        columns = np.flatnonzero(half.sum(axis=0) > 20)
        assert 0.5 < columns.mean() / picture.shape[1] < 0.8
        assert np.ptp(columns) < 0.35 * picture.shape[1]


def test_a_tone_stands_at_its_frequency_in_the_spectrogram() -> None:
    found = spectrogram(np.sin(2 * np.pi * 1000 * np.arange(8000) / 8000).astype(np.float32), 8000)
    low, high = found.frequencies
    row = int(found.loudness.mean(axis=1).argmax())
    assert low + (row + 0.5) * (high - low) / len(found.loudness) == pytest.approx(1000, abs=10)


def test_a_heatmap_is_drawn_in_seconds(tmp_path: Path) -> None:
    heatmap = l2caf.Heatmap(torch.rand(1, 9), (4000,), "layer", "method")
    path = heatmap.save(tmp_path / "where.png", np.sin(np.arange(4000) / 9), rate=8000)
    with Image.open(path) as picture:
        assert picture.size == (1000, 350)
