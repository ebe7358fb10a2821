"""`Exact`: the global optimum in closed form, where the endpoint is affine in the filter.

With o(f) = b + J f and ||f|| = 1:

- a linear loss a . o is least at f = -g / ||g||, g = J^T a;
- ||o(1) - o(f)||^2 = ||J (f - 1)||^2 is least at f = (G + lam I)^-1 G 1, G = J^T J, where lam > 0 is the only root
  of ||f(lam)|| = 1. That is the trust-region problem; since ||1|| > 1 the multiplier is positive and the optimum
  is unique, unless the part of 1 that J can see is itself shorter than 1. Then (the hard case) the loss is nought
  for a whole family of filters, and the one nearest to the untouched filter 1 is taken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import MethodError
from ..filters import UnitL2
from ..heads.affine import AffineMap
from ..numerics import rows
from ..objectives.objective import LeastSquares, Linear
from ..problem import Family, Problem
from ..recording.replay import OUTPUT
from ..solution import Outcome
from .solver import Found, Solver
from .sphere import nearest_on_sphere


@dataclass(frozen=True)
class Exact(Solver):
    """One matrix product or one small eigenproblem; no iterations through the network."""

    def search(self, problem: Problem) -> Found:
        why_not = self.why_not(problem)
        if why_not:
            raise MethodError(f"There is no exact solution here: {why_not}; use Riemannian or Auto.")
        found, accepted = self.attempt(problem)
        if not accepted.all():
            raise MethodError(
                f"The exact filter of {int((~accepted).sum())} samples lies where the head is not affine: "
                "use Riemannian or Auto."
            )
        return found

    def why_not(self, problem: Problem) -> str | None:
        """Say what stands against an exact solution, or None."""
        if not isinstance(problem.filter, UnitL2):
            return f"the filter is {problem.filter.name}, not UnitL2"
        if not isinstance(problem.loss, (LeastSquares, Linear)):
            return "the objective is neither linear nor a sum of squares in the output"
        if isinstance(problem.loss, LeastSquares) and not problem.head.fits(problem.endpoint):
            return f"the {problem.endpoint_name} has too many numbers to be written out as a map of the filter"
        if problem.endpoint != OUTPUT:
            return None if problem.endpoint in problem.head.affine_calls else "the endpoint is not affine in the filter"
        if not (problem.head.is_affine or problem.head.is_affine_where_positive):
            return "the network's output is not affine in the filter"
        return None

    def attempt(self, problem: Problem) -> tuple[Found, Tensor]:
        """Solve, and tell for each sample whether the solution lies where the head is affine."""
        if isinstance(problem.loss, Linear):
            weights, value, computed = _along_the_gradient(problem, problem.loss)
        else:
            mapping = problem.affine_map()
            if mapping is None:
                return _none(problem)
            weights, value = _nearest(mapping, problem.finite)
            with torch.no_grad():
                computed = problem.recomputed_losses(weights.float()).double()
        # The loss is confirmed by computing the head there: a probe may have missed where it bends.
        accepted = (computed - value).abs() <= 1e-3 * value.abs() + _rounding(problem, value)
        outcome = Outcome.EXACT
        if problem.endpoint == OUTPUT and not problem.head.is_affine:
            accepted &= (weights >= -1e-6).all(dim=1)
            outcome = Outcome.CONVERGED  # the best of the filters that are nowhere negative; another may be better
        nought = torch.zeros(problem.batch, dtype=torch.int64)
        if problem.head.replay.output.dtype not in (torch.float32, torch.float64):
            value = computed  # in half precision the network's own rounding is part of what it gives
        found = Found(weights, value, nought, nought, [outcome] * problem.batch)
        return found, accepted | ~problem.finite


def _rounding(problem: Problem, value: Tensor) -> Tensor:
    """How far the precision of the network's output alone may move a loss."""
    loss = problem.loss
    output = (
        problem.head.replay.output if problem.endpoint == OUTPUT else problem.head.replay.observed[problem.endpoint]
    )
    step = max(1e-5, 2 * torch.finfo(output.dtype).eps)
    if isinstance(loss, Linear):
        return step * (loss.direction * rows(output.detach())).double().abs().sum(dim=1)
    length = step * rows(output.detach()).double().norm(dim=1)
    return 2 * length * value.clamp_min(0).sqrt() + length.square()


def _none(problem: Problem) -> tuple[Found, Tensor]:
    """Nothing found for any sample: the columns contradict the probe."""
    weights = torch.zeros(problem.batch, math.prod(problem.grid), dtype=torch.float64, device=problem.device)
    nought = torch.zeros(problem.batch, dtype=torch.int64)
    found = Found(weights, weights.sum(dim=1), nought, nought, [Outcome.STEP_LIMIT] * problem.batch)
    return found, ~problem.finite & False


def _along_the_gradient(problem: Problem, loss: Linear) -> tuple[Tensor, Tensor, Tensor]:
    """Return weights, loss and the loss as the head computes it; problems posed together are solved together."""
    family = problem.family or Family((loss,))
    if family.found is None:
        family.found = _along_all_gradients(problem, [each for each in family.losses if isinstance(each, Linear)])
    weights, value, computed = family.found
    place = next(number for number, each in enumerate(family.losses) if each is loss)
    return weights[place], value[place], computed[place]


def _along_all_gradients(problem: Problem, losses: list[Linear]) -> tuple[Tensor, Tensor, Tensor]:
    head = problem.head
    gradients = head.gradients(torch.stack([loss.direction for loss in losses])).transpose(0, 1).double()
    length = gradients.norm(dim=2, keepdim=True)
    even = torch.full_like(gradients, gradients.shape[2] ** -0.5)
    # A gradient of nought means that no filter does better than another: the even one stands for them all.
    weights = torch.where(length > 0, -gradients / length.clamp_min(1e-300), even)
    untouched = torch.stack([loss(head.replay.output.detach().double()) for loss in losses])
    value = untouched + (gradients * (weights - 1)).sum(dim=2)
    with torch.no_grad():
        outputs = head.recomputed(weights.float())
    computed = torch.stack([loss(output).double() for loss, output in zip(losses, outputs, strict=True)])
    return weights, value, computed


def _nearest(mapping: AffineMap, finite: Tensor) -> tuple[Tensor, Tensor]:
    # Samples with NaN would stop the eigensolver for all, so they are solved as if their map were empty.
    jacobian = mapping.jacobian.double()
    jacobian = torch.where(
        finite.reshape(-1, 1, 1), jacobian, torch.zeros((), dtype=jacobian.dtype, device=finite.device)
    )
    precision = torch.finfo(mapping.jacobian.dtype).eps
    weights = nearest_on_sphere(jacobian, precision=precision)
    value = (jacobian @ (weights - 1).unsqueeze(-1)).square().sum(dim=(1, 2))
    return weights, value
