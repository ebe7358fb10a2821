"""`Solution`: the filters of a batch and how they were found; `Outcome`: how each search ended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


class Outcome(StrEnum):
    """How the search for one filter ended."""

    EXACT = "exact"  # the global optimum, in closed form
    CONVERGED = "converged"  # the solver's own test of convergence was met
    STEP_LIMIT = "step_limit"  # the best found before the steps ran out
    UNINFORMATIVE = "uninformative"  # every filter, or the uniform one, does as well: the map shows nothing
    NON_FINITE = "non_finite"  # the network gave NaN or infinity; the filter is all zero


@dataclass(frozen=True)
class Solution:
    """The filters of a batch and how they were found.

    `filter` is (B, *grid) and `loss`, `steps`, `evaluations` are (B,); with several maps per sample there is a second
    axis, and `outcome` is a list of lists. `evaluations` counts how often the filtered network (or the part of it
    that is not affine in the filter) was computed with its gradient. `path`, where it was asked for, is
    (steps, B, *grid), with the losses along it in `losses`.
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
