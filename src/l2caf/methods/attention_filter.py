"""`AttentionFilter`: the constrained filter over a layer's positions; with UnitL2 it is L2-CAF."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from ..deadline import no_limit
from ..errors import InputError
from ..filters import Filter, UnitL2
from ..heads.endpoint import Endpoint
from ..heads.head import Head
from ..objectives.classes import ClassSpecific
from ..objectives.objective import General, Loss, Losses, Objective
from ..objectives.output import ClassOblivious
from ..objectives.prediction import Kind, Prediction
from ..problem import Problem
from ..recording.replay import OUTPUT
from ..solution import Outcome, Solution, of_frames, together
from ..solvers.auto import Auto
from ..solvers.known import at_once
from ..solvers.linearised import Linearised
from ..solvers.riemannian import Riemannian
from ..solvers.solver import Solver
from ..table import Entry, Table
from .method import Maps, Method
from .table import FILTERS, SOLVERS

UNIT_L2, AUTO = UnitL2(), Auto()

Frames = Literal["alone", "together"]
# All frames are searched as long as the slowest needs. Frames that hardly count have the roughest losses, so that by
# default their walkers would cost many times what the others do.
FRAME_BY_FRAME = Auto(Riemannian(exploring=160))

# A decoder that is nearly switched off, as it is on the unit sphere, is not the one that is asked about.
OF_A_PART = Auto(Linearised())


@dataclass(frozen=True)
class AttentionFilter(Method):
    """The filter f, held to its constraint, that minimises the objective of FT(f) = head(A * f).

    Where the layer sees the frames of a clip one by one, each frame has a filter of its own, found while the others are
    off (`frames="alone"`, as in the paper); with `frames="together"` they have one filter, under one norm.

    >>> import torch
    >>> network = torch.nn.Sequential(
    ...     torch.nn.Conv2d(3, 8, 4, stride=4), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    ... )
    >>> method = AttentionFilter(ClassSpecific(3))
    >>> method(network, torch.rand(2, 3, 32, 32)).outcome == ["exact", "exact"]
    True
    """

    objective: Objective | Callable[[Tensor], Tensor] | None = None
    filter: Filter = UNIT_L2
    solver: Solver = AUTO
    frames: Frames = "alone"

    def __post_init__(self) -> None:
        if self.frames not in ("alone", "together"):
            raise InputError(f"frames is {self.frames!r}: give 'alone' or 'together'.", field="frames")
        _check_part("filter", self.filter, Filter, FILTERS)
        _check_part("solver", self.solver, Solver, SOLVERS)

    @property
    def by_slope(self) -> bool:
        return self.chooses and self.filter.on_unit_sphere and as_objective(self.objective).is_slope

    @property
    def chooses(self) -> bool:
        """Whether it is left to `Auto` how to solve."""
        return self.solver is AUTO or self.solver == AUTO

    def formula(self, head: Head) -> Maps:
        objective = as_objective(self.objective)
        if head.layout.frames is None or self.frames == "together" or self.filter.over_frames:
            solution, asked = self._solve(head, objective)
        else:
            solution, asked = self._solve_frames(head, objective)
        return Maps(
            solution.shown,
            keeps_sign=asked.keeps_sign,
            classes=asked.classes,
            solution=solution,
            several=asked.several,
            region=objective.shown(head.output.detach()),
        )

    def _solve(self, head: Head, objective: Objective) -> tuple[Solution, Losses]:
        read = objective.reading(head.output.detach())
        if read is None:
            return self._put(head, objective)
        head = head.reading(read)
        if head.has_slope:
            return replace(self, solver=Linearised())._put_to([head], objective)
        if not self.chooses or not self.filter.on_unit_sphere:
            return self._put(head, objective)
        replay = head.in_full().replay
        if replay.was_curved:  # so it is not probed again; if it were affine by now, its tangent would be itself
            return replace(self, solver=Linearised())._put_to([head], objective)
        solution, asked = replace(self, solver=OF_A_PART)._put(head, objective)
        stuck = any(Outcome.STUCK in solution.outcomes(sample) for sample in range(head.batch))
        if _is_curved(head) and not stuck:
            replay.note_curved()
        return solution, asked

    def _put(self, head: Head, objective: Objective) -> tuple[Solution, Losses]:
        """Put an objective to the samples of a batch that are alike."""
        return self._put_to(head.alike(objective.at, needs_scale=objective.needs_scale), objective)

    def _put_to(self, views: list[Head], objective: Objective) -> tuple[Solution, Losses]:
        found: list[Solution] = []
        for view in views:  # mostly one, for all samples
            problem, asked = pose(view, self.filter, objective)
            by_slope = isinstance(self.solver, Linearised) or (self.solver == OF_A_PART and _is_curved(view))
            if objective.instead is not None and problem.is_scale_invariant(by_slope=by_slope):
                problem, asked = pose(view, self.filter, objective.instead)
            known = at_once(problem, several=asked.several) if self.chooses else None
            found.append(known or self.solver.solve(problem, several=asked.several))
        return found[0] if len(found) == 1 else together(found, [view.samples for view in views]), asked

    def _solve_frames(self, head: Head, objective: Objective) -> tuple[Solution, Losses]:
        """Each frame of a clip while the others are off: all at once, or where that cannot be, one after the other."""
        if self.chooses:
            return replace(self, solver=FRAME_BY_FRAME)._solve_frames(head, objective)
        number, batch = head.layout.frames or 1, head.batch
        repeated = objective.repeated(number)
        each = None if repeated is None else head.each_frame()
        if repeated is not None and each is not None:
            solution, asked = self._solve(each, repeated)
            blocks = [slice(start, start + batch) for start in range(0, number * batch, batch)]
            solutions, changed = [solution[block] for block in blocks], self._change_without(each, repeated)
            change = torch.stack([changed[block] for block in blocks], dim=-1)
            asked = replace(asked, classes=None if asked.classes is None else asked.classes[:batch])
        else:
            views = head.frames()
            solved = [self._solve(view, objective) for view in views]
            solutions, asked = [one for one, _ in solved], solved[0][1]
            change = torch.stack([self._change_without(view, objective) for view in views], dim=-1)
        # A frame that speaks against a class weighs nothing, unless all of them do.
        growth = change.clamp_min(0)
        growth = torch.where(growth.any(dim=-1, keepdim=True), growth, change.abs())
        share = growth / growth.sum(dim=-1, keepdim=True).clamp_min(torch.finfo(growth.dtype).tiny)
        return of_frames(solutions, share), asked

    @torch.no_grad()
    def _change_without(self, head: Head, objective: Objective) -> Tensor:
        """By how much the losses change when all that a head filters is switched off: (B,), or (B, K)."""
        read = objective.reading(head.output.detach())
        problem, asked = pose(head if read is None else head.reading(read), self.filter, objective)
        with no_limit():
            off = problem.value(torch.zeros(problem.maps, problem.batch, problem.positions, device=problem.device))
        change = (off.double() - problem.at_untouched()).nan_to_num(0.0, 0.0, 0.0)
        return change.transpose(0, 1) if asked.several else change[0]


def _is_curved(head: Head) -> bool:
    return not (head.is_affine or head.in_full().is_affine_where_positive)


def pose(head: Head, filter: Filter, objective: Objective) -> tuple[Problem, Losses]:
    """Put an objective to a network: at its endpoint, all maps together."""
    endpoint = head.endpoint(objective.at, needs_scale=objective.needs_scale)
    if objective.only_of_output and endpoint.at != OUTPUT:
        endpoint = Endpoint(informative=False)
    asked = objective.losses(head.value(endpoint.at).detach())
    if not type(objective).__module__.startswith(OURS):
        _check_losses(objective, asked)
    if not type(filter).__module__.startswith(OURS):
        _check_weights(filter, head)
    return Problem(head, filter, asked.losses, endpoint), asked


@dataclass(frozen=True)
class _Custom(Objective):
    function: Callable[[Tensor], Tensor]

    def losses(self, output: Tensor) -> Losses:
        return Losses((General(self.function),))


def as_objective(objective: Objective | Callable[[Tensor], Tensor] | None) -> Objective:
    """Take an objective, a plain function of the output, or nothing (class-oblivious)."""
    if objective is None:
        return ClassOblivious()
    if isinstance(objective, Objective):
        return objective
    if isinstance(objective, type):
        raise InputError(f"The objective is the class {objective.__name__}: give an object, {objective.__name__}(…).")
    if callable(objective):
        return _Custom(objective)
    raise InputError(
        f"The objective is a {type(objective).__name__}: give an objective or a function of the output, such as"
        " ClassSpecific(281) for a class."
    )


def _check_part(name: str, given: object, kind: type, table: Table[Entry]) -> None:
    """Refuse a class in place of an object, and the word of the command line."""
    if isinstance(given, kind):
        return
    if isinstance(given, type) and issubclass(given, kind):
        raise InputError(f"The {name} is the class {given.__name__}: give an object, {given.__name__}().", field=name)
    entry = table[given] if isinstance(given, str) and given in table else next(iter(table.values()))
    made = entry.home.partition(":")[2]
    what = repr(given) if isinstance(given, str) else f"a {type(given).__name__}"
    raise InputError(f"The {name} is {what}: give an object, such as {made}().", field=name)


OURS = "l2caf."  # what others derive from our classes is checked


def _check_losses(objective: Objective, asked: object) -> None:
    """Refuse what an objective of the user's own gives and no solver can work on."""
    if isinstance(asked, Losses) and asked.losses and all(isinstance(one, Loss) for one in asked.losses):
        return
    raise InputError(
        f"The losses of {type(objective).__name__} are not what a solver can work on: return Losses((loss, …)) with at"
        " least one of Linear, LeastSquares or General."
    )


def _check_weights(filter: Filter, head: Head) -> None:
    """Refuse a filter of the user's own whose weights are not one per position."""
    weights = filter.weights(filter.start(1, head.layout.shape), head.layout.shape)
    if not isinstance(weights, Tensor) or weights.shape != (1, head.positions):
        got = tuple(weights.shape) if isinstance(weights, Tensor) else f"a {type(weights).__name__}"
        raise InputError(
            f"The weights of {filter.name} for one sample of {head.positions} positions are {got}: return a tensor of"
            f" shape (batch, positions), here (1, {head.positions}).",
            field="filter",
        )


def class_oblivious(filter: str = "l2") -> AttentionFilter:
    """The method of the table that keeps the output as it is, by the key of its filter."""
    return AttentionFilter(ClassOblivious(), FILTERS[filter].load()())


def prediction(temperature: float | None = None, kind: Kind = "softmax") -> AttentionFilter:
    """The method of the table that keeps what the network says."""
    return AttentionFilter(Prediction(kind=kind) if temperature is None else Prediction(temperature, kind))


def class_specific(
    *,
    classes: int | Sequence[int] | None = None,
    top: int | None = None,
    labels: Sequence[int] | Tensor | None = None,
    published: bool = False,
) -> AttentionFilter:
    """The method of the table that raises a class above the others."""
    return AttentionFilter(ClassSpecific(classes=classes, top=top, labels=labels, published=published))
