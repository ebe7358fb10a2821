"""How far downstream of the layer the network stays affine in the filter, found by probing and verified on the data.

Along a line through the untouched filter, f(t) = 1 + t (r - 1) with a random r, an output o that is affine in f
obeys o(t) + o(-t) = 2 o(0). Three runs of the head test this for every module output at once; where the head
averages the map, which one of these runs shows, the rest is computed from the average alone. No class of module is
looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ..numerics import rows
from ..recording.borrow import Call
from ..recording.replay import Replay

COLUMN_BUDGET = 1 << 24  # numbers that may pass through the head at once while columns are computed
MAP_BUDGET = 1 << 26  # numbers that an affine map may hold: a dense predictor's would fill the memory


@dataclass(frozen=True)
class AffineMap:
    """A module's output as a function of the filter: o(f) = offset + jacobian f, flattened to (B, m).

    `jacobian` is (B, m, positions). Where `any_sign` is False it holds for non-negative filters only.
    """

    call: Call
    jacobian: Tensor
    offset: Tensor
    any_sign: bool = True

    def __call__(self, weights: Tensor) -> Tensor:
        jacobian = self.jacobian.to(weights.dtype)
        return self.offset.to(weights.dtype) + (jacobian @ weights.unsqueeze(-1)).squeeze(-1)


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
