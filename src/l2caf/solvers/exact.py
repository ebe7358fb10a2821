"""`Exact`: the global optimum in closed form, where the endpoint is affine in the filter.

With o(f) = b + J f and ||f|| = 1:

- a linear loss a . o is least at f = -g / ||g||, g = J^T a;
- a sum of squares ||t - o(f)||^2 is least at f = (G + lam I)^-1 J^T (t - b), G = J^T J, for one multiplier lam: the
  trust-region problem on the sphere (`sphere.py`). To keep the output as it is, t = o(1), lam is positive and the
  optimum is unique, unless the part of 1 that J can see is itself shorter than 1. Then (the hard case) the loss is
  zero for a whole family of filters, and the one nearest to the untouched filter 1 is taken;
- a sum of squares in a metric, ||S (t - o(f))||^2, is the same with S J in place of J, but for the hard case: a metric
  is deaf to much, and what it does not hear is left out of the filter, which is then shorter than 1;
- a loss that is none of these, but has a sum of squares for its second order, is solved as that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from ..errors import MethodError
from ..numerics import CONFIRMED, rows
from ..objectives.objective import Loss, Metric
from ..problem import Problem
from ..solution import Outcome
from .solver import Found, Solver
from .sphere import FEW, TINY, LinearMap, OfArrays, as_array, by_eigenvalues, by_products

SHORT = 1 - 1e-6  # below this a filter is shorter than 1 by more than rounding


class Solved(NamedTuple):
    """Filters (K, B, n), their losses and those of the uniform filter, (K, B), and what is to be said of them."""

    weights: Tensor
    loss: Tensor
    even: Tensor
    reason: str = ""


@dataclass(frozen=True)
class Exact(Solver):
    """One matrix product, or a few; no iterations through the network.

    >>> import l2caf
    >>> network = torch.nn.Sequential(
    ...     torch.nn.Conv2d(3, 8, 4, stride=4), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    ... )
    >>> [str(one) for one in l2caf.explain(network, torch.rand(1, 3, 32, 32), solver=Exact()).outcome]
    ['exact']
    """

    def search(self, problem: Problem) -> Found:
        why_not = self.why_not(problem)
        if why_not:
            raise MethodError(f"There is no exact solution here: {why_not}; use Riemannian or Auto.")
        found, accepted = self.attempt(problem)
        if accepted is not None:
            raise MethodError(
                f"The exact filter of {int((~accepted).any(dim=0).sum())} samples lies where the head is not affine: "
                "use Riemannian or Auto."
            )
        return found

    def why_not(self, problem: Problem) -> str | None:
        """Say what stands against an exact solution, or None."""
        if not problem.filter.on_unit_sphere:
            return f"the filter is {problem.filter.name}, not UnitL2"
        problem = problem.approximated
        linear = problem.is_linear
        if not linear and not all(loss.target is not None for loss in problem.losses):
            return "the objective is neither linear nor a sum of squares in the output"
        if not linear and not problem.fits and problem.affine() is None:
            return f"the {problem.endpoint} has too many numbers to be written out as a map of the filter"
        return problem.why_not_affine()

    def why(self, problem: Problem) -> str:
        """Why this solver, where nothing stands against it."""
        return f"the {problem.endpoint} is affine in the filter"

    def solved(self, problem: Problem) -> Solved | None:
        """The filters and their losses, unconfirmed; None where the endpoint is no affine map after all."""
        posed = problem.approximated
        found = _along_the_gradients(posed) if posed.losses[0].is_linear else _least_squares(posed)
        if found is None or posed is problem:
            return found
        return found._replace(reason=_to_second_order(posed, found.weights))

    def attempt(self, problem: Problem) -> tuple[Found, Tensor | None]:
        """Solve, and tell for each map and sample whether the solution lies where the head is affine; None: all do."""
        solved, problem = self.solved(problem), problem.approximated
        zero = torch.zeros(problem.maps, problem.batch, dtype=torch.int64)
        if solved is None:  # the columns contradict the probe
            nothing = torch.zeros(problem.maps, problem.batch, problem.positions, dtype=torch.float64)
            nothing = nothing.to(problem.device)
            outcome = [[Outcome.STEP_LIMIT] * problem.batch for _ in problem.losses]
            return Found(nothing, nothing.sum(dim=2), zero, zero, outcome), torch.zeros_like(zero, dtype=torch.bool)
        weights, value, even, reason = solved
        if problem.is_known:
            exact = [[Outcome.EXACT] * problem.batch for _ in problem.losses]
            return Found(weights, value, zero, zero, exact, even, reason=reason), None
        # The loss is confirmed by computing the head there: a probe may have missed where it bends.
        computed = problem.confirmed(weights.float() if problem.precision > 1e-12 else weights)
        accepted = (computed - value).abs() <= CONFIRMED * value.abs() + _rounding(problem, value)
        best = Outcome.EXACT
        if not problem.holds_for_any_sign:
            accepted &= (weights >= -1e-6).all(dim=2)
            best = Outcome.CONVERGED  # the best of the filters that are nowhere negative; another may be better
        if problem.precision > 1e-6:
            value = computed  # in half precision the network's own rounding is part of what it gives
        outcome = [[best] * problem.batch for _ in problem.losses]
        accepted |= ~problem.finite
        found = Found(weights, value, zero, zero, outcome, even, reason=reason)
        return found, None if bool(accepted.all()) else accepted


def _to_second_order(problem: Problem, weights: Tensor) -> str:
    """Say of which question a filter is the optimum, and where a part of it was left out."""
    said = "the optimum is that of the divergence to second order"
    array = as_array(weights)
    short = int(((np.sqrt((array * array).sum(axis=2)) < SHORT) & problem.finite.cpu().numpy()).any(axis=0).sum())
    if not short:
        return said
    return (
        f"{said}; in {short} of {problem.batch} samples a filter shorter than 1 keeps the prediction, and what the"
        " prediction cannot see is zero there"
    )


def _rounding(problem: Problem, value: Tensor) -> Tensor:
    """How far the precision of the endpoint alone may move the losses: (K, B)."""
    step = max(1e-5, 2 * problem.precision)
    if problem.shares is not None:
        return step * problem.shares.size
    length = step * torch.from_numpy(np.stack([problem.scale(loss) for loss in problem.losses])).to(value.device)
    return 2 * length * value.clamp_min(0).sqrt() + length.square()


def _along_the_gradients(problem: Problem) -> Solved:
    """Linear losses: all maps at once. Plain arrays: of so few numbers, operations on tensors cost more."""
    gradients = as_array(problem.gradients())
    untouched, even = problem.at_untouched().cpu().double().numpy(), problem.positions**-0.5
    with np.errstate(invalid="ignore", over="ignore"):  # of samples that are not finite
        length, total = np.sqrt((gradients * gradients).sum(axis=2)), gradients.sum(axis=2)
        # A gradient of zero means that no filter does better than another: the uniform one stands for them all.
        pulls = length > 0
        if pulls.all():
            weights, gained = gradients / -length[..., None], -length
        else:
            weights = np.where(pulls[..., None], -gradients / np.maximum(length, TINY)[..., None], even)
            gained = np.where(pulls, -length, even * total)
        found = weights, untouched - total + gained, untouched + (even - 1) * total
    weights, loss, uniform = (torch.from_numpy(one).to(problem.device) for one in found)
    return Solved(weights, loss, uniform)


def _apart(problem: Problem, loss: Loss, jacobian: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Filters and losses by eigenvalues, in double precision."""
    matrices = jacobian.detach().cpu().double().numpy()
    if not np.isfinite(matrices.sum()):  # a sample with NaN would stop the eigensolver for all
        matrices = np.nan_to_num(matrices, posinf=0.0, neginf=0.0)
    # Where the target is J 1, to say so spares the rounding of a difference.
    wanted = None if problem.keeps_output(loss) else target.detach().cpu().double().numpy()
    precision = max(problem.precision, torch.finfo(target.dtype).eps)
    weights = by_eigenvalues(matrices, wanted, precision=precision, fill=loss.metric is None)
    missed = (matrices @ weights[..., None])[..., 0] - (matrices.sum(axis=2) if wanted is None else wanted)
    found = torch.from_numpy(weights), torch.from_numpy((missed * missed).sum(axis=1))
    return found[0].to(jacobian.device), found[1].to(jacobian.device)


def _squared(values: Tensor) -> Tensor:
    """Sums of squares, (B, m) to (B,), in double precision."""
    array = as_array(values)
    with np.errstate(invalid="ignore", over="ignore"):
        return torch.from_numpy((array * array).sum(axis=1)).to(values.device)


class _WrittenOut(LinearMap, Protocol):
    """A linear map that can be written out, for all samples or for some."""

    @property
    def jacobian(self) -> Tensor: ...

    def only(self, samples: Tensor) -> Tensor: ...

    def on_arrays(self) -> tuple[OfArrays, OfArrays] | None: ...


def _heard(metric: Metric, values: Tensor) -> Tensor:
    """S v, in the precision of the values."""
    if metric.arrays is None:
        return metric.push(values).to(values)
    return torch.from_numpy(metric.arrays.push(as_array(values))).to(values)


class _Seen(NamedTuple):
    """J as a metric sees it: S J, whose products are in the precision of J."""

    mapping: _WrittenOut
    metric: Metric

    @property
    def jacobian(self) -> Tensor:
        return self.metric.push(self.mapping.jacobian.mT).mT

    def push(self, weights: Tensor) -> Tensor:
        return _heard(self.metric, self.mapping.push(weights))

    def pull(self, directions: Tensor) -> Tensor:
        arrays = self.metric.arrays
        if arrays is None:
            return self.mapping.pull(self.metric.pull(directions).to(directions))
        return self.mapping.pull(torch.from_numpy(arrays.pull(as_array(directions))).to(directions))

    def on_arrays(self) -> tuple[OfArrays, OfArrays] | None:
        inner, metric = self.mapping.on_arrays(), self.metric.arrays
        if inner is None or metric is None:
            return None
        push, pull = inner
        return lambda filters: metric.push(push(filters)), lambda directions: pull(metric.pull(directions))

    def only(self, samples: Tensor) -> Tensor:
        return self.metric.only(samples).push(self.mapping.only(samples).mT).mT


def _least_squares(problem: Problem) -> Solved | None:
    """Sums of squares: the same, one map after the other."""
    affine = problem.affine()
    if affine is None:
        return None
    finite = problem.finite
    found, uniform = [], []
    even = problem.positions**-0.5
    for loss in problem.losses:
        assert loss.target is not None
        mapping: _WrittenOut = affine if loss.metric is None else _Seen(affine, loss.metric)
        target = rows(loss.target).to(affine.offset) - affine.offset
        # Samples with NaN would stop the eigensolver for all, so they are solved as if nothing were asked of them.
        if not problem.all_finite:
            target = target.masked_fill(~finite.unsqueeze(1), 0.0)
        if loss.metric is not None:
            target = _heard(loss.metric, target)
        if problem.keeps_output(loss):  # J 1 is the target itself
            missed = (1 - even) * target
        else:
            missed = mapping.push(torch.full_like(target[:, :1], even).expand(-1, problem.positions)) - target
        uniform.append(_squared(missed))
        if min(target.shape[1], problem.positions) <= FEW and problem.fits:
            found.append(_apart(problem, loss, mapping.jacobian, target))
            continue
        weights, value, certain = by_products(mapping, target, on_arrays=mapping.on_arrays())
        missing = finite & ~certain
        if not bool(missing.any()):
            pass
        elif not problem.fits:
            value[missing] = torch.nan  # a map of this size is not written out: it is for a descent
        else:
            weights[missing], value[missing] = _apart(problem, loss, mapping.only(missing), target[missing])
        found.append((weights, value))
    weights, value = (torch.stack([pair[place] for pair in found]) for place in (0, 1))
    return Solved(weights, value, torch.stack(uniform))
