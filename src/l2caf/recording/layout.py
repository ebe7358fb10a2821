"""Where the channel and the spatial axes are in a layer's output: `Layout`, and those that a shape allows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import permutations
from typing import Literal

import torch
from torch import Tensor

from ..errors import LayerError

# Prompts before the patches come in dozens; what stands behind them (detection tokens, text) may be more.
MOST_PREFIX_TOKENS = 64
PREFIX_BESIDE_SUFFIX, MOST_SUFFIX_TOKENS = 8, 128

Kind = Literal["channels_first", "channels_last", "tokens"]


@dataclass(frozen=True)
class Layout:
    """The axes of a feature map: a grid of positions, each with a vector of channels.

    `channels_first` is (B, C, *grid), `channels_last` is (B, *grid, C) and `tokens` is (B, prefix + positions + suffix,
    C). `grid` has the order of the input's axes; where the layer holds its axes in another, `order` names them as it
    does: tokens that run over height and width before time are `Layout("tokens", grid=(t, h, w), order=(1, 2, 0))`.
    With `frames`, each sample has that many rows of the batch, one after the other, and a grid in each; with `frame` as
    well, one of them alone has a filter, and the others stay as they are: one for all, or one each. `along`
    are the axes of the input, frames first, that the grid runs along, where these are not its last ones.

    >>> Layout("tokens", grid=(14, 14), prefix=1).positions
    196
    >>> Layout("channels_first", grid=(7, 7), frames=3).shape
    (3, 7, 7)
    """

    kind: Kind
    grid: tuple[int, ...]
    prefix: int = 0
    frames: int | None = None
    suffix: int = 0
    order: tuple[int, ...] | None = None
    along: tuple[int, ...] | None = None
    frame: int | tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("channels_first", "channels_last", "tokens"):
            raise LayerError(
                f"There is no layout {self.kind!r}: take channels_first, channels_last or tokens.", field="layout"
            )
        if self.order is not None and sorted(self.order) != list(range(len(self.grid))):
            raise LayerError(
                f"The order {self.order} does not name each axis of the grid {self.grid} once: for tokens that run "
                "over the last axis first, give order=(1, 0).",
                field="layout",
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a filter: the grid, after the frames where it has any."""
        return self.grid if self.frames is None or self.frame is not None else (self.frames, *self.grid)

    @property
    def positions(self) -> int:
        """How many weights a filter has."""
        return math.prod(self.shape)

    @property
    def axes(self) -> tuple[str, ...]:
        """The names of a filter's axes."""
        space = ("z", "y", "x")[-len(self.grid) :]
        return space if self.frames is None or self.frame is not None else ("frame", *space)

    def fits(self, shape: Sequence[int]) -> bool:
        """Whether a layer's output of this shape, (B, ...), can be read so."""
        if len(shape) < 3 or (self.frames is not None and shape[0] % self.frames):
            return False
        held = {
            "channels_first": shape[2:],
            "channels_last": shape[1:-1],
            "tokens": (shape[1] - self.prefix - self.suffix,) if len(shape) == 3 else (0,),
        }[self.kind]
        wide = tuple(cells for cells in held if cells > 1)
        return tuple(held) in (self._held, (math.prod(self.grid),)) or wide == self._held

    def columns(self, features: Tensor) -> Tensor:
        """Return the features as (B, C, positions), whatever the layout; prefix and suffix tokens are left out."""
        if self.kind == "channels_first":
            columns = features.flatten(2)
        elif self.kind == "channels_last":
            columns = features.flatten(1, -2).transpose(1, 2)
        else:
            columns = features[:, self.prefix : features.shape[1] - self.suffix].transpose(1, 2)
        if self.order is not None:
            back = sorted(range(len(self.order)), key=self.order.__getitem__)
            columns = columns.unflatten(2, self._held).permute(0, 1, *(2 + axis for axis in back)).flatten(2)
        if self.frames is None:
            return columns
        columns = columns.unflatten(0, (-1, self.frames))
        if isinstance(self.frame, tuple):
            return columns[torch.arange(len(columns)), list(self.frame)]
        return columns.transpose(1, 2).flatten(2) if self.frame is None else columns[:, self.frame]

    def weigh(self, features: Tensor, weights: Tensor) -> Tensor:
        """Multiply every position of (B, ...) features by its weight in (B, positions); other tokens keep theirs."""
        weights = weights.to(features.dtype)
        if self.frames is not None and self.frame is not None:
            weights = torch.where(self._is_own(weights), weights.unsqueeze(-2), 1.0)
        weights = weights.reshape(features.shape[0], -1)
        if self.order is not None:
            weights = weights.unflatten(1, self.grid).permute(0, *(1 + axis for axis in self.order)).flatten(1)
        if self.kind == "channels_first":
            return features * weights.reshape(-1, 1, *features.shape[2:])
        if self.kind == "channels_last":
            return features * weights.reshape(-1, *features.shape[1:-1], 1)
        before, after = weights.new_ones(len(weights), self.prefix), weights.new_ones(len(weights), self.suffix)
        return features * torch.cat([before, weights, after], dim=1).unsqueeze(-1)

    def weigh_frame(self, features: Tensor, weights: Tensor, frame: int) -> Tensor:
        """Multiply the features of one frame alone, (B, ...), by its part of the weights."""
        if self.frame is not None:
            is_own = self._is_own(weights)[..., frame, :]
            return self.of_one_frame.weigh(features, torch.where(is_own, weights, 1.0))
        return self.of_one_frame.weigh(features, weights.unflatten(-1, (self.frames or 1, -1))[..., frame, :])

    def _is_own(self, weights: Tensor) -> Tensor:
        """Which frames of (B, positions) weights are those that they are for: (B or 1, frames, 1)."""
        assert self.frames is not None
        assert self.frame is not None
        numbers = torch.arange(self.frames, device=weights.device)
        own = torch.tensor(self.frame, device=weights.device).reshape(-1, 1)
        return own.eq(numbers).unsqueeze(2)

    @property
    def of_one_frame(self) -> Layout:
        """How the rows of one frame are laid out, by themselves."""
        return replace(self, frames=None, frame=None, along=None if self.along is None else self.along[1:])

    @property
    def _held(self) -> tuple[int, ...]:
        """The grid as the layer holds it."""
        return self.grid if self.order is None else tuple(self.grid[axis] for axis in self.order)


def proposals(shape: Sequence[int], axes: Mapping[int, int], rows: int, *, suffixes: bool = False) -> Iterator[Layout]:
    """Every layout that a layer's output of this shape, (rows, ...), could have, as far as shapes tell.

    `axes` are the input's axes that may hold positions, with their lengths. Grids are no finer than the input. Where
    positions stand in one row, height and width keep the input's proportions to within a cell. `suffixes` asks for the
    readings of tokens with others behind them.

    >>> found = proposals((1, 197, 768), {2: 224, 3: 224}, 1)
    >>> [layout.prefix for layout in found if layout.grid == (14, 14) and layout.order is None]
    [1]
    """
    if len(shape) < 3 or shape[0] % rows or 0 in shape:
        return
    if shape[0] != rows:
        frames = shape[0] // rows
        for axis, length in axes.items():
            if length == frames:
                others = {other: cells for other, cells in axes.items() if other != axis}
                for layout in _of_sample(shape, others, suffixes=suffixes):
                    yield replace(layout, frames=frames, along=(axis, *(layout.along or ())))
        return
    yield from _of_sample(shape, axes, suffixes=suffixes)


def _of_sample(shape: Sequence[int], axes: Mapping[int, int], *, suffixes: bool) -> Iterator[Layout]:
    tokens = shape[1] if len(shape) == 3 else 0
    if suffixes:
        for prefix in range(PREFIX_BESIDE_SUFFIX + 1):
            for suffix in range(1, min(MOST_SUFFIX_TOKENS, tokens // 2) + 1):
                yield from _tokens(tokens, axes, prefix=prefix, suffix=suffix)
        return
    whole = list(_grids("channels_first", tuple(shape[2:]), axes))
    yield from whole
    if len(shape) > 3:
        # A single channel at the end is rather a pooled vector, (B, C, 1, 1), and one in front a map of one channel:
        # (B, 1, H, W) read as a row with W channels would be a map that has lost an axis.
        if shape[-1] > 1 and not (shape[1] == 1 and whole):
            yield from _grids("channels_last", tuple(shape[1:-1]), axes)
        return
    yield from _in_one_row("channels_first", shape[2], axes)
    for prefix in range(min(MOST_PREFIX_TOKENS, tokens // 2) + 1):
        yield from _tokens(tokens, axes, prefix=prefix)


def _tokens(tokens: int, axes: Mapping[int, int], *, prefix: int, suffix: int = 0) -> Iterator[Layout]:
    """Tokens in one row, of which at least half have a place."""
    count = tokens - prefix - suffix
    if 2 * count >= tokens:
        for layout in (*_in_one_row("tokens", count, axes), *_grids("tokens", (count,), axes)):
            yield replace(layout, prefix=prefix, suffix=suffix)


def _grids(kind: Kind, held: tuple[int, ...], axes: Mapping[int, int]) -> Iterator[Layout]:
    """A grid that the layer holds as one, along all choices of the input's axes; a single cell may be all of one."""
    if len(held) > len(axes):  # a signal inside a network for pictures, (B, C, T, 1)
        held = tuple(cells for cells in held if cells > 1)
    if math.prod(held) < 2 or len(held) > 3:
        return
    for along in permutations(axes, len(held)):
        if all(cells <= axes[axis] for cells, axis in zip(held, along, strict=True)):
            yield _along(kind, held, along)


def _in_one_row(kind: Kind, count: int, axes: Mapping[int, int]) -> Iterator[Layout]:
    """A grid of two or three axes whose positions the layer holds one after the other."""
    if count < 4:
        return
    for along in (*permutations(axes, 2), *permutations(axes, 3)):
        # Height and width are the last two of the input's axes; what else there is may be strided apart from them.
        rows, columns = sorted(along)[-2:]
        for held in _factors(count, len(along)):
            cells = dict(zip(along, held, strict=True))
            fits = all(1 < number <= axes[axis] for axis, number in cells.items())
            if fits and in_proportion((cells[rows], cells[columns]), (axes[rows], axes[columns])):
                yield _along(kind, held, along)


def _along(kind: Kind, held: tuple[int, ...], along: tuple[int, ...]) -> Layout:
    """The layout of a grid that the layer holds along these axes of the input."""
    ranked = sorted(along)
    order = tuple(ranked.index(axis) for axis in along)
    grid = tuple(held[along.index(axis)] for axis in ranked)
    return Layout(kind, grid, order=None if order == tuple(range(len(order))) else order, along=tuple(ranked))


@lru_cache(maxsize=1024)
def _factors(count: int, parts: int) -> tuple[tuple[int, ...], ...]:
    """Every way to write a number as so many factors.

    >>> _factors(4, 2)
    ((1, 4), (2, 2), (4, 1))
    """
    if parts == 1:
        return ((count,),)
    return tuple(
        (first, *rest)
        for first in range(1, count + 1)
        if count % first == 0
        for rest in _factors(count // first, parts - 1)
    )


def in_proportion(grid: Sequence[int], size: Sequence[int]) -> bool:
    """Whether the last two axes of a grid have the proportions of an input to within a cell."""
    (rows, columns), (height, width) = grid[-2:], size[-2:]
    return abs(rows - columns * height / width) <= 1.5 or abs(columns - rows * width / height) <= 1.5


def natural(shape: Sequence[int], layouts: Sequence[Layout], axes: Mapping[int, int]) -> Layout | None:
    """The layout that a person would guess from a shape alone, or None: all of the input's axes, in its own order.

    >>> shape, axes = (2, 30, 384), {2: 80, 3: 80}
    >>> natural(shape, list(proposals(shape, axes, 2)), axes).grid  # with five before it, rather than five by six
    (5, 5)
    """

    def far(layout: Layout) -> float:
        cells = layout.shape[-2:]
        sizes = [axes[axis] for axis in (layout.along or ())][-2:]
        return abs(cells[0] * sizes[1] - cells[1] * sizes[0]) if len(cells) == 2 else 0.0

    def is_plain(layout: Layout) -> bool:
        held_in_a_row = layout.kind == "channels_first" and len(layout.grid) > 1 and len(shape) == 3
        proportions = len(layout.grid) < 2 or in_proportion(layout.grid, [axes[axis] for axis in layout.along or ()])
        everything = layout.order is None and layout.suffix == 0 and set(layout.along or ()) == set(axes)
        most_have_a_place = layout.kind != "tokens" or 4 * layout.prefix <= shape[1]
        return everything and proportions and most_have_a_place and not held_in_a_row

    def unlikely(layout: Layout) -> tuple[object, ...]:
        return layout.prefix > PREFIX_BESIDE_SUFFIX, far(layout) > 0, layout.prefix

    return min(filter(is_plain, layouts), key=unlikely, default=None)
