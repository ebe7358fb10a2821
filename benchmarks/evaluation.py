"""What does it cost to evaluate several methods, beside only decoding and classifying, and does memory stay flat?"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn

from l2caf import datasets
from l2caf.datasets.dataset import Dataset, Sample
from l2caf.datasets.loading import batches
from l2caf.evaluation.localization import Localization
from l2caf.evaluation.measurements import THRESHOLDS
from l2caf.networks.catalogue import load
from l2caf.networks.model import Model
from l2caf.preprocessing import Preprocessing
from l2caf.runs.executor import run

from .memory import now_and_peak
from .row import Row, side_by_side
from .subjects import photographs

METHODS = ("cam", "gradcam", "l2caf", "l2caf-class")
IMAGES = 96


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        return [_cost(_made(root / "large", size=(500, 375), count=IMAGES)), _memory(root)]


def _made(root: Path, *, size: tuple[int, int], count: int) -> Dataset:
    """Random cuts of the photographs as JPEG files, each with a box."""
    root.mkdir()
    generator = np.random.default_rng(0)
    pictures = [picture.resize((size[0] * 3 // 2, size[1] * 3 // 2)) for picture in photographs().values()]
    lines = ["file,label,x0,y0,x1,y1"]
    for number in range(count):
        x, y = (int(generator.integers(0, length // 2)) for length in size)
        cut = pictures[number % len(pictures)].crop((x, y, x + size[0], y + size[1]))
        cut.save(root / f"{number}.jpg", quality=90)
        lines.append(
            f"{number}.jpg,{number % 1000},{size[0] // 4},{size[1] // 4},{size[0] * 3 // 4},{size[1] * 3 // 4}"
        )
    (root / "boxes.csv").write_text("\n".join(lines) + "\n")
    return datasets.read("manifest", root / "boxes.csv")


def _cost(dataset: Dataset) -> Row:
    model = load()
    built = Localization(METHODS).on(model)

    def classify() -> None:
        for batch in batches(dataset.samples, built.view, 16):
            with torch.inference_mode():
                model.network(model.batch(batch.inputs)).topk(5)

    def measure() -> None:
        for batch in batches(dataset.samples, built.view, 16):
            built.rows(batch)

    times = side_by_side({"classify": classify, "measure": measure}, rounds=7, warm_up=1)
    ratio = times.ratio("measure", "classify")
    return Row(
        f"{', '.join(METHODS)} together, sweep of {len(THRESHOLDS)} thresholds ÷ decoding and classifying",
        f"{ratio:.2f} ({times.spread('measure', 'classify')})",
        "≤ 1.50",
        ratio <= 1.5,
        {"ratio": ratio, "ms_an_image": times.milliseconds("measure") / IMAGES},
    )


class _Small(nn.Module):
    """A network so small that ten thousand images are soon through it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.map = nn.Sequential(nn.Conv2d(3, 16, 9, stride=8), nn.ReLU())
        self.scores = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 1000))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.scores(self.map(images))
        return found


def _memory(root: Path, *, count: int = 10_000) -> Row:
    few = _made(root / "small", size=(80, 60), count=100)
    files = few.samples
    samples = tuple(
        Sample(files[number % 100].path, f"{number}", number % 1000, files[number % 100].boxes)
        for number in range(count)
    )
    view = Preprocessing(input_size=(64, 64)).squashed()
    built = Localization(METHODS).on(Model("small", _Small().eval(), view))
    held: dict[int, int] = {}

    def watch(stage: str, done: int, total: int | None, numbers: object = None) -> None:
        if done >= count // 10 and "early" not in marks:
            marks["early"] = now_and_peak()[0]
        held[0] = now_and_peak()[0]

    marks: dict[str, int] = {}
    run(built, samples, root / "out", size=50, progress=watch)
    growth = (held[0] - marks["early"]) / 1024
    return Row(
        f"growth of memory from the {count // 10:,}th to the {count:,}th image",
        f"{growth:+.1f} MB",
        "flat",
        growth < 20,
        {"growth_mb": growth},
    )
