"""`Solution`: the filters of a batch and how they were found; `Outcome`: how each search ended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

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
