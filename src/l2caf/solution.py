"""`Solution`: the filters of a batch and how they were found; `Outcome`: how each search ended."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from .errors import InputError, SampleError

if TYPE_CHECKING:
    from torch import Tensor


class Outcome(StrEnum):
    """How the search for one filter ended; each says one thing, and `sentence` says it in words.

    An outcome is a string: it compares with its word and is written as it.

    >>> Outcome.EXACT == "exact", Outcome("time_limit").sentence
    (True, 'the best filter found before the time ran out')
    """

    EXACT = "exact"
    CONVERGED = "converged"
    FIRST_ORDER = "first_order"
    STEP_LIMIT = "step_limit"
    TIME_LIMIT = "time_limit"
    STUCK = "stuck"
    UNIFORM = "uniform"
    UNMOVED = "unmoved"
    UNDECIDED = "undecided"
    NON_FINITE = "non_finite"
    FORMULA = "formula"

    @property
    def sentence(self) -> str:
        """What it means, in words for a person who looks at the map.

        >>> Outcome.UNIFORM.sentence
        'no position matters more than another'
        """
        return _SENTENCES[self]

    @property
    def shows_nothing(self) -> bool:
        """Whether there is no map to look at: it is all 0.

        >>> [str(outcome) for outcome in Outcome if outcome.shows_nothing]
        ['uniform', 'unmoved', 'non_finite']
        """
        return self in (Outcome.UNIFORM, Outcome.UNMOVED, Outcome.NON_FINITE)


_SENTENCES = {
    Outcome.EXACT: "the global optimum, in closed form",
    Outcome.CONVERGED: "the solver's own test of convergence was met",
    Outcome.FIRST_ORDER: "the optimum to first order, for the network as it is",
    Outcome.STEP_LIMIT: "the best filter found before the evaluations ran out",
    Outcome.TIME_LIMIT: "the best filter found before the time ran out",
    Outcome.STUCK: "the best filter found, but the gradient leads nowhere there or contradicts the values",
    Outcome.UNIFORM: "no position matters more than another",
    Outcome.UNMOVED: "nothing that is filtered here moves the output",
    Outcome.UNDECIDED: "a filter was found, but whether the layer's positions answer to the input beneath them is open",
    Outcome.NON_FINITE: "the network gave NaN or infinity",
    Outcome.FORMULA: "computed by a formula, with nothing to search for",
}


@dataclass(frozen=True, eq=False)
class Solution:
    """The filters of a batch and how they were found.

    `filter` is (B, *grid) and `loss`, `steps`, `evaluations` are (B,); with several maps per sample there is a second
    axis, and `outcome` is a list of lists. A loss belongs to the filter beside it, also where that filter shows
    nothing; it is NaN where the network gave NaN or infinity, and the filter is 0 there. `evaluations` counts how often
    the filtered network (or the part of it that is not affine in the filter) was computed with its gradient, or without
    it where none was to be had. `path`, where it was asked for, is (steps, B, *grid), with the losses along it in
    `losses`; a search that ended before the others stays where it ended.

    Of a clip whose frames were filtered one at a time, `frames` has the solution of each frame, and this is their sum:
    the losses, steps and evaluations of all, and the outcome that says least. `frame_weights`, (B, T), tells how much
    each frame weighs: by how much the loss grows when it is switched off, as a share of all frames'.

    CAM, Grad-CAM and other formulas search for nothing: `filter` is then their map, `loss` NaN, and the outcome
    `formula` (`is_formula`), or what else is to be said of the sample. `solution[1]`, `solution[:2]` are those of some
    samples.

    >>> import l2caf, torch
    >>> network = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 4, stride=4), torch.nn.AdaptiveAvgPool2d(1))
    >>> solution = l2caf.explain(network, torch.rand(2, 3, 32, 32)).solution
    >>> solution.solver, solution.reason, solution.outcome[0].sentence
    ('Exact', 'the output is affine in the filter', 'the global optimum, in closed form')
    """

    filter: Tensor
    loss: Tensor
    steps: Tensor
    evaluations: Tensor
    outcome: list[Outcome] | list[list[Outcome]]
    solver: str
    reason: str
    endpoint: str
    path: Tensor | None = None
    losses: Tensor | None = None
    parts: tuple[Solution, ...] = ()  # the solution that each sample belongs to, where they were solved apart
    frames: tuple[Solution, ...] = ()
    frame_weights: Tensor | None = None

    @classmethod
    def of_formula(cls, method: str, weights: Tensor, outcome: Any = None) -> Solution:
        """What is to be said of maps, (B, *grid) or (B, K, *grid), that a formula gave."""
        outcome = [Outcome.FORMULA] * weights.shape[0] if outcome is None else outcome
        several = bool(outcome) and isinstance(outcome[0], list)
        shape = weights.shape[: 2 if several else 1]
        return cls(
            filter=weights,
            loss=weights.new_full(shape, float("nan")),
            steps=weights.new_zeros(shape).long(),
            evaluations=weights.new_zeros(shape).long(),
            outcome=outcome,
            solver=FORMULA,
            reason=f"{method} is computed by a formula",
            endpoint="output",
        )

    @property
    def is_formula(self) -> bool:
        """Whether a formula gave it, and no search."""
        return self.solver == FORMULA

    def __getitem__(self, samples: Any) -> Solution:
        """The solution of some samples: of one, a batch of one."""
        chosen = chosen_samples(samples, len(self.outcome))
        return replace(
            self,
            **{name: getattr(self, name)[chosen] for name in ("filter", "loss", "steps", "evaluations")},
            outcome=[self.outcome[one] for one in chosen],  # type: ignore[arg-type]
            path=None if self.path is None else self.path[:, chosen],
            losses=None if self.losses is None else self.losses[:, chosen],
            parts=tuple(self.parts[one] for one in chosen) if self.parts else (),
            frames=tuple(frame[chosen] for frame in self.frames),
            frame_weights=None if self.frame_weights is None else self.frame_weights[chosen],
        )

    def __eq__(self, other: object) -> bool:
        return same(self, other) if isinstance(other, Solution) else NotImplemented

    def __hash__(self) -> int:
        return hash((tuple(self.filter.shape), self.solver, self.reason, self.endpoint))

    def __getstate__(self) -> dict[str, Any]:
        return alone(self.__dict__)

    def of_sample(self, sample: int) -> Solution:
        """The solution that a sample belongs to: its solver, reason and endpoint are that sample's own."""
        return self.parts[sample] if self.parts else self

    def outcomes(self, sample: int) -> list[Outcome]:
        """How the search for each map of one sample ended."""
        found = self.outcome[sample]
        return found if isinstance(found, list) else [found]

    @property
    def shown(self) -> Tensor:
        """The filters as maps to look at: all 0 where one shows nothing."""
        if self.frames:
            return _beside_one_another([frame.shown for frame in self.frames], self.loss.ndim)
        ended = {one for row in self.outcome for one in (row if isinstance(row, list) else (row,))}
        if not ended & _HIDING:
            return self.filter
        nothing = [[one.shows_nothing for one in self.outcomes(sample)] for sample in range(len(self.filter))]
        hidden = self.loss.new_tensor(nothing).bool().reshape(self.loss.shape)
        if Outcome.TIME_LIMIT in ended:  # a search that did not leave the uniform filter has nothing to show either
            values = self.filter.flatten(self.loss.ndim)
            hidden = hidden | (values.amax(dim=-1) == values.amin(dim=-1))
        return self.filter.masked_fill(hidden.reshape(*hidden.shape, *[1] * (self.filter.ndim - hidden.ndim)), 0.0)


FORMULA = "formula"  # in place of a solver
_HIDING = {Outcome.UNIFORM, Outcome.UNMOVED, Outcome.NON_FINITE, Outcome.TIME_LIMIT}


def chosen_samples(asked: Any, count: int) -> list[int]:
    """The samples that an index, a slice, or a list of indices stands for."""
    if isinstance(asked, slice):
        return list(range(count))[asked]
    asked = asked.tolist() if hasattr(asked, "tolist") else asked  # torch's and numpy's
    try:
        if any(isinstance(one, bool) for one in (asked if isinstance(asked, list) else [asked])):
            raise TypeError
        listed = [operator.index(one) for one in asked] if isinstance(asked, list) else [operator.index(asked)]
    except TypeError as error:
        raise InputError(
            f"Samples are chosen by a whole number, a slice or a list of numbers, not by {asked!r}: for anything else"
            " index heatmap.maps."
        ) from error
    for one in listed:
        if not -count <= one < count:
            # An IndexError too, since that is what ends a loop over what has no __iter__ of its own.
            words = "is 1 sample" if count == 1 else f"are {count} samples"
            raise SampleError(f"There {words}, so an index must be below that, not {one}.")
    return [one % count for one in listed]


def alone(state: dict[str, Any]) -> dict[str, Any]:
    """What is pickled of a result: copies of its tensors, since a part of a batch would bring all of its storage."""
    return {name: value.clone() if hasattr(value, "clone") else value for name, value in state.items()}


def same(one: Any, other: Any) -> bool:
    """Whether two results hold the same: NaN equals NaN, and where tensors are kept makes no difference."""
    if hasattr(one, "__dataclass_fields__"):
        return type(one) is type(other) and all(
            same(getattr(one, own.name), getattr(other, own.name)) for own in fields(one) if own.compare
        )
    if isinstance(one, tuple):
        return isinstance(other, tuple) and len(one) == len(other) and all(map(same, one, other))
    if not hasattr(one, "detach"):
        return type(one) is type(other) and bool(one == other)
    if not hasattr(other, "detach") or one.shape != other.shape or one.dtype != other.dtype:
        return False
    mine, theirs = one.detach().cpu(), other.detach().cpu()
    return bool(((mine == theirs) | ((mine != mine) & (theirs != theirs))).all())


def together(parts: Sequence[Solution], samples: Sequence[Any]) -> Solution:
    """Put solutions of the same batch together: each of some samples, (B,), that were solved apart from the others."""
    first = parts[0]
    owner = [next(number for number, mask in enumerate(samples) if mask[one]) for one in range(len(first.outcome))]
    filters, loss, steps, evaluations = (
        getattr(first, name).clone() for name in ("filter", "loss", "steps", "evaluations")
    )
    for part, mask in zip(parts[1:], samples[1:], strict=True):
        filters[mask], loss[mask] = part.filter[mask].to(filters), part.loss[mask].to(loss)
        steps[mask], evaluations[mask] = part.steps[mask].to(steps), part.evaluations[mask].to(evaluations)

    def each_once(name: str, between: str) -> str:
        return between.join(dict.fromkeys(getattr(part, name) for part in parts))

    return Solution(
        filter=filters,
        loss=loss,
        steps=steps,
        evaluations=evaluations,
        outcome=[parts[number].outcome[one] for one, number in enumerate(owner)],  # type: ignore[arg-type]
        solver=each_once("solver", " and "),
        reason=each_once("reason", "; "),
        endpoint=each_once("endpoint", " and "),
        parts=tuple(parts[number] for number in owner),
    )


def of_frames(frames: Sequence[Solution], weights: Tensor) -> Solution:
    """Put the solutions of a clip's frames together, with how much each of them weighs: (B, T), or (B, K, T)."""
    first = frames[0]

    def summed(name: str) -> Tensor:
        total: Tensor = sum(getattr(frame, name) for frame in frames)
        return total

    def each_once(name: str, between: str) -> str:
        return between.join(dict.fromkeys(getattr(frame, name) for frame in frames))

    outcomes = [[least(own) for own in zip(*(frame.outcomes(one) for frame in frames), strict=True)]
                for one in range(len(first.outcome))]  # fmt: skip
    several = bool(first.outcome) and isinstance(first.outcome[0], list)
    return Solution(
        filter=_beside_one_another([frame.filter for frame in frames], first.loss.ndim),
        loss=summed("loss"),
        steps=summed("steps"),
        evaluations=summed("evaluations"),
        outcome=outcomes if several else [row[0] for row in outcomes],
        solver=each_once("solver", " and "),
        reason=each_once("reason", "; "),
        endpoint=each_once("endpoint", " and "),
        frames=tuple(frames),
        frame_weights=weights,
    )


def least(outcomes: Sequence[Outcome]) -> Outcome:
    """Of the outcomes of several frames, the one that says least of those that show something, if any does."""
    showing = [one for one in outcomes if not one.shows_nothing or one is Outcome.NON_FINITE] or list(outcomes)
    return max(showing, key=_FROM_SURE.index)


_FROM_SURE = [
    Outcome.FORMULA, Outcome.EXACT, Outcome.CONVERGED, Outcome.FIRST_ORDER, Outcome.STEP_LIMIT, Outcome.TIME_LIMIT,
    Outcome.STUCK, Outcome.UNIFORM, Outcome.UNMOVED, Outcome.UNDECIDED, Outcome.NON_FINITE,
]  # fmt: skip


def _beside_one_another(frames: list[Tensor], axis: int) -> Tensor:
    """The maps of frames along an axis of their own, after those of samples and maps."""
    import torch

    return torch.stack(frames, dim=axis)
