"""`Solution`: the filters of a batch and how they were found; `Outcome`: how each search ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

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
    parts: tuple[Solution, ...] = ()  # the solution that each sample belongs to, where they were solved apart

    def of_sample(self, sample: int) -> Solution:
        """The solution that a sample belongs to: its solver, reason and endpoint are that sample's own."""
        return self.parts[sample] if self.parts else self

    def outcomes(self, sample: int) -> list[Outcome]:
        """How the search for each map of one sample ended."""
        found = self.outcome[sample]
        return found if isinstance(found, list) else [found]


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
