"""Limited-memory BFGS on the filter's own surface, for all samples at once, each with its own step and stop."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor

from ..problem import Problem
from .slope import Value, with_slope

SHORTEST = 1e-6  # on the unit sphere: a step that was shortened below this has nowhere to go


class Descent:
    """The samples' points, losses, gradients and curvature memories.

    `running` are those that still descend, `blocked` those that ended where no step along the gradient lowers the loss,
    though there is a gradient: at a kink, or beside a gradient that is not that of the values.
    """

    def __init__(self, problem: Problem, value: Value, memory: int) -> None:
        self.problem, self.value, self.memory = problem, value, memory
        batch, device = problem.batch, problem.device
        self.point = problem.filter.retract(problem.filter.start(batch, problem.grid).to(device).double())
        self.loss = torch.full((batch,), torch.inf, dtype=torch.float64, device=device)
        self.gradient = torch.zeros_like(self.point)
        self.first_loss = self.loss.clone()
        self.stride = torch.ones_like(self.loss)
        self.steps = torch.zeros(batch, dtype=torch.int64, device=device)
        self.evaluations = torch.zeros_like(self.steps)
        self.small_steps = torch.zeros_like(self.steps)
        self.running = problem.finite.clone()
        self.blocked = torch.zeros_like(self.running)
        self.moved = torch.zeros_like(self.running)
        self.moves: list[tuple[Tensor, Tensor, Tensor]] = []  # (s, y, 1 / s.y), zero where a sample did not move

    @property
    def stalled(self) -> Tensor:
        """Which samples stand where the loss has no slope."""
        return self.gradient.norm(dim=1) == 0

    def consider(self, point: Tensor, *, only: Tensor | None = None) -> None:
        """Start from this point where it is better than the present one, or where it alone has a slope."""
        point = self.problem.filter.retract(point.to(self.point))
        loss, gradient = self._evaluate(point)
        better = loss < self.loss if only is None else only & (gradient.norm(dim=1) > 0)
        self.point = torch.where(better.unsqueeze(1), point, self.point)
        self.gradient = torch.where(better.unsqueeze(1), gradient, self.gradient)
        self.loss = torch.where(better, loss, self.loss)
        self.first_loss = self.loss.clone()
        self.stride = 0.3 / self.gradient.norm(dim=1).clamp_min(1e-30)

    def sibling(self, point: Tensor, running: Tensor, *, evaluations: Tensor) -> Descent:
        """Return another descent of the same problem, from another point, that counts on from here."""
        other = Descent(self.problem, self.value, self.memory)
        other.running, other.evaluations = running.clone(), evaluations
        other.consider(point)
        other.loss = torch.where(running, other.loss, torch.inf)  # the others have not asked
        return other

    def beside(
        self, starts: Sequence[Tensor], running: Tensor, *, until: int | Tensor, tolerance: float
    ) -> list[Descent]:
        """Descend from here and, for the samples that are running there, from other starts: all side by side.

        For a head that takes rows. Return the descents from the other starts; they count on from here, in turn.
        """
        number, problem, spent = len(starts), self.problem, self.evaluations.clone()

        def value(weights: Tensor, only: Tensor) -> Tensor:
            shape = (1 + number, problem.batch)
            return problem.several(weights.float().unflatten(0, shape), only.reshape(shape)).flatten()

        whole = copy.copy(self)
        whole.value, whole.copies = value, 1 + number
        others = [problem.filter.retract(start.to(self.point)) for start in starts]
        for name in vars(self):
            own = getattr(self, name)
            if isinstance(own, Tensor):
                setattr(whole, name, torch.cat([own] * (1 + number)))
        whole.moves = []
        whole.point = torch.cat([self.point, *others])
        whole.running = torch.cat([torch.zeros_like(running), *[running] * number])
        loss, gradient = whole._evaluate(whole.point)
        is_other = whole.running.clone()
        whole.loss = torch.where(
            is_other, loss, torch.cat([self.loss, *[torch.full_like(self.loss, torch.inf)] * number])
        )
        whole.gradient = torch.where(is_other.unsqueeze(1), gradient, whole.gradient)
        whole.first_loss = torch.where(is_other, loss, whole.first_loss)
        whole.stride = torch.where(is_other, 0.3 / whole.gradient.norm(dim=1).clamp_min(1e-30), whole.stride)
        whole.running = torch.cat([self.running, *[running] * number])
        whole.descend(
            until=until.repeat(1 + number) if isinstance(until, Tensor) else until, tolerance=tolerance, patience=2
        )
        parts = [whole._part(number) for number in range(1 + number)]
        for name, own in vars(parts[0]).items():
            if name not in ("value", "copies"):
                setattr(self, name, own)
        spent_here = [part.evaluations - spent for part in parts]
        for place, part in enumerate(parts[1:], start=1):
            part.evaluations = spent + torch.stack(spent_here[: place + 1]).sum(dim=0)
            part.value = self.value
        return parts[1:]

    def _part(self, number: int) -> Descent:
        """One of the descents that went side by side."""
        part, batch = copy.copy(self), len(self.loss) // self.copies

        def own(value: Tensor) -> Tensor:
            return value[number * batch : (number + 1) * batch]

        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(part, name, own(value))
        part.moves = [(own(move), own(change), own(inverse)) for move, change, inverse in self.moves]
        part.copies = 1
        return part

    copies: int = 1

    def take_from(self, other: Descent) -> None:
        """Move every sample to where the other descent brought it, if that is lower."""
        self.take(other.point, other.loss, other.gradient)
        self.steps = self.steps + other.steps
        self.evaluations = other.evaluations

    def take(self, point: Tensor, loss: Tensor, gradient: Tensor) -> None:
        """Move every sample to this point, if that is lower; what it knew of its old valley is of no use there."""
        better = loss < self.loss
        self.moved = self.moved | better
        self.point = torch.where(better.unsqueeze(1), point, self.point)
        self.gradient = torch.where(better.unsqueeze(1), gradient, self.gradient)
        self.loss = torch.where(better, loss, self.loss)

    def go_on(self, samples: Tensor | None = None) -> None:
        """Make some samples, or all, ready to descend further from their present points."""
        chosen = torch.ones_like(self.running) if samples is None else samples
        self.running = torch.where(chosen, self.problem.finite & ~self.stalled, self.running)
        self.blocked = self.blocked & ~chosen
        self.small_steps = torch.where(chosen, 0, self.small_steps)
        self.stride = torch.where(self.moved, 0.3 / self.gradient.norm(dim=1).clamp_min(1e-30), self.stride)
        stays = (~self.moved).unsqueeze(1).to(self.point)
        self.moves = [(move * stays, change * stays, inverse * stays) for move, change, inverse in self.moves]
        self._last_scale = torch.where(self.moved.unsqueeze(1), 1.0, torch.as_tensor(self._last_scale).to(self.point))
        self.moved = torch.zeros_like(self.moved)

    def descend(self, *, until: int | Tensor, tolerance: float, patience: int) -> None:
        """Step until every sample has converged or has used `until` evaluations; the latter stay marked as running."""
        converging = self.running
        while bool((going := converging & (self.evaluations < until)).any()):
            self.running = going
            self.step(tolerance=tolerance, patience=patience)
            converging = self.running | (converging & ~going)
        self.running = converging

    def step(self, *, tolerance: float, patience: int) -> None:
        """Let every running sample try one point."""
        direction = self._direction()
        slope = (direction * self.gradient).sum(dim=1)
        trial = self.problem.filter.retract(self.point + self.stride.unsqueeze(1) * direction)
        loss, gradient = self._evaluate(trial)
        taken = (loss <= self.loss + 1e-4 * self.stride * slope) & self.running
        gain = self.loss - loss
        self._remember(trial, gradient, taken)
        # A refused step is shortened to where a parabola through what is known would have its foot.
        curvature = 2 * (loss - self.loss - self.stride * slope)
        shorter = (-slope * self.stride.square() / curvature).nan_to_num(0.0, 0.0, 0.0)
        shorter = torch.minimum(torch.maximum(shorter, 0.1 * self.stride), 0.5 * self.stride)
        # A direction that curvature has scaled asks for a step of 1; a bare gradient for a longer one than the last.
        scaled = torch.stack([inverse.squeeze(1) > 0 for _, _, inverse in self.moves]).any(dim=0)
        self.stride = torch.where(taken, torch.where(scaled, 1.0, 2 * self.stride), shorter)
        self.point = torch.where(taken.unsqueeze(1), trial, self.point)
        self.gradient = torch.where(taken.unsqueeze(1), gradient, self.gradient)
        self.loss = torch.where(taken, loss, self.loss)
        self.steps += taken
        enough = tolerance * (self.first_loss - self.loss).clamp_min(0) + 1e-12 * self.loss.abs()
        self.small_steps = torch.where(taken, torch.where(gain <= enough, self.small_steps + 1, 0), self.small_steps)
        blocked = self.running & (self.stride * direction.norm(dim=1) < SHORTEST)
        self.blocked = self.blocked | blocked
        self.running = self.running & ~((self.small_steps >= patience) | blocked | self.stalled)

    def _evaluate(self, point: Tensor) -> tuple[Tensor, Tensor]:
        self.evaluations = self.evaluations + self.running
        return with_slope(self.problem, self.value, point, self.running)

    def _direction(self) -> Tensor:
        """Return minus the inverse Hessian's limited-memory estimate times the gradient (the two-loop recursion)."""
        direction = -self.gradient
        shares = []
        for move, change, inverse in reversed(self.moves):
            share = inverse * (move * direction).sum(dim=1, keepdim=True)
            direction = direction - share * change
            shares.append(share)
        if self.moves:
            move, change, inverse = self.moves[-1]
            scale = 1 / (inverse * change.square().sum(dim=1, keepdim=True)).clamp_min(1e-30)
            direction = direction * torch.where(inverse > 0, scale, self._last_scale)
            self._last_scale = torch.where(inverse > 0, scale, self._last_scale)
        for (move, change, inverse), share in zip(self.moves, reversed(shares), strict=True):
            direction = direction + move * (share - inverse * (change * direction).sum(dim=1, keepdim=True))
        uphill = (direction * self.gradient).sum(dim=1, keepdim=True) >= 0
        return torch.where(uphill, -self.gradient, direction)

    _last_scale: Tensor | float = 1.0

    def _remember(self, trial: Tensor, gradient: Tensor, taken: Tensor) -> None:
        move = trial - self.point
        change = gradient - self.gradient
        product = (move * change).sum(dim=1, keepdim=True)
        sound = taken.unsqueeze(1) & (
            product > 1e-10 * move.norm(dim=1, keepdim=True) * change.norm(dim=1, keepdim=True)
        )
        zeros = torch.zeros_like(move)
        inverse = torch.where(sound, 1 / product.where(sound, torch.ones_like(product)), 0.0)
        self.moves.append((move.where(sound, zeros), change.where(sound, zeros), inverse))
        del self.moves[: -self.memory]
