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

import numpy as np
import torch
from torch import Tensor

from ..numerics import rows
from ..recording.borrow import Call
from ..recording.replay import Replay, Seen
from ..unit_sphere import Floats
from .pooled import PooledLinear

OfArrays = Callable[[Floats], Floats]

COLUMN_BUDGET = 1 << 24  # numbers that may pass through the head at once while columns are computed
FEW_DIRECTIONS = 8  # through which a product with W takes no longer than to look at what is in them
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

    def on_arrays(self) -> tuple[OfArrays, OfArrays] | None:
        """`push` and `pull` for plain arrays in double precision, (B, n) and (B, m), where that takes less time."""
        return None

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
class ReplayedMap(AffineMap):
    """A map whose products are runs of the head and of its gradient; it is written out where somebody asks for J.

    With many positions a few products are enough for the best filter, where J has a column for each of them. `run` is
    o(f) for filters (B, n), `back` gives J^T d for directions (K, B, m).
    """

    run: Callable[[Tensor], Tensor]
    back: Callable[[Tensor], Tensor]
    written_out: Callable[[], Tensor]
    offset: Tensor
    any_sign: bool = True

    @cached_property
    def jacobian(self) -> Tensor:  # type: ignore[override]
        return self.written_out()

    def push(self, weights: Tensor) -> Tensor:
        return self(weights) - self.offset

    def pull(self, directions: Tensor) -> Tensor:
        several = directions if directions.ndim == 3 else directions.unsqueeze(0)
        pulled = self.back(several.to(self.offset.dtype)).to(directions)
        return pulled if directions.ndim == 3 else pulled[0]

    def __call__(self, weights: Tensor) -> Tensor:
        if weights.ndim == 2:
            return self.run(weights)
        return torch.stack([self.run(one) for one in weights])


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
        written_out = torch.nn.functional.conv1d(self.columns, self.pooled.weight.unsqueeze(-1))
        return written_out.div_(self.columns.shape[2])

    def push(self, weights: Tensor) -> Tensor:
        pushed: Tensor = self.pooled.push(_times(self.columns, weights.to(self.columns.dtype)) / self.columns.shape[2])
        return pushed

    def pull(self, directions: Tensor) -> Tensor:
        directions = directions.to(self.columns.dtype)
        pulled = self.pooled.pull(directions) if directions.ndim == 2 else _pulled_by_rows(self.pooled, directions)
        return _times(self.columns.mT, pulled) / self.columns.shape[2]

    def on_arrays(self) -> tuple[OfArrays, OfArrays] | None:
        columns, weight, positions = self.columns.detach(), self.pooled.weight, self.columns.shape[2]
        if columns.device.type != "cpu":
            return None
        kind = np.float64 if columns.dtype == torch.float64 else np.float32
        turned, across = columns.mT, weight.mT

        def push(filters: Floats) -> Floats:
            means = torch.bmm(torch.from_numpy((filters / positions).astype(kind, copy=False)).unsqueeze(1), turned)
            pushed: Floats = torch.mm(means.squeeze(1), across).numpy().astype(np.float64, copy=False)
            return pushed

        def pull(directions: Floats) -> Floats:
            means = torch.mm(torch.from_numpy(directions.astype(kind, copy=False)), weight)
            pulled: Floats = torch.bmm(means.unsqueeze(1), columns).squeeze(1).numpy().astype(np.float64)
            return pulled / positions

        return push, pull

    def pull_spikes(self, places: Tensor, at: float, elsewhere: float) -> Tensor:
        """J^T d for directions that are one number at (K, B) places and another elsewhere: a class against all others.

        The sum of W's rows, and a row for each of them, are all that is needed.
        """
        weight, positions = self.pooled.weight, self.columns.shape[2]
        own = weight.index_select(0, places.flatten()).mul_((at - elsewhere) / positions)
        own.add_(weight.sum(dim=0), alpha=elsewhere / positions)
        return _times(self.columns.mT, own.view(*places.shape, -1))

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
    if len(several) < FEW_DIRECTIONS:
        return pooled.pull(directions)
    common = several[:, -1:]
    row, place = (several != common).nonzero().unbind(1)
    if len(row) > len(several):
        return pooled.pull(directions)
    pulled: Tensor = common * pooled.pull(torch.ones_like(several[:1]))
    pulled.index_add_(0, row, pooled.weight[place] * (several[row, place] - common[row, 0]).unsqueeze(1))
    return pulled.unflatten(0, directions.shape[:2])


class Probe:
    """The head at a random filter and at its mirror image in the untouched one, each run when it is first asked for."""

    def __init__(self, replay: Replay, weights: Tensor, seen: Callable[[], Seen]) -> None:
        self.replay = replay
        self.weights = weights
        self.mirrored_weights = 2 - weights
        self._seen = seen

    @classmethod
    def wide(cls, replay: Replay) -> Probe:
        """At filters of either sign."""
        return cls(replay, replay.probe_weights, lambda: replay.probed)

    @classmethod
    def narrow(cls, replay: Replay) -> Probe:
        """At filters that are nowhere negative."""
        weights = replay.random_weights(0.0, 0.5)
        return cls(replay, weights, lambda: replay.observe(weights))

    @cached_property
    def outputs(self) -> Seen:
        return self._seen()

    @cached_property
    def mirrored(self) -> Seen:
        return self.replay.observe(self.mirrored_weights)

    def straight(self, call: Call) -> Tensor:
        """For which samples a call's value lies on a line: at the filter, at the untouched one, at the mirror image."""
        found = [seen.some(call) for seen in (self.outputs, self.replay.observed, self.mirrored)]
        one, middle, other = found
        if one is None or middle is None or other is None:
            return torch.zeros(self.replay.batch, dtype=torch.bool, device=self.weights.device)
        return straight(one, middle, other)


def straight(one: Tensor, middle: Tensor, other: Tensor) -> Tensor:
    """Tell for which samples three equally spaced values lie on a line, and move along it at all: (B,).

    Each sample is judged on its own scale: a faint one beside a bright one is what it is alone.
    """
    if not one.shape == middle.shape == other.shape:
        return torch.zeros(len(middle), dtype=torch.bool, device=middle.device)
    precision = torch.finfo(middle.dtype).eps
    one, middle, other = (rows(value).double() for value in (one, middle, other))
    moved = torch.maximum((one - middle).abs().amax(dim=1), (other - middle).abs().amax(dim=1))
    bend = (one + other - 2 * middle).abs().amax(dim=1)
    size = torch.maximum(one.abs().amax(dim=1), other.abs().amax(dim=1))
    rounding = (16 if precision < 1e-6 else 6) * precision * size  # half precision must not hide every bend
    # A comparison with what is not finite is never true.
    return (moved > rounding) & (bend <= max(1e-4, 4 * precision) * moved + rounding) & moved.isfinite()


def mapped(function: Callable[[Tensor], Tensor], values: Tensor, *, weight: int | None = None) -> Tensor:
    """Apply a function to every row of `values` at once, in chunks that fit the budget."""
    chunk = max(1, COLUMN_BUDGET // max(1, weight or values[0].numel()))
    mapped: Tensor = torch.func.vmap(function, chunk_size=chunk)(values)
    return mapped
