"""How far downstream of the layer the network stays affine in the filter, found by probing and verified on the data.

Along a line through the untouched filter, f(t) = 1 + t (r - 1) with a random r, an output o that is affine in f
obeys o(t) + o(-t) = 2 o(0). Three runs of the head test this for every module output at once; where the head
averages the map, which one of these runs shows, the rest is computed from the average alone. No class of module is
looked at.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ..numerics import rows
from ..recording.borrow import Call
from ..recording.replay import Replay
from .pooled import PooledLinear

COLUMN_BUDGET = 1 << 24  # numbers that may pass through the head at once while columns are computed
FEW_DIRECTIONS = 3  # through which a product with W takes no longer than to look at what is in them
MAP_BUDGET = 1 << 26  # numbers that an affine map may hold: a dense predictor's would fill the memory


class AffineMap(abc.ABC):
    """An output as a function of the filter: o(f) = offset + J f, flattened to (B, m).

    Where `any_sign` is False it holds for non-negative filters only. Filters are (..., B, n), outputs (..., B, m).
    """

    jacobian: Tensor  # J, written out: (B, m, n)
    offset: Tensor  # (B, m)
    any_sign: bool

    @abc.abstractmethod
    def push(self, weights: Tensor) -> Tensor:
        """J f."""

    @abc.abstractmethod
    def pull(self, directions: Tensor) -> Tensor:
        """J^T d: the gradient of d . o(f) in the filter."""

    def __call__(self, weights: Tensor) -> Tensor:
        return self.offset.to(weights.dtype) + self.push(weights)

    def only(self, samples: Tensor) -> Tensor:
        """J of some samples, written out."""
        return self.jacobian[samples]


@dataclass(frozen=True, eq=False)
class DenseMap(AffineMap):
    """A map that is written out."""

    jacobian: Tensor
    offset: Tensor
    any_sign: bool = True

    def push(self, weights: Tensor) -> Tensor:
        return _times(self.jacobian.to(weights.dtype), weights)

    def pull(self, directions: Tensor) -> Tensor:
        return _times(self.jacobian.to(directions.dtype).mT, directions)


@dataclass(frozen=True, eq=False)
class PooledMap(AffineMap):
    """A mean over the positions and a linear map: J = W A / n, which need not be written out.

    `columns` is A as (B, C, n).
    """

    pooled: PooledLinear
    columns: Tensor
    any_sign: bool = True

    @property
    def offset(self) -> Tensor:  # type: ignore[override]
        bias: Tensor = self.pooled.bias
        return bias.expand(len(self.columns), -1)

    @property
    def jacobian(self) -> Tensor:  # type: ignore[override]
        # A convolution over single positions: one operation, where a product would first copy W for every sample.
        weight = (self.pooled.weight / self.columns.shape[2]).unsqueeze(-1)
        return torch.nn.functional.conv1d(self.columns, weight)

    def push(self, weights: Tensor) -> Tensor:
        pushed: Tensor = self.pooled.push(_times(self.columns, weights.to(self.columns.dtype)) / self.columns.shape[2])
        return pushed

    def pull(self, directions: Tensor) -> Tensor:
        directions = directions.to(self.columns.dtype)
        pulled = self.pooled.pull(directions) if directions.ndim == 2 else _pulled_by_rows(self.pooled, directions)
        return _times(self.columns.mT, pulled) / self.columns.shape[2]

    def only(self, samples: Tensor) -> Tensor:
        return self.pooled.weight @ self.columns[samples] / self.columns.shape[2]


def _times(matrices: Tensor, vectors: Tensor) -> Tensor:
    """(B, r, c) matrices times (..., B, c) vectors: (..., B, r).

    The vectors stand as rows before the matrices: in this order a batch is multiplied up to ten times as fast.
    """
    if vectors.ndim == 2:
        return torch.bmm(vectors.unsqueeze(1), matrices.mT).squeeze(1)
    return torch.bmm(vectors.transpose(0, 1), matrices.mT).transpose(0, 1)


def _pulled_by_rows(pooled: PooledLinear, directions: Tensor) -> Tensor:
    """W^T d for (K, B, m) directions, each of which may be one number but for a place: a class against all others.

    Then the sum of W's rows, and one row each, are all that is needed, where a product goes through W for each of them.
    """
    several = directions.flatten(0, 1)
    common = several[:, -1:]
    row, place = (several != common).nonzero().unbind(1)
    if len(several) < FEW_DIRECTIONS or len(row) > len(several):
        pulled: Tensor = pooled.pull(directions)
        return pulled
    pulled = common * pooled.pull(torch.ones_like(several[:1]))
    pulled.index_add_(0, row, pooled.weight[place] * (several[row, place] - common[row, 0]).unsqueeze(1))
    return pulled.unflatten(0, directions.shape[:2])


class Probe:
    """The head at a random filter and at its mirror image in the untouched one, each run when it is first asked for.

    The filter's mean is well below 1: about 1 a mean over many positions would hardly move, and a rectifier after it
    would look straight.
    """

    def __init__(self, replay: Replay, *, lowest: float, highest: float) -> None:
        generator = torch.Generator().manual_seed(0)
        weights = lowest + (highest - lowest) * torch.rand(replay.batch, replay.positions, generator=generator)
        self.replay = replay
        self.weights = weights.to(replay.features.device)
        self.mirrored_weights = 2 - self.weights

    @cached_property
    def outputs(self) -> dict[Call, Tensor]:
        return self.replay.observe(self.weights)

    @cached_property
    def mirrored(self) -> dict[Call, Tensor]:
        return self.replay.observe(self.mirrored_weights)

    def straight_calls(self) -> list[Call]:
        """The later calls whose output lies on a line: at the filter, at the untouched one, at the mirror image."""
        return [
            call
            for call, middle in self.replay.observed.items()
            if call in self.outputs
            and call in self.mirrored
            and is_straight(self.outputs[call], middle, self.mirrored[call])
        ]


def is_straight(one: Tensor, middle: Tensor, other: Tensor) -> bool:
    """Tell whether three equally spaced values lie on a line, and move along it at all."""
    precision = torch.finfo(middle.dtype).eps
    # One sample that is not finite must not hide what the others show.
    finite = rows(one + middle + other).isfinite().all(dim=1)
    if not finite.any():
        return False
    one, middle, other = one[finite].double(), middle[finite].double(), other[finite].double()
    moved = torch.maximum((one - middle).abs().amax(), (other - middle).abs().amax())
    bend = (one + other - 2 * middle).abs().amax()
    size = torch.maximum(one.abs().amax(), other.abs().amax())
    rounding = (16 if precision < 1e-6 else 6) * precision * size  # half precision must not hide every bend
    return bool(moved > rounding) and bool(bend <= max(1e-4, 4 * precision) * moved + rounding)


def mapped(function: Callable[[Tensor], Tensor], values: Tensor, *, weight: int | None = None) -> Tensor:
    """Apply a function to every row of `values` at once, in chunks that fit the budget."""
    chunk = max(1, COLUMN_BUDGET // max(1, weight or values[0].numel()))
    mapped: Tensor = torch.func.vmap(function, chunk_size=chunk)(values)
    return mapped
