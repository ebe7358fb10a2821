"""The first judge: change the pixels of one patch, and see which cells of the map answer.

It knows nothing of how l2caf verifies a layer: patches rather than slabs, on a picture rather than on a flat ground,
how near to each patch the cells lie that answer it rather than where each cell finds its slabs, and chance measured by
shuffling the cells. A correlation would not do: a map of 8×10 read as 4×20 still answers from left to right, but
twice, once too far to the left and once too far to the right.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .entry import Columns, Path, call, look_up, put

PATCHES = {1: 16, 2: 25, 3: 40}  # by the number of axes
SHARE = 0.25  # of each axis that a patch covers
# Nearness above which a layer is a map, and below which it is none. Measured: right readings have 0.45 to 0.84, but for
# some whose kernels are as large as their maps (0.1 to 0.35); a grid wrong by two 0.25, other wrong ones less.
ANSWERS, DEAF = 0.4, 0.3
CHANCE = 0.05  # share of shuffled maps that do as well
SHUFFLES = 199


@dataclass(frozen=True)
class Answer:
    """How well the cells of a map answer to the pixels beneath them.

    `nearness` is 1 where the cells that answer lie where the patch does, 0 where they lie anywhere, and the least one
    over the axes; `chance` is the share of shuffled maps that do as well, `change` how much of the layer's output
    changes at all.
    """

    nearness: float
    chance: float
    change: float

    @property
    def is_map(self) -> bool | None:
        """Whether it is a map of the input; None where this judge cannot tell."""
        if self.change == 0:
            return False  # it does not depend on this input at all
        if self.change < 1e-6 or math.isnan(self.nearness):
            return None
        if self.nearness >= ANSWERS and self.chance <= CHANCE:
            return True
        return False if self.nearness < DEAF else None


def outputs_of(network: nn.Module, inputs: Any, name: str, index: int) -> Tensor:
    """What one call of a module returns, seen by a plain forward hook."""
    seen: list[Tensor] = []
    handle = network.get_submodule(name).register_forward_hook(lambda _m, _i, output: seen.append(output))
    try:
        call(network, inputs)
    finally:
        handle.remove()
    return seen[index].detach().clone()


def answer(
    network: nn.Module,
    inputs: Any,
    *,
    layer: str,
    index: int,
    columns: Columns,
    grid: tuple[int, ...],
    path: Path,
    axes: tuple[int, ...],
) -> Answer:
    """Change the explained input patch by patch and compare where each lies with where the map answers."""
    original = look_up(inputs, path)
    generator = torch.Generator().manual_seed(20)
    lengths = [original.shape[axis] for axis in axes]
    places = _scattered(PATCHES.get(len(axes), 40), len(axes), generator)
    untouched = columns(outputs_of(network, inputs, layer, index)).double()
    energies, changes = [], []
    for place in places:
        changed = _patched(original, place, axes, lengths, generator)
        features = columns(outputs_of(network, put(inputs, path, changed), layer, index)).double()
        if features.shape != untouched.shape:
            return Answer(math.nan, 1.0, 0.0)
        difference = features - untouched
        changes.append(float(difference.norm() / untouched.norm().clamp_min(1e-30)))
        own = difference - difference.mean(dim=2, keepdim=True)  # what all cells share tells nothing of any
        energies.append(own.square().sum(dim=(0, 1)).sqrt())
    answers = torch.stack(energies)  # (patches, cells)
    change = sorted(changes)[len(changes) // 2]
    if not bool(torch.isfinite(answers).all()) or float(answers.max()) == 0:
        return Answer(math.nan, 1.0, change if math.isfinite(change) else 0.0)
    cells = _cells(grid)
    seen = _least(answers, cells, places, grid)
    order = [torch.randperm(len(cells), generator=generator) for _ in range(SHUFFLES)]
    better = sum(_least(answers, cells[shuffled], places, grid) >= seen for shuffled in order)
    return Answer(seen, (better + 1) / (SHUFFLES + 1), change)


def _least(answers: Tensor, cells: Tensor, places: Tensor, grid: tuple[int, ...]) -> float:
    """The least nearness over the axes: how far from a patch its answer lies, against how far the cells do."""
    # A cell that answers to everything alike counts as little as one that answers to nothing.
    relative = answers / answers.mean(dim=0, keepdim=True).clamp_min(1e-3 * float(answers.mean()))
    weights = (relative - relative.median(dim=1, keepdim=True).values).clamp_min(0).square()
    answered = weights.sum(dim=1) > 0
    weights, places = weights[answered], places[answered]
    weights = weights / weights.sum(dim=1, keepdim=True)
    nearness = []
    for axis in (axis for axis, length in enumerate(grid) if length > 1):
        distance = (cells[:, axis] - places[:, axis, None]).abs()
        nearness.append(1 - float((weights * distance).sum(dim=1).mean() / distance.mean()))
    return min(nearness)


def _cells(grid: tuple[int, ...]) -> Tensor:
    """The centres of the cells in [0, 1], in raster order: (positions, axes)."""
    along = [(torch.arange(length, dtype=torch.float64) + 0.5) / length for length in grid]
    return torch.cartesian_prod(*along).reshape(-1, len(grid))


def _scattered(count: int, axes: int, generator: torch.Generator) -> Tensor:
    """Places that fill the input evenly, each axis in its own order: (count, axes)."""
    even = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    return torch.stack([even[torch.randperm(count, generator=generator)] for _ in range(axes)], dim=1)


def _patched(
    original: Tensor, place: Tensor, axes: tuple[int, ...], lengths: list[int], generator: torch.Generator
) -> Tensor:
    """The input with noise of its own mean and spread, made brighter or darker, around one place."""
    where: list[slice] = [slice(None)] * original.ndim
    for axis, length, at in zip(axes, lengths, place.tolist(), strict=True):
        extent = max(1, round(SHARE * length))
        start = min(max(round(at * length - extent / 2), 0), length - extent)
        where[axis] = slice(start, start + extent)
    values = original.float()
    spread = values.std().clamp_min(1e-3)
    noise = torch.randn(values[tuple(where)].shape, generator=generator) + 0.5 * torch.randn((), generator=generator)
    drawn = values.mean() + spread * noise
    if not original.is_floating_point():
        drawn = drawn.round().clamp(values.min(), values.max())
    changed = original.clone()
    changed[tuple(where)] = drawn.to(original)
    return changed
