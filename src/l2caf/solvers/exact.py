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
from ..networks.affine import AffineMap
from ..networks.replay import OUTPUT
from ..objectives import LeastSquares, Linear
from ..problem import Problem
from .solver import Found, Outcome, Solver
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
        if problem.endpoint != OUTPUT:
            return None if problem.endpoint in problem.head.affine_calls else "the endpoint is not affine in the filter"
        if not (problem.head.is_affine or problem.head.is_affine_where_positive):
            return "the network's output is not affine in the filter"
        return None

    def attempt(self, problem: Problem) -> tuple[Found, Tensor]:
        """Solve, and tell for each sample whether the solution lies where the head is affine."""
        loss = problem.loss
        # Samples with NaN would stop the eigensolver for all, so they are solved as if their map were empty.
        if isinstance(loss, Linear):
            weights, value = _along_the_gradient(problem, loss)
        else:
            mapping = problem.affine_map()
            if mapping is None:
                return _none(problem)
            weights, value = _nearest(mapping, problem.finite)
        accepted = self._accepted(problem, weights, value)
        nought = torch.zeros(problem.batch, dtype=torch.int64)
        return Found(weights, value, nought, nought, [Outcome.EXACT] * problem.batch), accepted

    def _accepted(self, problem: Problem, weights: Tensor, value: Tensor) -> Tensor:
        """Tell where computing the head confirms the loss: a probe may have missed where it bends."""
        with torch.no_grad():
            replayed = problem.recomputed_losses(weights.float()).double()
        confirmed = (replayed - value).abs() <= 1e-3 * value.abs() + _rounding(problem, value)
        if problem.endpoint == OUTPUT and not problem.head.is_affine:
            confirmed &= (weights >= -1e-6).all(dim=1)
        return confirmed | ~problem.finite


def _rounding(problem: Problem, value: Tensor) -> Tensor:
    """How far the precision of the network's output alone may move a loss."""
    loss = problem.loss
    output = (
        problem.head.replay.output if problem.endpoint == OUTPUT else problem.head.replay.observed[problem.endpoint]
    )
    step = 64 * torch.finfo(output.dtype).eps
    if isinstance(loss, Linear):
        return step * (loss.direction * output.detach().flatten(1)).double().abs().sum(dim=1)
    length = step * output.detach().flatten(1).double().norm(dim=1)
    return 2 * length * value.clamp_min(0).sqrt() + length.square()


def _none(problem: Problem) -> tuple[Found, Tensor]:
    """Nothing found for any sample: the columns contradict the probe."""
    weights = torch.zeros(problem.batch, math.prod(problem.grid), dtype=torch.float64, device=problem.device)
    nought = torch.zeros(problem.batch, dtype=torch.int64)
    found = Found(weights, weights.sum(dim=1), nought, nought, [Outcome.STEP_LIMIT] * problem.batch)
    return found, ~problem.finite & False


def _along_the_gradient(problem: Problem, loss: Linear) -> tuple[Tensor, Tensor]:
    gradient = problem.head.gradients(loss.direction.unsqueeze(0)).squeeze(1).double()
    length = gradient.norm(dim=1, keepdim=True)
    even = torch.full_like(gradient, gradient.shape[1] ** -0.5)
    # A gradient of nought means that no filter does better than another: the even one stands for them all.
    weights = torch.where(length > 0, -gradient / length.clamp_min(1e-300), even)
    untouched = loss(problem.head.replay.output.detach().double())
    return weights, untouched + (gradient * (weights - 1)).sum(dim=1)


def _nearest(mapping: AffineMap, finite: Tensor) -> tuple[Tensor, Tensor]:
    jacobian = mapping.jacobian.double()
    jacobian = torch.where(
        finite.reshape(-1, 1, 1), jacobian, torch.zeros((), dtype=jacobian.dtype, device=finite.device)
    )
    precision = torch.finfo(mapping.jacobian.dtype).eps
    weights = nearest_on_sphere(jacobian, precision=precision)
    value = (jacobian @ (weights - 1).unsqueeze(-1)).square().sum(dim=(1, 2))
    return weights, value
