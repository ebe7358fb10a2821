"""A head that is known, and a question whose answer is clear: what `Exact` finds and is judged to be, at once.

Most second calls are of this kind: every number is finite, each filter is plainly not the uniform one, and gains more
than rounding. Whatever is not as clear is for the solver, which looks at it from every side.
"""

from __future__ import annotations

import numpy as np
import torch

from ..numerics import FLAT
from ..problem import Problem
from ..solution import Outcome, Solution
from .exact import Exact
from .outcomes import rounding_array


def at_once(problem: Problem, *, several: bool) -> Solution | None:
    """The solution, or None where it takes a solver to find it or to say what it is worth."""
    if not (problem.is_known and problem.all_finite and problem.verified and problem.filter.on_unit_sphere):
        return None
    if not problem.informative or problem.best_met is not None or (problem.maps > 1 and not several):
        return None
    posed = problem.approximated
    if not (posed.is_linear or all(loss.target is not None for loss in posed.losses)):
        return None
    solved = EXACT.solved(problem)
    if solved is None:
        return None
    weights, loss = solved.weights.cpu().numpy(), solved.loss.cpu().numpy()
    least, most = weights.min(axis=2), weights.max(axis=2)
    gained = solved.even.cpu().numpy() - loss
    # That a filter gains something tells, too, that what is filtered moves the output.
    clear = (most - least > FLAT * np.maximum(most, -least)) & (gained > rounding_array(problem, solved.even))
    if not clear.all():
        return None
    rows = problem.batch if several else problem.maps
    found = solved.weights.float().unflatten(2, problem.grid)
    none = torch.zeros(loss.shape, dtype=torch.int64)
    outcome: list[list[Outcome]] = [[Outcome.EXACT] * (loss.size // rows) for _ in range(rows)]
    why = EXACT.why(problem)
    return Solution(
        filter=found.transpose(0, 1) if several else found[0],
        loss=solved.loss.T if several else solved.loss[0],
        steps=none.T if several else none[0],
        evaluations=none.T if several else none[0],
        outcome=outcome if several else outcome[0],
        solver=EXACT.name,
        reason=f"{why}; {solved.reason}" if solved.reason else why,
        endpoint="output",
    )


EXACT = Exact()
