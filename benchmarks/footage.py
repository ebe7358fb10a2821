"""What does it cost to explain a clip frame by frame, beside decoding and classifying its frames?"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import torch

import l2caf
from l2caf import Model
from l2caf.clips import Frame, open_clip
from l2caf.methods.attention_filter import prediction
from l2caf.rendering.film import filming
from l2caf.tasks.moments import Asked
from l2caf.tasks.samples import two_objects

from .memory import now_and_peak
from .row import Row

FRAMES, RATE, HEIGHT, WIDTH = 300, 25, 540, 960
BATCH, ROUNDS, EARLY = 4, 3, 100


def rows() -> list[Row]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            return _measured(_clip(Path(folder) / "clip.mp4"))
    finally:
        torch.set_num_threads(threads)


def _clip(path: Path) -> Path:
    """A look that wanders over two photographs, in H.264."""
    wide = two_objects(HEIGHT)
    with filming(path) as film:
        for number in range(FRAMES):
            left = round(number * (wide.width - WIDTH) / (FRAMES - 1))
            film.add(wide.crop((left, 0, left + WIDTH, HEIGHT)), number / RATE)
    return path


def _measured(path: Path) -> list[Row]:
    """Each round with a network of its own, of which nothing is known yet, and then with the same one once more."""
    _classified(l2caf.load("tf_efficientnet_lite0"), path)  # what torch does once belongs to neither side
    cold, warm, grown = [], [], []
    for _ in range(ROUNDS):
        model = l2caf.load("tf_efficientnet_lite0")
        plain = _classified(model, path)
        first, more = _explained(model, path)
        again, _ = _explained(model, path)
        cold.append(first / plain)
        warm.append(again / plain)
        grown.append(more)
    return [
        _row("the first call included", cold, bar=1.12),
        _row("a network that is known", warm, bar=None),
        Row(
            f"memory from the {EARLY}th to the {FRAMES}th frame",
            f"{max(grown) / 1024:+.1f} MB",
            "flat",
            max(grown) < 16 * 1024,
        ),
    ]


def _row(how: str, ratios: list[float], *, bar: float | None) -> Row:
    middle = statistics.median(ratios)
    what = f"{FRAMES} frames of {WIDTH}×{HEIGHT} ÷ decoding and classifying them, {how}"
    span = f"{middle:.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
    return Row(what, span, "" if bar is None else f"≤ {bar}", None if bar is None else middle <= bar)


def _classified(model: Model, path: Path) -> float:
    began = time.process_time()
    for frames in _batches(iter(open_clip(path))):
        ready = [torch.as_tensor(model.ready(frame.picture).input) for frame in frames]
        with torch.inference_mode():
            model.predictions(model.network(torch.stack(ready)))
    return time.process_time() - began


def _explained(model: Model, path: Path) -> tuple[float, int]:
    began, early = time.process_time(), 0
    for number, _ in enumerate(Asked(model, prediction()).moments(open_clip(path)), start=1):
        if number == EARLY:
            early = now_and_peak()[0]
    return time.process_time() - began, now_and_peak()[0] - early


def _batches(frames: Iterator[Frame]) -> Iterator[list[Frame]]:
    while batch := list(islice(frames, BATCH)):
        yield batch
