"""The one entry to every solver, and the one result."""

from __future__ import annotations

import abc
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..errors import MethodError
from ..problem import Problem
from ..solution import Outcome, Solution

FLAT = 0.02  # a filter that varies by less than this share of its largest weight shows nothing


@dataclass(frozen=True)
class Found:
    """What a solver's own search gives: (B, positions) weights and, a sample, loss, steps, evaluations, outcome."""

    weights: Tensor
    loss: Tensor
    steps: Tensor
    evaluations: Tensor
    outcome: list[Outcome]
    path: Tensor | None = None
    losses: Tensor | None = None


class Solver(abc.ABC):
    """Finds, for every sample of a problem, a filter of small loss."""

    @property
    def name(self) -> str:
        return type(self).__name__

    @abc.abstractmethod
    def search(self, problem: Problem) -> Found:
        """Search; samples that are not finite may come back as anything."""

    def solve(self, problem: Problem, *, reason: str = "asked for") -> Solution:
        """Search, judge what was found, and lay it out on the grid."""
        found = judged(self.search(problem), problem)
        shape = (problem.batch, *problem.grid)
        path = None if found.path is None else found.path.reshape(-1, *shape)
        return Solution(
            filter=found.weights.reshape(shape).float(),
            loss=found.loss,
            steps=found.steps,
            evaluations=found.evaluations,
            outcome=found.outcome,
            solver=self.name,
            reason=reason,
            endpoint=problem.endpoint_name,
            path=path,
            losses=found.losses,
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
    even = problem.filter.weights(problem.filter.start(problem.batch, problem.grid), problem.grid)
    moved = problem.moved.unsqueeze(1)
    weights = torch.where(moved, found.weights, even.to(found.weights))  # a random start is no finding
    sound = problem.finite & weights.isfinite().all(dim=1) & found.loss.isfinite()
    spread = weights.amax(dim=1) - weights.amin(dim=1)
    flat = spread <= FLAT * weights.abs().amax(dim=1)
    weights[~sound] = 0
    outcome = list(found.outcome)
    for sample in range(problem.batch):
        if not sound[sample]:
            outcome[sample] = Outcome.NON_FINITE
        elif flat[sample] or not moved[sample] or not problem.informative:
            outcome[sample] = Outcome.UNINFORMATIVE
    return replace(found, weights=weights, outcome=outcome)


def stacked(solutions: list[Solution]) -> Solution:
    """Put the solutions of several maps of the same samples side by side."""
    first = solutions[0]
    return Solution(
        filter=torch.stack([solution.filter for solution in solutions], dim=1),
        loss=torch.stack([solution.loss for solution in solutions], dim=1),
        steps=torch.stack([solution.steps for solution in solutions], dim=1),
        evaluations=torch.stack([solution.evaluations for solution in solutions], dim=1),
        outcome=[list(row) for row in zip(*(solution.outcome for solution in solutions), strict=True)],
        solver=first.solver,
        reason=first.reason,
        endpoint=first.endpoint,
    )
