"""`GradientDescent`: the paper's own procedure, the reference that the other solvers are measured against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..problem import Problem, Way
from ..solution import Outcome
from .slope import contradicted, said, with_slope
from .solver import Found, Solver, check_counts, each_map


@dataclass(frozen=True)
class GradientDescent(Solver):
    """Random start in [0, 1], descent with a decaying rate, stop when the loss has stood still for a while.

    A sample stops when |L_l - L_(l-window)| < tolerance, or after `steps`. The rate falls linearly to zero.
    `vanilla` runs the whole network in every step, as one would without a cut; the result is the same.
    `keep_path` keeps the filter of every step, for slow motion.

    >>> import l2caf
    >>> network = torch.nn.Sequential(
    ...     torch.nn.Conv2d(3, 8, 4, stride=4), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    ... )
    >>> heatmap = l2caf.explain(network, torch.rand(1, 3, 32, 32), solver=GradientDescent(steps=9, keep_path=True))
    >>> heatmap.solution.path.shape
    torch.Size([9, 1, 8, 8])
    """

    steps: int = 1000
    learning_rate: float = 0.5
    adam: bool = False
    tolerance: float = 1e-5
    window: int = 50
    seed: int = 0
    vanilla: bool = False
    keep_path: bool = False

    def __post_init__(self) -> None:
        check_counts(self, "steps", "window")

    def search(self, problem: Problem) -> Found:
        return each_map(problem, self._search_one)

    def _search_one(self, problem: Problem) -> Found:
        generator = torch.Generator().manual_seed(self.seed)
        # Every sample draws its own numbers from the same seed, so that a batch gives what its samples give alone.
        start = problem.filter.start(1, problem.grid, generator).to(problem.device)
        parameters = start.repeat(problem.batch, 1).requires_grad_()
        way = Way.WHOLE if self.vanilla else Way.REPLAY

        def losses_at(weights: Tensor) -> Tensor:
            return problem.value(weights.unsqueeze(0), way=way)[0]

        optimizer: torch.optim.Optimizer = (
            torch.optim.Adam([parameters], lr=self.learning_rate)
            if self.adam
            else torch.optim.SGD([parameters], lr=self.learning_rate)
        )
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / self.steps)
        return self._descend(problem, parameters, optimizer, schedule, losses_at)

    def _descend(
        self,
        problem: Problem,
        parameters: Tensor,
        optimizer: torch.optim.Optimizer,
        schedule: torch.optim.lr_scheduler.LambdaLR,
        losses_at: Callable[[Tensor], Tensor],
    ) -> Found:
        history: list[Tensor] = []
        path: list[Tensor] = []
        running = torch.ones(problem.batch, dtype=torch.bool, device=problem.device)
        steps = torch.zeros(problem.batch, dtype=torch.int64, device=problem.device)
        stood_still = torch.zeros_like(running)
        for step in range(self.steps):
            losses, slope = with_slope(problem, losses_at, parameters)
            history.append(losses)
            if self.keep_path:
                path.append(problem.filter.weights(parameters.detach(), problem.grid).clone())
            steps += running
            if step >= self.window:
                stood_still |= (history[-1] - history[-1 - self.window]).abs() < self.tolerance
            running = ~stood_still & history[-1].isfinite()
            if not running.any():
                break
            frozen = parameters.detach()[~running].clone()
            parameters.grad = slope
            optimizer.step()
            schedule.step()
            with torch.no_grad():
                parameters[~running] = frozen
        with torch.no_grad():
            weights = problem.filter.weights(parameters, problem.grid)
            losses = losses_at(weights).double()
        # A loss that stands still where the gradient is not that of the values has not converged.
        lies, spent = contradicted(problem, losses_at, parameters.detach())
        outcome = [
            Outcome.STUCK if stuck else Outcome.CONVERGED if still else Outcome.STEP_LIMIT
            for stuck, still in zip(lies.tolist(), stood_still.tolist(), strict=True)
        ]
        return Found(
            weights.detach().unsqueeze(0),
            losses.unsqueeze(0),
            steps.unsqueeze(0),
            (steps + spent).unsqueeze(0),
            [outcome],
            path=torch.stack(path).unsqueeze(1) if path else None,
            losses=torch.stack(history).unsqueeze(1),
            reason=said(lies),
        )
