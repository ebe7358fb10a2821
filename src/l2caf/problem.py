"""`Problem`: a replay, a filter and a loss; all that a solver may know."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .errors import MethodError
from .filters import Filter
from .heads.affine import AffineMap
from .heads.head import Head
from .numerics import rows
from .objectives.objective import Asked, LeastSquares, Loss, Objective
from .objectives.output import ClassOblivious
from .recording.borrow import Call
from .recording.replay import OUTPUT


@dataclass
class Family:
    """The losses of problems that were posed together, and what a solver found for all of them at once."""

    losses: tuple[Loss, ...]
    found: Any = None


@dataclass
class Problem:
    """min over filters f of loss(o(f)), for every sample of a batch; o is the network's output or a later module's."""

    head: Head
    filter: Filter
    loss: Loss
    endpoint: Call = OUTPUT
    informative: bool = True
    shortcut: bool = True  # whether the affine part of the head may stand in for it
    family: Family | None = None  # the problems that were posed together with this one
    evaluations: int = field(default=0, init=False)

    @property
    def batch(self) -> int:
        return self.head.replay.batch

    @property
    def grid(self) -> tuple[int, ...]:
        return self.head.replay.layer.layout.grid

    @property
    def device(self) -> torch.device:
        return self.head.replay.features.device

    @property
    def finite(self) -> Tensor:
        """Which samples can be explained at all: (B,)."""
        return self.head.replay.finite

    @property
    def moved(self) -> Tensor:
        """For which samples any filter makes a difference: (B,)."""
        before, after = self.head.replay.observed[self.endpoint], self.head.probed.get(self.endpoint)
        if after is None:
            return torch.ones(self.batch, dtype=torch.bool, device=self.device)
        return rows(before != after).any(dim=1)

    @property
    def endpoint_name(self) -> str:
        return "output" if self.endpoint == OUTPUT else self.head.replay.name_of(self.endpoint)

    def affine_map(self) -> AffineMap | None:
        """Return the endpoint as an affine map of the filter, for filters of any sign or of one."""
        known = self.head.is_affine or self.head.is_affine_where_positive
        if self.endpoint == OUTPUT and not known:
            return None
        return self.head.affine_map(self.endpoint)

    def losses(self, weights: Tensor) -> Tensor:
        """Return the loss of each sample at these weights, (B, positions) -> (B,), by the cheapest verified way."""
        if not self.shortcut:
            return self.replayed_losses(weights)
        self.evaluations += 1
        if self.endpoint != OUTPUT:
            mapping = self.head.affine_map(self.endpoint) if self.endpoint in self.head.affine_calls else None
            if mapping is not None:
                return self.loss(mapping(weights).reshape(self.head.replay.observed[self.endpoint].shape))
            return self.loss(self.head.replay.filtered(weights, until=self.endpoint))
        return self.loss(self.head.filtered(weights))

    def replayed_losses(self, weights: Tensor) -> Tensor:
        """Return the same by replaying all that follows the layer: the paper's fast form."""
        self.evaluations += 1
        until = None if self.endpoint == OUTPUT else self.endpoint
        return self.loss(self.head.replay.filtered(weights, until=until))

    def recomputed_losses(self, weights: Tensor) -> Tensor:
        """Return the same without use of any fitted map, for a check on one."""
        if self.endpoint != OUTPUT:
            return self.replayed_losses(weights)
        return self.loss(self.head.recomputed(weights.unsqueeze(0)).reshape(self.head.replay.output.shape))

    def whole_losses(self, weights: Tensor) -> Tensor:
        """Return the same by running the whole network: the paper's vanilla form."""
        if self.endpoint != OUTPUT:
            raise MethodError("The vanilla form runs the whole network, so its loss is on the network's output only.")
        self.evaluations += 1
        return self.loss(self.head.replay.whole(weights))


def pose(head: Head, filter: Filter, objective: Objective) -> tuple[list[Problem], Asked]:
    """Put an objective to a network: one problem a map."""
    replay = head.replay
    if isinstance(objective, ClassOblivious):
        endpoint, informative = _endpoint(head, objective)
        target = replay.output if endpoint == OUTPUT else replay.observed[endpoint]
        asked = objective.ask(target.detach())
        return [Problem(head, filter, asked.losses[0], endpoint, informative)], asked
    asked = objective.ask(replay.output.detach())
    family = Family(asked.losses)
    return [Problem(head, filter, loss, family=family) for loss in asked.losses], asked


def _endpoint(head: Head, objective: ClassOblivious) -> tuple[Call, bool]:
    """Choose where the output is to be kept, and tell whether anything can be learnt there.

    A head that does not feel scale (it normalises) already gives the untouched output at the even filter, and
    the loss is nought at a flat map. The output is then kept at the last module that still feels scale.
    """
    replay = head.replay
    if objective.at is not None:
        call = replay.later_call(objective.at)
        if call not in replay.observed:
            with torch.no_grad():
                ones = torch.ones(replay.batch, replay.positions, device=replay.features.device)
                replay.observed[call] = replay.filtered(ones, until=call)
        return call, True
    if head.is_affine or head.is_affine_where_positive:
        return OUTPUT, True
    even = torch.full((replay.batch, replay.positions), replay.positions**-0.5, device=replay.features.device)
    at_random = head.probed

    def feels_scale(call: Call, at_even: Tensor) -> bool:
        moved = LeastSquares(replay.observed[call].double())
        return bool((moved(at_even.double()) > 1e-3 * moved(at_random[call].double())).any())

    with torch.no_grad():
        if feels_scale(OUTPUT, head.filtered(even)):
            return OUTPUT, True
    if not bool((LeastSquares(replay.output.double())(at_random[OUTPUT].double()) > 0).any()):
        return OUTPUT, False  # nothing moves the output, so what other modules feel does not matter to it
    at_even = replay.observe(even)
    for call in reversed(head.affine_calls or list(replay.observed)):
        if call in at_even and call in at_random and feels_scale(call, at_even[call]):
            return call, True
    return OUTPUT, False
