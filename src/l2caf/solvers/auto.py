"""`Auto`: the solver that fits, chosen by looking at the problem, and the reason."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ..problem import Problem
from .exact import Exact
from .riemannian import Riemannian
from .solver import Found, Solver, each_map


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

    Questions about a part of the output (`Region`) have Linearised in place of Riemannian.

    >>> import l2caf
    >>> network = torch.nn.Sequential(
    ...     torch.nn.Conv2d(3, 8, 4, stride=4), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    ... )
    >>> solution = l2caf.explain(network, torch.rand(1, 3, 32, 32), solver=Auto()).solution
    >>> solution.solver, solution.reason
    ('Exact', 'the output is affine in the filter')
    """

    riemannian: Solver = field(default_factory=Riemannian)

    def choose(self, problem: Problem) -> tuple[Solver, str]:
        """Return the solver and the reason for it."""
        exact = Exact()
        why_not = exact.why_not(problem)
        if why_not is not None:
            return self.riemannian, why_not
        if not problem.holds_for_any_sign:
            return exact, "the output is affine in filters that are nowhere negative, and this is the best of them"
        return exact, exact.why(problem)

    def search(self, problem: Problem) -> Found:
        kinds = {(loss.is_linear, loss.target is None) for loss in problem.approximated.losses}
        if len(kinds) > 1:  # each map by the solver that fits its own loss
            return each_map(problem, self.search)
        solver, why = self.choose(problem)
        if not isinstance(solver, Exact):
            found = solver.search(problem)
            return replace(found, solver=solver.name, reason=_joined(why, found.reason))
        found, accepted = solver.attempt(problem)
        if accepted is None:
            return replace(found, solver=solver.name, reason=_joined(why, found.reason))
        # Where the exact filter is refused the head is not what it looked like, so it is computed in full.
        descent = self.riemannian.search(problem.without_shortcuts())
        refused = (~accepted).any(dim=0)
        why = f"{why}, but the exact filter of {int(refused.sum())} of {problem.batch} samples lies where it is not"
        names = [self.riemannian.name] if not bool(accepted.any()) else [solver.name, self.riemannian.name]
        merged = _merged(found, descent, accepted)
        return replace(merged, solver=" and ".join(names), reason=_joined(why, found.reason, descent.reason))


def _joined(*reasons: str) -> str:
    return "; ".join(reason for reason in reasons if reason)


def _merged(one: Found, other: Found, use_one: Tensor) -> Found:
    """Take each map of each sample from the one or the other."""
    return Found(
        weights=torch.where(use_one.unsqueeze(2), one.weights, other.weights.to(one.weights)),
        loss=torch.where(use_one, one.loss, other.loss.to(one.loss)),
        steps=torch.where(use_one, one.steps.to(other.steps), other.steps),
        evaluations=torch.where(use_one, one.evaluations.to(other.steps), other.evaluations),
        outcome=[
            [a if use else b for use, a, b in zip(*row, strict=True)]
            for row in zip(use_one.tolist(), one.outcome, other.outcome, strict=True)
        ],
        even=other.even if one.even is None or other.even is None else torch.where(use_one, one.even, other.even),
    )
