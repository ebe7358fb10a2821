"""A descent without derivatives, for heads whose gradient is hidden or is not that of their values.

The best of some random points is where it starts. A stencil of points around it, along random axes at right angles,
gives an estimate of the slope at its own width (implicit filtering). The best of the stencil and of a few steps down
the estimate is taken; where none is better, the stencil shrinks. Wide at first, it looks past the steps of a head that
rounds or binarises. Once it is narrow it starts wide again, along other axes, until that brings nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..problem import Problem
from .slope import Value

WIDEST, NARROWEST = 0.5, 2e-3  # on the unit sphere
STRIDES = (2.0, 1.0, 0.5, 0.25)  # steps down the estimate, in widths of the stencil
MOST_POSITIONS = 256  # beyond that a stencil costs more than it is worth
SCATTERED = 500  # random points that are looked at first
SWEEPS = 60
HELPS = 1e-3  # a gain by this share of the loss helps
MOST_EVALUATIONS = 8000


class Stencil:
    """The best point of every sample, and how wide its stencil is; `spent` counts evaluations of the head."""

    def __init__(self, problem: Problem, value: Value, point: Tensor, loss: Tensor) -> None:
        self.problem, self.value = problem, value
        self.point = problem.filter.retract(point)
        self.loss = loss.clone()
        self.spent = 0
        self._width = torch.full_like(loss, WIDEST)

    def descend(self, samples: Tensor) -> None:
        """Lower the loss of some samples: wide to narrow, and again from the best as long as that helps."""
        axes = self.point.shape[1]
        generator = torch.Generator().manual_seed(3)
        tried = torch.stack(
            [self._tried(self._random(generator, positive=number % 2 == 1), samples) for number in range(SCATTERED)]
        )
        # A head that is shut for all of them is shut.
        samples = samples & (tried.amax(dim=0) - tried.amin(dim=0) > 1e-6 * tried.abs().amax(dim=0))
        last = torch.full_like(self.loss, torch.inf)
        for _ in range(max(1, min(SWEEPS, MOST_EVALUATIONS // (2 * axes + len(STRIDES))))):
            through = self._width < NARROWEST
            helped = last - self.loss > HELPS * self.loss.abs()
            last = torch.where(through, self.loss, last)
            self._width = torch.where(through & helped, WIDEST, self._width)
            samples = samples & (self._width >= NARROWEST)
            if not bool(samples.any()):
                return
            turned = torch.linalg.qr(torch.randn(axes, axes, generator=generator, dtype=torch.float64)).Q.to(self.point)
            before = self.loss.clone()
            self._sweep(turned, samples)
            gained = before - self.loss > HELPS * self.loss.abs() * self._width
            self._width = torch.where(samples & ~gained, self._width / 2, self._width)

    def _random(self, generator: torch.Generator, *, positive: bool) -> Tensor:
        """A random point, the same for every sample."""
        family = self.problem.filter
        if positive or not family.parameters_are_weights:
            drawn = family.start(1, self.problem.grid, generator)
        else:
            drawn = torch.randn(1, self.point.shape[1], generator=generator)
        return drawn.to(self.point).expand_as(self.point)

    def _sweep(self, turned: Tensor, samples: Tensor) -> None:
        centre, width = self.point, self._width.unsqueeze(1)
        slope = torch.zeros_like(centre)
        for axis in turned:
            ahead, behind = (self._tried(centre + sign * width * axis, samples) for sign in (1, -1))
            slope = slope + (ahead - behind).nan_to_num(0.0, 0.0, 0.0).unsqueeze(1) * axis
        down = -slope / slope.norm(dim=1, keepdim=True).clamp_min(1e-30)
        for stride in STRIDES:
            self._tried(centre + stride * width * down, samples)

    @torch.no_grad()
    def _tried(self, point: Tensor, samples: Tensor) -> Tensor:
        """The losses at a point, which is kept where it is better."""
        point = self.problem.filter.retract(point)
        loss = self.value(self.problem.filter.weights(point, self.problem.grid)).double()
        self.spent += 1
        better = samples & (loss < self.loss)
        self.point = torch.where(better.unsqueeze(1), point, self.point)
        self.loss = torch.where(better, loss, self.loss)
        return loss
