"""Losses with their gradients, and whether the gradients are those of the values.

A network may give a gradient that is not its own: it detaches a part, reverses it (domain adversarial training), or
replaces it (straight-through rounding). Its values tell the truth, so one directional difference is compared with what
the gradient says of it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..errors import NetworkError
from ..numerics import rows
from ..problem import Problem
from .outcomes import rounding

# Filters (B, n) to losses (B,), with their graph; a second argument names the samples that matter, (B,).
Value = Callable[..., Tensor]

# Beside the point, since at the end of a descent the gradient is zero or stands on a kink; a second and a third look,
# elsewhere and at other distances, are for where the first two points lie on either side of a kink.
LOOKS = ((0.02, 4e-3), (0.05, 1e-2), (0.05, 1e-3))
# A gradient that accounts for the difference to this share is its own: kinks between two points leave less.
ACCOUNTS = 0.25
# Around the untouched filter: how far to either side, as a share of it; the next ones for where kinks lie between.
TANGENT_STEPS = (1e-2, 3e-2, 3e-3)


def with_slope(problem: Problem, value: Value, parameters: Tensor, only: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The losses (B,) at a filter's parameters (B, P), and their gradient, which is 0 where the network hides it.

    With `only`, (B,), the others need not be computed: their losses are infinite, and their gradients 0. Several
    filters per sample, (W, B, P), have (W, B) losses.
    """
    with torch.enable_grad():
        leaf = parameters.detach().requires_grad_()
        try:
            if leaf.ndim == 3:
                weights = problem.filter.weights(leaf.flatten(0, 1), problem.grid).unflatten(0, leaf.shape[:2])
            else:
                weights = problem.filter.weights(leaf, problem.grid)
            losses = (value(weights) if only is None else value(weights, only)).double()
            finite = torch.where(losses.isfinite(), losses, 0.0)
            slope = slope_of(finite, leaf)
        except RuntimeError as error:
            if "nference tensor" not in str(error):
                raise
            raise NetworkError(
                "The network's weights were made under torch.inference_mode, so no gradient passes through them: make "
                "or load them outside of it, or take copy.deepcopy(network)."
            ) from error
    allowed = losses.isfinite()
    if (
        problem.filter.parameters_are_weights
    ):  # no scale makes a filter of nothing: a start along a slope of zero is none
        allowed = allowed & (parameters.abs().amax(dim=-1) > 0)
    if only is not None:
        allowed = allowed & only
        slope = slope * only.unsqueeze(-1)
    return torch.where(allowed, losses, torch.inf).detach(), slope.nan_to_num(0.0, 0.0, 0.0)


def slope_of(losses: Tensor, parameters: Tensor) -> Tensor:
    """The gradient of losses in the filter's parameters; 0 where the network hides it."""
    if losses.requires_grad:
        (slope,) = torch.autograd.grad(losses.sum(), parameters, allow_unused=True)
        if slope is not None:
            return slope
    return torch.zeros_like(parameters)


def contradicted(problem: Problem, value: Value, point: Tensor, only: Tensor | None = None) -> tuple[Tensor, int]:
    """For which samples the gradient near a point contradicts the values, (B,), and how many evaluations it took.

    No gradient at all is one that contradicts values that differ. With `only`, (B,), the others are not looked at.
    """
    generator = torch.Generator().manual_seed(2)
    looked = problem.finite if only is None else problem.finite & only
    lies, none, spent, among = looked.clone(), looked.clone(), 0, () if only is None else (only,)
    seen = []
    for distance, step in LOOKS:
        # Every sample draws the same numbers, so that a batch gives what its samples give alone.
        away, across = torch.randn(2, 1, point.shape[1], generator=generator, dtype=torch.float64).to(point)
        size = point.norm(dim=1, keepdim=True)
        beside = problem.filter.retract(point + distance * size * away / away.norm())
        loss, slope = with_slope(problem, value, beside, only)
        steepest = slope / slope.norm(dim=1, keepdim=True).clamp_min(1e-30)
        direction = size * (steepest + across / across.norm()) / 2
        with torch.no_grad():
            ahead, behind = (
                value(problem.filter.weights(beside + sign * step * direction, problem.grid), *among).double()
                for sign in (1, -1)
            )
            loss, ahead, behind = (one.where(looked, 0.0) for one in (loss, ahead, behind))
            noise = rounding(problem, loss.expand(problem.maps, -1))[0]
        spent += 3
        measured = (ahead - behind) / (2 * step)
        expected = (slope * direction).sum(dim=1)
        missed = (measured - expected).abs() - ACCOUNTS * torch.maximum(measured.abs(), expected.abs())
        lies &= missed > 4 * noise / step
        none &= slope.norm(dim=1) == 0
        seen += [loss, ahead, behind]
        if not bool((lies | none).any()):
            return lies, spent
    losses = torch.stack(seen)
    return lies | (none & (losses.amax(dim=0) - losses.amin(dim=0) > 8 * noise)), spent


@torch.no_grad()
def tangent_contradicted(problem: Problem, weights: Tensor) -> tuple[Tensor, int]:
    """For which samples the tangent at the untouched filter contradicts the values, (B,), and the evaluations it took.

    The losses on either side of it are compared with what the tangent says of them, in a direction half of which is
    that of the filters (K, B, n) that were found. Of a sum of squares, which is least there, it is the second order.
    """
    generator = torch.Generator().manual_seed(2)
    lies, spent = problem.finite.clone(), 0
    middle = problem.at_untouched().double()
    ones = torch.ones_like(weights)
    for step in TANGENT_STEPS:
        across = torch.randn(1, 1, weights.shape[2], generator=generator, dtype=torch.float64).to(weights)
        direction = (weights + across / across.norm()) / 2 * weights.shape[2] ** 0.5
        ahead, behind = (problem.value((ones + sign * step * direction).float()).double() for sign in (1, -1))
        spent += 2
        measured, expected = [], []
        for number, loss in enumerate(problem.losses):
            if loss.direction is not None:
                slope = problem.tangent.pull(rows(loss.direction).to(problem.tangent.value))
                measured.append((ahead[number] - behind[number]) / (2 * step))
                expected.append((slope * direction[number]).sum(dim=1))
            else:
                pushed = problem.tangent.push(direction[number].to(problem.tangent.value))
                measured.append((ahead[number] + behind[number] - 2 * middle[number]) / (2 * step**2))
                expected.append(pushed.double().square().sum(dim=1))
        noise = rounding(problem, middle)
        power = torch.tensor([1 if loss.direction is not None else 2 for loss in problem.losses]).unsqueeze(1)
        found, told = torch.stack(measured), torch.stack(expected).double()
        missed = (found - told).abs() - ACCOUNTS * torch.maximum(found.abs(), told.abs())
        lies &= (missed > 4 * noise / step ** power.to(noise.device)).any(dim=0)
        if not bool(lies.any()):
            break
    return lies, spent


def said(lies: Tensor) -> str:
    """The contradiction in words, or nothing."""
    if not bool(lies.any()):
        return ""
    return f"the gradient contradicts the values of {int(lies.sum())} of {len(lies)} samples (detached or replaced)"
