"""`Linearised`: the exact filter of the head's tangent at the untouched filter; one run of the head and its gradient.

On the unit sphere a map of n positions keeps 1/sqrt(n) of its strength. A classifier's head is close to affine down to
there. A decoder's is not: rectifiers shut and norms take over, and the best filter there tells of a network that is
nearly switched off. The tangent o(f) = o(1) + J (f - 1) tells of the network as it is. A linear loss a . o is least at
f = -J^T a / ||J^T a||, and to keep the output is the sphere's least squares with this J.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..errors import MethodError
from ..numerics import rows
from ..problem import Problem, Tangent
from ..solution import Outcome
from .slope import said, tangent_contradicted
from .solver import Found, Solver
from .sphere import MOST_PRODUCTS, Nearest, by_products

TANGENT = "the filter is the optimum of the head's tangent at the untouched filter"
# The tangent stands for the head: what its best filter is more precisely than this shows in no map, and costs products.
# It bounds the error; what is met is mostly a third of it.
PRECISION = 3e-2


@dataclass(frozen=True)
class Linearised(Solver):
    """A run of the head and its gradient for linear losses; some products of both for sums of squares.

    The loss that it reports is that of the tangent, too. Whether the tangent is that of the head's values is looked at
    where no earlier run did; where it is not, the outcome is `stuck`.

    >>> import l2caf
    >>> network = torch.nn.Sequential(
    ...     torch.nn.Conv2d(3, 8, 8, stride=8),
    ...     torch.nn.ConvTranspose2d(8, 4, 8, stride=8),
    ...     torch.nn.Tanh(),
    ...     torch.nn.Conv2d(4, 2, 1),
    ... )
    >>> asked = l2caf.Region((0, 0, 8, 8), channel=1)
    >>> heatmap = l2caf.explain(network, torch.rand(1, 3, 32, 32), objective=asked, solver=Linearised())
    >>> heatmap, heatmap.solution.evaluations.tolist()
    (Heatmap(1 sample of 32×32, layer '0', AttentionFilter, first_order), [3])
    """

    def search(self, problem: Problem) -> Found:
        if not problem.filter.on_unit_sphere:
            raise MethodError(f"The filter is {problem.filter.name}, not UnitL2: use Riemannian or Auto.")
        tangent = problem.tangent
        linear = [loss.direction for loss in problem.losses if loss.direction is not None]
        reason = TANGENT
        if len(linear) == problem.maps:
            gradients = tangent.pull(torch.stack([rows(one) for one in linear]).to(tangent.value)).double()
            length = gradients.norm(dim=2, keepdim=True)
            weights = (-gradients / length.clamp_min(1e-300)).nan_to_num(0.0, 0.0, 0.0)
            loss = problem.at_untouched().double() + (gradients * (weights - 1)).sum(dim=2)
        else:
            found = [self._kept(problem, tangent, number) for number in range(problem.maps)]
            weights = torch.stack([one.weights for one in found]).nan_to_num(0.0, 0.0, 0.0)
            loss = torch.stack([one.loss for one in found])
            vague = (~torch.stack([one.certain for one in found]) & problem.finite).any(dim=0)
            if bool(vague.any()):
                reason += (
                    f", which {MOST_PRODUCTS} products left uncertain in {int(vague.sum())} of {len(vague)} samples"
                )
        moved = (weights != 0).any(dim=2).any(dim=0)
        outcome, spent = [[Outcome.FIRST_ORDER] * problem.batch for _ in range(problem.maps)], tangent.runs
        if not problem.has_known_slope:
            lies, more = tangent_contradicted(problem, weights)
            spent += more
            reason = "; ".join(filter(None, (reason, said(lies))))
            outcome = [
                [Outcome.STUCK if lie else one for lie, one in zip(lies.tolist(), row, strict=True)] for row in outcome
            ]
            moved |= lies
        evaluations = torch.full(loss.shape, spent)
        return Found(weights, loss, torch.ones_like(evaluations), evaluations, outcome, reason=reason, moved=moved)

    def _kept(self, problem: Problem, tangent: Tangent, number: int) -> Nearest:
        """The filters of a sum of squares, (B, n), and their losses."""
        loss = problem.losses[number]
        if loss.target is None or loss.metric is not None:
            raise MethodError("The objective is neither linear nor a sum of squares: use Riemannian or Auto.")
        missing = rows(loss.target).to(tangent.value) - tangent.value
        target = (tangent.along_untouched + missing).masked_fill(~problem.finite.unsqueeze(1), 0.0)
        return by_products(tangent, target, precision=PRECISION)
