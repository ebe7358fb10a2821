"""`Auto`: the solver that fits, chosen by looking at the problem, and the reason."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch

from ..problem import Problem
from ..recording.replay import OUTPUT
from ..solution import Solution
from .exact import Exact
from .riemannian import Riemannian
from .solver import Found, Solver


@dataclass(frozen=True)
class Auto(Solver):
    """Chooses by this table; `choose` tells what it would do and why.

    | endpoint in the filter            | filter | objective                | solver                        |
    |-----------------------------------|--------|--------------------------|-------------------------------|
    | affine                            | UnitL2 | linear or sum of squares | Exact                         |
    | affine for non-negative filters   | UnitL2 | linear or sum of squares | Exact where its filter is     |
    |                                   |        |                          | non-negative (the best of     |
    |                                   |        |                          | those), else Riemannian       |
    | anything else                     | any    | any                      | Riemannian                    |
    """

    riemannian: Riemannian = field(default_factory=Riemannian)

    def choose(self, problem: Problem) -> tuple[Solver, str]:
        """Return the solver and the reason for it."""
        exact = Exact()
        why_not = exact.why_not(problem)
        if why_not is None and problem.endpoint == OUTPUT and not problem.head.is_affine:
            return exact, "the output is affine in filters that are nowhere negative, and this is the best of them"
        if why_not is None:
            return exact, f"the {problem.endpoint_name} is affine in the filter"
        return self.riemannian, why_not

    def search(self, problem: Problem) -> Found:
        solver, _ = self.choose(problem)
        if not isinstance(solver, Exact):
            return solver.search(problem)
        found, accepted = solver.attempt(problem)
        if bool(accepted.all()):
            return found
        # Where the exact filter is refused the head is not what it looked like, so it is computed in full.
        return _merged(found, self.riemannian.search(replace(problem, shortcut=False)), accepted)

    def solve(self, problem: Problem, *, reason: str = "") -> Solution:
        solver, why = self.choose(problem)
        solution = super().solve(problem, reason=why)
        descended = solution.evaluations > 0
        if not isinstance(solver, Exact) or not bool(descended.any()):
            return replace(solution, solver=solver.name)
        why = f"{why}, but the exact filter of {int(descended.sum())} samples lies where it is not"
        used = self.riemannian.name if bool(descended.all()) else f"{solver.name} and {self.riemannian.name}"
        return replace(solution, solver=used, reason=why)


def _merged(one: Found, other: Found, use_one: torch.Tensor) -> Found:
    """Take each sample from the one or the other."""
    pick = use_one.unsqueeze(1)
    return Found(
        weights=torch.where(pick, one.weights, other.weights.to(one.weights)),
        loss=torch.where(use_one, one.loss, other.loss.to(one.loss)),
        steps=torch.where(use_one, one.steps.to(other.steps), other.steps),
        evaluations=torch.where(use_one, one.evaluations.to(other.steps), other.evaluations),
        outcome=[a if use else b for use, a, b in zip(use_one.tolist(), one.outcome, other.outcome, strict=True)],
    )
