"""`Solution`: the filters of a batch and how they were found; `Outcome`: how each search ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


class Outcome(StrEnum):
    """How the search for one filter ended; each says one thing, and `sentence` says it in words."""

    EXACT = "exact"
    CONVERGED = "converged"
    STEP_LIMIT = "step_limit"
    STUCK = "stuck"
    UNIFORM = "uniform"
    UNMOVED = "unmoved"
    UNDECIDED = "undecided"
    NON_FINITE = "non_finite"

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
    Outcome.STEP_LIMIT: "the best filter found before the evaluations ran out",
    Outcome.STUCK: "the best filter found, but the gradient leads nowhere there or contradicts the values",
    Outcome.UNIFORM: "no position matters more than another",
    Outcome.UNMOVED: "nothing that is filtered here moves the output",
    Outcome.UNDECIDED: "a filter was found, but whether the layer's positions answer to the input beneath them is open",
    Outcome.NON_FINITE: "the network gave NaN or infinity",
}


@dataclass(frozen=True)
class Solution:
    """The filters of a batch and how they were found.

    `filter` is (B, *grid) and `loss`, `steps`, `evaluations` are (B,); with several maps per sample there is a second
    axis, and `outcome` is a list of lists. A loss belongs to the filter beside it, also where that filter shows
    nothing; it is NaN where the network gave NaN or infinity, and the filter is 0 there. `evaluations` counts how often
    the filtered network (or the part of it that is not affine in the filter) was computed with its gradient, or without
    it where none was to be had. `path`, where it was asked for, is (steps, B, *grid), with the losses along it in
    `losses`; a search that ended before the others stays where it ended.
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
        nothing = [[one.shows_nothing for one in self.outcomes(sample)] for sample in range(len(self.filter))]
        if not any(any(row) for row in nothing):
            return self.filter
        hidden = self.loss.new_tensor(nothing).bool().reshape(self.loss.shape)
        return self.filter.masked_fill(hidden.reshape(*hidden.shape, *[1] * (self.filter.ndim - hidden.ndim)), 0.0)


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
