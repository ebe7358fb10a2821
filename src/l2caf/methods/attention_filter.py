"""`AttentionFilter`: the constrained filter over a layer's positions; with UnitL2 it is L2-CAF."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from ..filters import Filter, UnitL2
from ..heads.head import Head
from ..objectives import Objective, as_objective
from ..problem import pose
from ..solvers.auto import Auto
from ..solvers.solver import Solver, stacked
from .method import Maps, Method


@dataclass(frozen=True)
class AttentionFilter(Method):
    """The filter f, held to its constraint, that minimises the objective of FT(f) = head(A * f)."""

    objective: Objective | Callable[[Tensor], Tensor] | None = None
    filter: Filter = field(default_factory=UnitL2)
    solver: Solver = field(default_factory=Auto)

    def formula(self, head: Head) -> Maps:
        problems, asked = pose(head, self.filter, as_objective(self.objective))
        solutions = [self.solver.solve(problem) for problem in problems]
        solution = stacked(solutions) if asked.several else solutions[0]
        return Maps(solution.filter, keeps_sign=asked.signed, classes=asked.classes, solution=solution)
