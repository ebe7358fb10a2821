"""What does it cost to explain ten thousand feature maps on disk, beside reading them and one matrix product?"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import l2caf
from l2caf.features.stored import blocks, stored

from .row import Row, side_by_side

MAPS = int(os.environ.get("L2CAF_FEATURE_MAPS", "10000"))
CHANNELS, GRID, CLASSES, BLOCK = 1280, (7, 7), 1000, 32
OBJECTIVES = {
    "class-oblivious": l2caf.ClassOblivious(),
    "class-specific": l2caf.ClassSpecific(),
    "prediction": l2caf.Prediction(),
}
ROUNDS = 3  # each goes through all maps


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "features.npy"
        _write(path, MAPS)
        found = _times(path)
        half = Path(folder) / "half.npy"
        _write(half, MAPS // 2)
        return [*found, _memory(path, half)]


def _write(path: Path, count: int) -> None:
    file = np.lib.format.open_memmap(path, "w+", np.float16, (count, CHANNELS, *GRID))
    rng = np.random.default_rng(0)
    for start in range(0, count, 500):
        drawn = rng.random((min(500, count - start), CHANNELS, *GRID), np.float32)
        file[start : start + 500] = drawn * rng.random((len(drawn), 1, *GRID), np.float32)
    file.flush()


def _head() -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    return rng.normal(size=(CLASSES, CHANNELS)).astype(np.float32) / 36, np.zeros(CLASSES, np.float32)


def _times(path: Path) -> list[Row]:
    head = _head()
    weight = torch.from_numpy(head[0])

    def read(product: Callable[[torch.Tensor], object]) -> None:
        for block in blocks(stored(path), size=BLOCK):
            product(torch.from_numpy(np.array(block)).float().flatten(2))

    def everywhere() -> None:
        """Every class at every position: W A."""
        read(lambda columns: torch.nn.functional.conv1d(columns, weight.unsqueeze(-1)))

    def scores() -> None:
        """The scores alone: W times the mean of A."""
        read(lambda columns: columns.mean(dim=2) @ weight.T)

    def explaining(objective: Any) -> Callable[[], None]:
        def explain() -> None:
            found = l2caf.explain_features(head, path, objective=objective, block=BLOCK)
            assert found.weights.shape == (MAPS, *GRID)

        return explain

    asked = {name: explaining(objective) for name, objective in OBJECTIVES.items()}
    times = side_by_side({"everywhere": everywhere, "scores": scores, **asked}, rounds=ROUNDS, warm_up=1)
    what = f"{MAPS:,} maps of {CHANNELS} × 7 × 7 in float16 on disk"
    found = []
    for name in asked:
        ratio = times.ratio(name, "everywhere")
        measured = f"{ratio:.2f} ({times.spread(name, 'everywhere')})"
        label = f"{what}, {name} ÷ reading them and W A, every class at every position"
        found.append(Row(label, measured, "≤ 1.2", ratio <= 1.2, {"ratio": ratio}))
        ratio = times.ratio(name, "scores")
        measured = f"{ratio:.2f} ({times.spread(name, 'scores')})"
        label = f"{what}, {name} ÷ reading them and their scores alone"
        found.append(Row(label, measured, "", None, {"ratio": ratio, "seconds": times.milliseconds(name) / 1000}))
    return found


def _memory(path: Path, half: Path) -> Row:
    """The peak of a process of its own over all maps, beside that over half of them."""
    program = "import sys; from benchmarks.features import peak; print(peak(sys.argv[1]))"
    whole, part = (
        float(subprocess.run([sys.executable, "-c", program, str(one)], check=True, capture_output=True).stdout)
        for one in (path, half)
    )
    ratio = whole / part
    label = f"peak memory over {MAPS:,} maps ÷ over {MAPS // 2:,}"
    return Row(label, f"{ratio:.2f} ({whole:.0f} MB)", "≤ 1.05", ratio <= 1.05, {"megabytes": whole})


def peak(path: str) -> float:
    """Megabytes that this process held at most."""
    l2caf.explain_features(_head(), path, block=BLOCK)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
