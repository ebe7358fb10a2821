"""The one entry to every solver, and what a search gives."""

from __future__ import annotations

import abc
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ..errors import MethodError
from ..numerics import FLAT
from ..problem import Problem
from ..solution import Outcome, Solution


@dataclass(frozen=True)
class Found:
    """What a search gives: (K, B, n) weights and, per map and sample, (K, B), loss, steps, evaluations, outcome.

    `path`, (steps, K, B, n), and the `losses` along it, (steps, K, B), are there where they were asked for.
    """

    weights: Tensor
    loss: Tensor
    steps: Tensor
    evaluations: Tensor
    outcome: list[list[Outcome]]
    path: Tensor | None = None
    losses: Tensor | None = None
    solver: str = ""  # which solver it was, and why that one, where one was chosen
    reason: str = ""

    @classmethod
    def stacked(cls, parts: list[Found]) -> Found:
        """Put searches for one map each side by side."""
        first = parts[0]
        if len(parts) == 1:
            return first
        return cls(
            weights=torch.cat([part.weights for part in parts]),
            loss=torch.cat([part.loss for part in parts]),
            steps=torch.cat([part.steps for part in parts]),
            evaluations=torch.cat([part.evaluations for part in parts]),
            outcome=[row for part in parts for row in part.outcome],
            path=_side_by_side([part.path for part in parts]),
            losses=_side_by_side([part.losses for part in parts]),
            solver=first.solver,
            reason=first.reason,
        )


class Solver(abc.ABC):
    """Finds, for every map and sample of a problem, a filter of small loss."""

    @property
    def name(self) -> str:
        return type(self).__name__

    @abc.abstractmethod
    def search(self, problem: Problem) -> Found:
        """Search; samples that are not finite may come back as anything."""

    def solve(self, problem: Problem, *, several: bool = False) -> Solution:
        """Search, judge what was found, and lay it out on the grid; with `several`, maps have an axis of their own."""
        found = judged(self.search(problem), problem)

        def laid_out(values: Tensor) -> Tensor:
            return values.transpose(0, 1) if several else values[0]

        weights = found.weights.float().unflatten(2, problem.grid)
        path = None if found.path is None else found.path.unflatten(3, problem.grid)
        return Solution(
            filter=laid_out(weights),
            loss=laid_out(found.loss),
            steps=laid_out(found.steps),
            evaluations=laid_out(found.evaluations),
            outcome=[list(row) for row in zip(*found.outcome, strict=True)] if several else found.outcome[0],
            solver=found.solver or self.name,
            reason=found.reason or "asked for",
            endpoint=problem.endpoint,
            path=path if path is None or several else path[:, 0],
            losses=found.losses if found.losses is None or several else found.losses[:, 0],
        )


def slope_of(losses: Tensor, parameters: Tensor, problem: Problem) -> Tensor:
    """Return the gradient of the losses in the filter's parameters, or say that the network hides it."""
    if losses.requires_grad:
        (slope,) = torch.autograd.grad(losses.sum(), parameters, allow_unused=True)
        if slope is not None:
            return slope
    if bool(problem.moved.any()):
        raise MethodError(
            "The output depends on the filter, but the network stops the gradient on the way (detach, or torch.no_grad "
            "in its forward pass), so no descent can follow it: let the gradient through, or choose a later layer."
        )
    return torch.zeros_like(parameters)


def judged(found: Found, problem: Problem) -> Found:
    """Mark the samples whose network was not finite, and those whose filter shows nothing."""
    moved = problem.moved
    weights = found.weights
    if not bool(moved.all()):  # what a random start left there is no finding
        even = problem.filter.weights(problem.filter.start(problem.batch, problem.grid), problem.grid)
        weights = torch.where(moved.unsqueeze(1), weights, even.to(weights))
    # Arrays, since on small networks a dozen operations on tensors cost more than the network.
    values, loss = weights.detach().cpu().numpy(), found.loss.detach().cpu().numpy()
    least, most = values.min(axis=2), values.max(axis=2)
    sound = problem.finite.cpu().numpy() & np.isfinite(most - least + loss)
    empty = (most - least <= FLAT * np.maximum(most, -least)) | ~moved.cpu().numpy() | (not problem.informative)
    if (sound & ~empty).all():
        return found
    outcome = [
        [
            Outcome.NON_FINITE if not is_sound else Outcome.UNINFORMATIVE if is_empty else own
            for is_sound, is_empty, own in zip(*rows, strict=True)
        ]
        for rows in zip(sound.tolist(), empty.tolist(), found.outcome, strict=True)
    ]
    kept = torch.from_numpy(sound).to(weights.device).unsqueeze(2)
    return replace(found, weights=weights.masked_fill(~kept, 0.0), outcome=outcome)


def _side_by_side(parts: list[Tensor | None]) -> Tensor | None:
    """Join what belongs to several maps along the axis of maps; paths of different length have no common axis."""
    kept = [part for part in parts if part is not None]
    if len(kept) < len(parts) or len({len(part) for part in kept}) > 1:
        return None
    return torch.cat(kept, dim=1)
