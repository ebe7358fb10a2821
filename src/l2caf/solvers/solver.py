"""The one entry to every solver, and what a search gives."""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..deadline import OutOfTime, no_limit
from ..errors import InputError
from ..problem import Problem
from ..solution import Outcome, Solution
from .outcomes import judged


@dataclass(frozen=True)
class Found:
    """What a search gives: (K, B, n) weights and, per map and sample, (K, B), loss, steps, evaluations, outcome.

    `even` are the losses of the uniform filter, (K, B), where the search met it. `path`, (steps, K, B, n), and the
    `losses` along it, (steps, K, B), are there where they were asked for.

    >>> one = torch.ones(1, 1, dtype=torch.int64)
    >>> found = Found(torch.rand(1, 1, 49), torch.zeros(1, 1), one, one, [[Outcome.CONVERGED]])
    >>> Found.stacked([found, found]).weights.shape
    torch.Size([2, 1, 49])
    """

    weights: Tensor
    loss: Tensor
    steps: Tensor
    evaluations: Tensor
    outcome: list[list[Outcome]]
    even: Tensor | None = None
    path: Tensor | None = None
    losses: Tensor | None = None
    solver: str = ""  # which solver it was, and why that one, where one was chosen
    reason: str = ""
    moved: Tensor | None = None  # which samples the search saw moved, (B,), where it looked

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
            even=_side_by_side([part.even for part in parts], axis=0),
            path=_side_by_side([part.path for part in parts], axis=1),
            losses=_side_by_side([part.losses for part in parts], axis=1),
            solver=_each_once([part.solver for part in parts], " and "),
            reason=_each_once([part.reason for part in parts], "; "),
        )


class Solver(abc.ABC):
    """Finds, for every map and sample of a problem, a filter of small loss.

    A solver of one's own searches; judging and laying out what it found is done for it:

    >>> class Uniform(Solver):
    ...     def search(self, problem):
    ...         start = problem.filter.start(problem.batch, problem.grid)
    ...         weights = problem.filter.weights(start, problem.grid).expand(problem.maps, -1, -1)
    ...         loss = problem.value(weights).detach()
    ...         once = torch.ones_like(loss, dtype=torch.int64)
    ...         return Found(weights, loss, once, once, [[Outcome.STEP_LIMIT] * problem.batch] * problem.maps)
    >>> import l2caf
    >>> network = torch.nn.Sequential(
    ...     torch.nn.Conv2d(3, 8, 4, stride=4), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    ... )
    >>> str(l2caf.explain(network, torch.rand(1, 3, 32, 32), solver=Uniform()).outcome[0])
    'uniform'
    """

    @property
    def name(self) -> str:
        return type(self).__name__

    @abc.abstractmethod
    def search(self, problem: Problem) -> Found:
        """Search; samples that are not finite may come back as anything."""

    def solve(self, problem: Problem, *, several: bool = False) -> Solution:
        """Search, judge what was found, and lay it out on the grid; with `several`, maps have an axis of their own."""
        if problem.maps > 1 and not several:
            raise InputError(
                f"The objective gives {problem.maps} losses for one map per sample: give one, or say several=True."
            )
        found = in_time(self.search, problem)
        if problem.best_met is None:
            found = judged(found, problem)
        else:
            with no_limit():
                found = judged(found, problem)

        def laid_out(values: Tensor) -> Tensor:
            return values.transpose(0, 1) if several else values[0]

        def along(path: Tensor | None) -> Tensor | None:
            return None if path is None else path.transpose(1, 2) if several else path[:, 0]

        weights = found.weights.float().unflatten(2, problem.grid)
        path = None if found.path is None else found.path.unflatten(3, problem.grid)
        return Solution(
            filter=laid_out(weights),
            loss=laid_out(found.loss),
            steps=laid_out(found.steps),
            evaluations=laid_out(found.evaluations),
            outcome=[list(row) for row in zip(*found.outcome, strict=True)] if several else found.outcome[0],
            solver=found.solver or self.name,
            reason=found.reason or ASKED,
            endpoint=problem.endpoint,
            path=along(path),
            losses=along(found.losses),
        )


def check_counts(solver: Solver, *names: str) -> None:
    """Refuse a number of steps, evaluations or the like that goes nowhere."""
    for name in names:
        given = getattr(solver, name)
        if isinstance(given, bool) or not isinstance(given, int) or given < 1:
            raise InputError(f"A search of {name}={given!r} goes nowhere: give a whole number, at least 1.")


def each_map(problem: Problem, search: Callable[[Problem], Found]) -> Found:
    """Search for every map by itself."""
    return Found.stacked([in_time(search, problem.one(number)) for number in range(problem.maps)])


def in_time(search: Callable[[Problem], Found], problem: Problem) -> Found:
    """Search; where the time is over before the end, the best filters that were met until then."""
    try:
        return search(problem)
    except OutOfTime:
        met = problem.best_met
        assert met is not None
    with no_limit(), torch.no_grad():
        never = ~met.losses.isfinite()
        if bool(never.any()):  # the uniform filter, then, and its loss
            start = problem.filter.start(problem.batch, problem.grid).to(problem.device)
            uniform = problem.filter.weights(start, problem.grid).float().expand(problem.maps, -1, -1)
            problem.value(uniform)
            met.weights[never] = uniform[never]
    outcome = [[Outcome.TIME_LIMIT] * problem.batch for _ in range(problem.maps)]
    return Found(met.weights, met.losses, met.tried, met.tried, outcome, reason="the time ran out")


ASKED = "asked for"  # the reason for a solver that was not chosen but named


def _side_by_side(parts: list[Tensor | None], *, axis: int) -> Tensor | None:
    """Join what belongs to several maps along their axis; a search that took fewer steps stays where it ended."""
    kept = [part for part in parts if part is not None]
    if len(kept) < len(parts):
        return None
    if axis == 1:
        longest = max(len(part) for part in kept)
        kept = [torch.cat([part, *[part[-1:]] * (longest - len(part))]) for part in kept]
    return torch.cat(kept, dim=axis)


def _each_once(words: list[str], between: str) -> str:
    return between.join(dict.fromkeys(word for word in words if word))
