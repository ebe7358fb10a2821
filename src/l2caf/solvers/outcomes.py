"""What each search came to: found filters against the uniform one, and against what the network can tell at all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..numerics import FLAT, rows
from ..problem import Problem
from ..solution import Outcome
from ..unit_sphere import Floats

if TYPE_CHECKING:
    from .solver import Found

# A permuted filter that does as well to this share of what the filter gains: positions are then interchangeable.
INTERCHANGEABLE = 1e-3


def judged(found: Found, problem: Problem) -> Found:
    """Say of every map what it is worth; a loss stays with the filter that it belongs to."""
    # Arrays, since on small networks a dozen operations on tensors cost more than the network.
    values, loss = found.weights.detach().cpu().numpy(), found.loss.detach().cpu().numpy()
    least, most = values.min(axis=2), values.max(axis=2)
    sound = problem.finite.cpu().numpy() & np.isfinite(most - least + loss)
    # Near-uniform filters of either sign show nothing, and neither does one that gains no more than rounding.
    even = most - least <= FLAT * np.maximum(most, -least)
    if found.even is not None:
        even |= (found.even - found.loss).cpu().numpy() <= rounding_array(problem, found.even)
    if not problem.informative:
        even[:] = True
    moved = (problem.moved if found.moved is None else found.moved).cpu().numpy()
    telling = sound & ~even & moved
    if any(own is not Outcome.EXACT for row in found.outcome for own in row):
        descended = np.array([[own is not Outcome.EXACT for own in row] for row in found.outcome])
        if (descended & telling).any():
            even |= _interchangeable(found, problem) & descended
            telling &= ~even
    if problem.verified and telling.all():
        return found
    if not moved.all():
        found, unmoved = _unmoved(found, problem, torch.from_numpy(sound & ~moved).to(found.loss.device))
    else:
        unmoved = np.zeros_like(sound)
    outcome = [
        [
            Outcome.NON_FINITE
            if not is_sound
            else Outcome.UNMOVED
            if is_unmoved
            else Outcome.UNIFORM
            if is_even and own is not Outcome.TIME_LIMIT  # it may be that nothing but the start was tried
            else Outcome.UNDECIDED
            if not problem.verified and own in (Outcome.EXACT, Outcome.CONVERGED, Outcome.FIRST_ORDER)
            else own
            for is_sound, is_unmoved, is_even, own in zip(*of_map, strict=True)
        ]
        for of_map in zip(sound.tolist(), unmoved.tolist(), even.tolist(), found.outcome, strict=True)
    ]
    spoilt = torch.from_numpy(~sound).to(found.loss.device)
    said = [] if problem.verified else [problem.why_undecided]
    if not problem.informative:
        said.append("the uniform filter keeps the output already, and no other value can be asked in its place")
    return replace(
        found,
        weights=found.weights.masked_fill(spoilt.unsqueeze(2), 0.0),
        loss=found.loss.masked_fill(spoilt, torch.nan),
        outcome=outcome,
        reason="; ".join(word for word in (found.reason, *said) if word),
    )


def rounding(problem: Problem, value: Tensor) -> Tensor:
    """How far the precision of the endpoint's numbers alone may move losses of this value: (K, B)."""
    return torch.from_numpy(rounding_array(problem, value)).to(value.device)


def rounding_array(problem: Problem, value: Tensor) -> Floats:
    """The same as an array."""
    # In half precision every number rounds by itself, so that a sum over many hardly shows it.
    unit = min(problem.precision, 1e-5)
    if problem.shares is not None:
        return unit * problem.shares.size.cpu().numpy()
    found = []
    with np.errstate(invalid="ignore", over="ignore"):  # of samples that are not finite
        for loss, own in zip(problem.losses, value.detach().cpu().double().numpy(), strict=True):
            if loss.is_linear:
                assert loss.direction is not None
                shares = rows(loss.direction).double() * rows(problem.untouched).double()
                found.append(shares.abs().sum(dim=1).cpu().numpy())
            elif loss.target is not None or loss.approximation is not None:
                length = problem.scale(loss)
                found.append(length * (2 * np.sqrt(np.maximum(own, 0.0)) + unit * length))
            else:
                found.append(np.abs(own))
    return unit * np.stack(found)


def _interchangeable(found: Found, problem: Problem) -> np.ndarray:
    """Which maps could as well have their positions in any other order: the features do not differ, and nor does
    the loss when the filter is permuted. A maximum over equal positions has many best filters, and none shows anything.
    """
    alike = problem.alike
    if not bool(alike.any()):
        return np.zeros(found.loss.shape, dtype=bool)
    order = torch.randperm(problem.positions, generator=torch.Generator().manual_seed(0)).to(found.weights.device)
    with torch.no_grad():
        permuted = problem.value(found.weights[..., order].float()).double().to(found.loss.device)
        even = problem.value(_uniform(found, problem)).double().to(found.loss.device)
    gained = (even - found.loss).abs()
    same = (permuted - found.loss).abs() <= INTERCHANGEABLE * gained + rounding(problem, even)
    return (same & alike).cpu().numpy()


def _unmoved(found: Found, problem: Problem, candidates: Tensor) -> tuple[Found, np.ndarray]:
    """Samples that a random filter did not move, with the uniform filter and its loss; or what was found all the same.

    A head that is shut for the random filter may open for another, so a few more are tried, and a search that found a
    better filter is believed.
    """
    uniform = _uniform(found, problem)
    with torch.no_grad():
        even = problem.value(uniform).double().to(found.loss.device)
        allowed = rounding(problem, even)
        still = candidates & ((even - found.loss).abs() <= allowed)
        generator = torch.Generator().manual_seed(1)
        strongest = problem.energy().argmax(dim=1)
        tried = [
            torch.randn(1, 1, problem.positions, generator=generator).to(uniform).expand_as(uniform),
            -uniform,
            torch.nn.functional.one_hot(strongest, problem.positions).to(uniform).expand_as(uniform),
        ]
        for weights in tried:
            still &= (problem.value(weights).double().to(even) - even).abs() <= allowed
    return (
        replace(
            found,
            weights=torch.where(still.unsqueeze(2), uniform.to(found.weights), found.weights),
            loss=torch.where(still, even.to(found.loss), found.loss),
        ),
        still.cpu().numpy(),
    )


def _uniform(found: Found, problem: Problem) -> Tensor:
    even = problem.filter.weights(problem.filter.start(problem.batch, problem.grid), problem.grid)
    return even.to(found.weights.device).float().expand(problem.maps, -1, -1)
