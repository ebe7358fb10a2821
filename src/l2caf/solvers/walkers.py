"""Many walkers, of whom the better half goes on: for heads with kinks, or with many valleys.

Maxima, top-k means, variances and products have kinks and valleys at which a descent ends that only ever steps down.
A walker takes steps of a falling length along a running mean of the slopes it met (as Adam does, with one scale for all
positions), so that it passes both. Forty set out, from filters that differ as much as filters can; the few that came
furthest walk on, and on.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..problem import Problem
from .slope import with_slope

# How many walk, and how many steps: on random heads these 1,280 evaluations find, 49 times in 50, what twenty walkers
# find who all go to the end.
ROUNDS = ((40, 14), (10, 45), (3, 90))
RATE = 0.8  # the length of the first step, on the unit sphere; each round starts with less
FALLS = 0.7
KEPT_SLOPE, KEPT_SIZE = 0.9, 0.95  # shares of the running means that stay in each step


class Walkers:
    """The best point of every sample that any walker met; `spent` counts evaluations."""

    def __init__(self, problem: Problem, samples: Tensor, starts: Tensor) -> None:
        """Set out from (W, B, n) filters, for some samples."""
        self.problem, self.samples = problem, samples
        self.points = starts
        self.spent = 0
        self.losses = torch.full(starts.shape[:2], torch.inf, dtype=torch.float64, device=starts.device)
        self.gradients = torch.zeros_like(starts)

    def have_slopes(self) -> Tensor:
        """Which samples any walker can leave its start for: (B,)."""
        return (self.look()[1].norm(dim=2) > 0).any(dim=0)

    def look(self) -> tuple[Tensor, Tensor]:
        """The losses (W, B) and the slopes where they stand."""
        looks = [self._with_slopes(points) for points in self._at_once(self.points)]
        return torch.cat([loss for loss, _ in looks]), torch.cat([slope for _, slope in looks])

    def walk(self, budget: int) -> None:
        """Walk as many rounds as the budget allows, in shorter ones where it is small."""
        whole = sum(walkers * steps for walkers, steps in ROUNDS)
        for number, (walkers, steps) in enumerate(ROUNDS):
            self._keep(walkers)
            self._round(max(2, steps * budget // whole), RATE * FALLS**number)

    def best(self) -> tuple[Tensor, Tensor, Tensor]:
        """The best point of each sample, its loss and its gradient."""
        self._keep(1)
        return self.points[0], self.losses[0], self.gradients[0]

    def _keep(self, number: int) -> None:
        """Let only the best of each sample go on."""
        order = self.losses.argsort(dim=0, stable=True)[:number]
        self.losses = self.losses.gather(0, order)
        every = order.unsqueeze(2).expand(-1, -1, self.points.shape[2])
        self.points, self.gradients = self.points.gather(0, every), self.gradients.gather(0, every)

    def _at_once(self, of_walkers: Tensor) -> tuple[Tensor, ...]:
        """The walkers that go side by side: all, where the head takes several filters per sample, or one by one."""
        return of_walkers.split(len(of_walkers) if self.problem.takes_rows else 1)

    def _with_slopes(self, points: Tensor) -> tuple[Tensor, Tensor]:
        self.spent += len(points)
        return with_slope(self.problem, self._values, points, self.samples.expand(len(points), -1))

    def _values(self, weights: Tensor, only: Tensor) -> Tensor:
        return self.problem.several(weights.float(), only)

    def _round(self, steps: int, rate: float) -> None:
        parts = [self._at_once(one) for one in (self.points, self.losses, self.gradients)]
        for best, least, slopes in zip(*parts, strict=True):
            point = best.clone()
            mean, size = torch.zeros_like(point), torch.zeros_like(point[..., :1])
            for step in range(1, steps + 1):
                loss, slope = self._with_slopes(point)
                better = loss < least
                least.copy_(torch.where(better, loss, least))
                best.copy_(torch.where(better.unsqueeze(2), point, best))
                slopes.copy_(torch.where(better.unsqueeze(2), slope, slopes))
                mean = KEPT_SLOPE * mean + (1 - KEPT_SLOPE) * slope
                size = KEPT_SIZE * size + (1 - KEPT_SIZE) * slope.square().sum(dim=2, keepdim=True)
                # The means started at zero; this undoes it.
                ahead = mean / (1 - KEPT_SLOPE**step) / ((size / (1 - KEPT_SIZE**step)).sqrt() + 1e-300)
                length = rate * (1 - step / (steps + 1)) ** 1.5
                point = self._retracted(point - length * ahead)

    def _retracted(self, points: Tensor) -> Tensor:
        return self.problem.filter.retract(points.flatten(0, 1)).unflatten(0, points.shape[:2])


def far_apart(problem: Problem, best: Tensor, number: int) -> Tensor:
    """Filters that differ as much as filters can, (W, B, n): the best so far, the map's energy, its strongest positions
    one by one, and random ones of one sign and of both. Every sample draws the same numbers.
    """
    generator = torch.Generator().manual_seed(1)
    energy = problem.energy().to(best)
    order = energy.argsort(dim=1, descending=True)
    found = [best, energy.clamp_min(1e-12 * energy.amax(dim=1, keepdim=True))]
    while len(found) < number:
        turn, kind = divmod(len(found) - 2, 3)
        random = torch.randn(1, problem.positions, generator=generator, dtype=torch.float64).to(best)
        if kind == 0:
            found.append(random.expand_as(best))
        elif kind == 1:
            found.append(random.abs().expand_as(best))
        else:
            strong = torch.nn.functional.one_hot(order[:, turn % problem.positions], problem.positions)
            found.append(strong + 0.3 * problem.positions**-0.5 * random)
    return torch.stack([problem.filter.retract(one.to(best)) for one in found])
