"""Where the channel and the spatial axes are in a layer's output."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

MOST_PREFIX_TOKENS = 8  # a class token, a distillation token and the usual four registers fit well inside


@dataclass(frozen=True)
class Layout:
    """The axes of a feature map: a grid of positions, each with a vector of channels.

    `channels_first` is (B, C, *grid), `channels_last` is (B, *grid, C) and `tokens` is (B, prefix + positions, C). With
    `frames`, each sample has that many rows of the batch, one after the other, and a grid in each.

    >>> Layout("tokens", grid=(14, 14), prefix=1).positions
    196
    >>> Layout("channels_first", grid=(7, 7), frames=3).shape
    (3, 7, 7)
    """

    kind: Literal["channels_first", "channels_last", "tokens"]
    grid: tuple[int, ...]
    prefix: int = 0
    frames: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a filter: the grid, after the frames where there are any."""
        return self.grid if self.frames is None else (self.frames, *self.grid)

    @property
    def positions(self) -> int:
        """How many weights a filter has."""
        return math.prod(self.shape)

    @property
    def axes(self) -> tuple[str, ...]:
        """The names of a filter's axes."""
        space = ("z", "y", "x")[-len(self.grid) :]
        return space if self.frames is None else ("frame", *space)

    def columns(self, features: Tensor) -> Tensor:
        """Return the features as (B, C, positions), whatever the layout; prefix tokens are left out."""
        if self.kind == "channels_first":
            columns = features.flatten(2)
        elif self.kind == "channels_last":
            columns = features.flatten(1, -2).transpose(1, 2)
        else:
            columns = features[:, self.prefix :].transpose(1, 2)
        if self.frames is None:
            return columns
        return columns.unflatten(0, (-1, self.frames)).transpose(1, 2).flatten(2)

    def weigh(self, features: Tensor, weights: Tensor) -> Tensor:
        """Multiply every position of (B, ...) features by its weight in (B, positions); prefix tokens keep theirs."""
        weights = weights.to(features.dtype).reshape(features.shape[0], -1)
        if self.kind == "channels_first":
            return features * weights.reshape(-1, 1, *self.grid)
        if self.kind == "channels_last":
            return features * weights.reshape(-1, *self.grid, 1)
        untouched = weights.new_ones(weights.shape[0], self.prefix)
        return features * torch.cat([untouched, weights.flatten(1)], dim=1).unsqueeze(-1)


def infer_layout(output_shape: Sequence[int], input_shape: Sequence[int]) -> Layout | None:
    """Tell how a layer's output is laid out, or None where it holds no map of the input.

    Only shapes are looked at: the grid must have more than one position, be no finer than the input, and have
    the input's own proportions to within a cell. `input_shape` is (B, ..., *size).

    >>> infer_layout((2, 197, 768), (2, 3, 224, 224))
    Layout(kind='tokens', grid=(14, 14), prefix=1, frames=None)
    >>> infer_layout((2, 1280, 1, 1), (2, 3, 224, 224)) is None
    True
    """
    if len(output_shape) < 3:
        return None
    if output_shape[0] != input_shape[0]:
        return _folded(output_shape, input_shape)
    axes = len(output_shape) - 2
    finest = len(input_shape) - 2
    if axes <= finest:
        size = tuple(input_shape[-axes:])
        if _is_map(tuple(output_shape[2:]), size) and not (axes == 1 and finest > 1):
            return Layout("channels_first", tuple(output_shape[2:]))
        # A single channel at the end is rather a pooled vector, (B, C, 1, 1), than a map.
        if _is_map(tuple(output_shape[1:-1]), size) and axes > 1 and output_shape[-1] > 1:
            return Layout("channels_last", tuple(output_shape[1:-1]))
    if axes == 1 and finest > 1:
        return _tokens(output_shape[1], tuple(input_shape[2:]))
    return None


def _folded(output_shape: Sequence[int], input_shape: Sequence[int]) -> Layout | None:
    """Tell the layout where the frames of (B, T, C, H, W) or (B, C, T, H, W) are rows of the batch."""
    if len(input_shape) != 5 or output_shape[0] % input_shape[0]:
        return None
    frames = output_shape[0] // input_shape[0]
    for axis in (1, 2):
        if frames > 1 and frames == input_shape[axis]:
            one_frame = (
                output_shape[0],
                *(length for place, length in enumerate(input_shape) if place not in (0, axis)),
            )
            found = infer_layout(output_shape, one_frame)
            return None if found is None else replace(found, frames=frames)
    return None


def _is_map(grid: tuple[int, ...], size: tuple[int, ...]) -> bool:
    if math.prod(grid) < 2 or any(cells > pixels for cells, pixels in zip(grid, size, strict=True)):
        return False
    if len(grid) < 2:
        return True
    # Time or depth may be strided apart from height and width, so only the last two axes must agree.
    (rows, columns), (height, width) = grid[-2:], size[-2:]
    return abs(rows - columns * height / width) <= 1.5 or abs(columns - rows * width / height) <= 1.5


def _tokens(count: int, size: tuple[int, ...]) -> Layout | None:
    found = [Layout("tokens", grid, n) for n in range(MOST_PREFIX_TOKENS) for grid in _grids(count - n, size)]
    # 30 tokens of a square picture are 5 x 5 and five before them, rather than 5 x 6.
    exact = [layout for layout in found if layout.grid[-2] * size[-1] == layout.grid[-1] * size[-2]]
    return next(iter(exact or found), None)


def _grids(positions: int, size: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield the grids of so many positions that have the proportions of an input of this size."""
    depths = range(1, size[0] + 1) if len(size) == 3 else (None,)
    height, width = size[-2:]
    for depth in depths:
        if positions < 4 or positions % (depth or 1):
            continue
        area = positions // (depth or 1)
        rows = round(math.sqrt(area * height / width))
        if rows and area % rows == 0 and _is_map((rows, area // rows), (height, width)):
            yield (rows, area // rows) if depth is None else (depth, rows, area // rows)
