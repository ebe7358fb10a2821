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
    """In turn, a few frames of either; each round with a network of its own, of which nothing is known yet."""
    for frames in islice(_batches(iter(open_clip(path))), 2):  # what torch does once belongs to neither side
        _classify(l2caf.load("tf_efficientnet_lite0"), frames)
    cold, warm, grown = [], [], []
    for _ in range(ROUNDS):
        plain, ours, more = _side_by_side(l2caf.load("tf_efficientnet_lite0"), path)
        cold.append(sum(ours) / sum(plain))
        warm.append(statistics.median(own / other for own, other in zip(ours[2:], plain[2:], strict=True)))
        grown.append(more)
    return [
        _row("the first call included", cold, bar=1.12),
        _row("once the network is known", warm, bar=None),
        Row(
            f"peak of memory from the {EARLY}th to the {FRAMES}th frame",
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


def _side_by_side(model: Model, path: Path) -> tuple[list[float], list[float], int]:
    """The CPU time of every few frames, classified and explained, and by how much the peak of memory grew."""
    plain, ours, early, done = [], [], 0, 0
    frames, moments = _batches(iter(open_clip(path))), Asked(model, prediction()).moments(open_clip(path))
    while True:
        began = time.process_time()
        batch = next(frames, [])
        if not batch:
            return plain, ours, now_and_peak()[1] - early
        _classify(model, batch)
        between = time.process_time()
        done += sum(1 for _ in islice(moments, len(batch)))
        plain.append(between - began)
        ours.append(time.process_time() - between)
        if done == EARLY:
            early = now_and_peak()[1]


def _classify(model: Model, frames: list[Frame]) -> None:
    ready = [torch.as_tensor(model.ready(frame.picture).input) for frame in frames]
    with torch.inference_mode():
        model.predictions(model.network(torch.stack(ready)))


def _batches(frames: Iterator[Frame]) -> Iterator[list[Frame]]:
    while batch := list(islice(frames, BATCH)):
        yield batch
