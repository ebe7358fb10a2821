"""`Riemannian`: descent for heads that are not affine, all samples at once, each with its own step and stop."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..problem import Problem
from ..solution import Outcome
from .solver import Found, Solver, slope_of
from .sphere import by_eigenvalues


@dataclass(frozen=True)
class Riemannian(Solver):
    """Limited-memory BFGS on the filter's own surface, with a backtracking line search.

    Every evaluation of the head serves all samples: each tries a point of its own, and takes it or shortens its
    step. A sample stops when `patience` steps in a row lowered its loss by less than `tolerance` of what it has
    gained since the start, or after `evaluations`.

    Keeping the output (a sum of squares) is close to convex. Any other objective on a curved head may have many
    valleys, so up to two thirds of the evaluations go into short descents: from the uniform filter, from what would be
    exact if the head were affine, then each from a point `leap` away from the best so far, until a leap leads to the
    same depth again. The best is followed down.
    """

    evaluations: int = 150
    tolerance: float = 3e-4
    patience: int = 2
    memory: int = 12
    leap: float = 0.6

    def search(self, problem: Problem) -> Found:
        return Found.stacked([self._search_one(problem.one(number)) for number in range(problem.maps)])

    def _search_one(self, problem: Problem) -> Found:
        state = _State(problem, self.memory)
        for start in _starts(problem):
            state.consider(start)
        if bool(state.stalled.any()):
            for start in _rescues(problem):
                state.consider(start, only=state.stalled)
        if problem.filter.on_unit_sphere and problem.losses[0].target is None:
            self._explore(state)
        state.descend(until=self.evaluations, tolerance=self.tolerance, patience=self.patience)
        outcome = [Outcome.STEP_LIMIT if running else Outcome.CONVERGED for running in state.running.tolist()]
        weights = problem.filter.weights(state.point, problem.grid)
        return Found(
            weights.float().unsqueeze(0),
            state.loss.unsqueeze(0),
            state.steps.unsqueeze(0),
            state.evaluations.unsqueeze(0),
            [outcome],
        )

    def _explore(self, state: _State) -> None:
        """Bring every sample to the best valley that short descents can find."""
        most = self.evaluations * 2 // 3
        looking = state.problem.finite & ~state.stalled & (state.evaluations + LINEARISED < most)
        if not bool(looking.any()):
            return
        other = state
        for _ in range(LINEARISED):
            other = state.sibling(-other.gradient, looking, evaluations=other.evaluations)
        state.evaluations = other.evaluations
        state.descend(until=most, tolerance=COARSE, patience=2)
        other.evaluations = state.evaluations
        other.descend(until=most, tolerance=COARSE, patience=2)
        state.take_from(other)
        generator = torch.Generator().manual_seed(0)
        while bool((looking := looking & (state.evaluations < most - 1)).any()):
            leap = torch.randn(1, state.point.shape[1], generator=generator, dtype=torch.float64)
            leap = self.leap * (leap / leap.norm()).to(state.point)
            other = state.sibling(state.point + leap, looking, evaluations=state.evaluations)
            other.descend(until=most, tolerance=COARSE, patience=2)
            looking = looking & ((other.loss - state.loss).abs() > SAME_DEPTH * state.loss.abs())
            state.take_from(other)
        state.go_on()


COARSE = 2e-2  # the tolerance of a short descent
SAME_DEPTH = 1e-3  # two descents that end this close, relatively, have found the same valley
LINEARISED = 4  # how often the head is taken for affine where it stands, to make a start that knows its slope


class _State:
    """The samples' points, losses, gradients and curvature memories."""

    def __init__(self, problem: Problem, memory: int) -> None:
        self.problem = problem
        self.memory = memory
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

    def sibling(self, point: Tensor, running: Tensor, *, evaluations: Tensor) -> _State:
        """Return another descent of the same problem, from another point, that counts on from here."""
        other = _State(self.problem, self.memory)
        other.running, other.evaluations = running.clone(), evaluations
        other.consider(point)
        return other

    def take_from(self, other: _State) -> None:
        """Move every sample to where the other descent brought it, if that is lower."""
        better = other.loss < self.loss
        self.point = torch.where(better.unsqueeze(1), other.point, self.point)
        self.gradient = torch.where(better.unsqueeze(1), other.gradient, self.gradient)
        self.loss = torch.where(better, other.loss, self.loss)
        self.steps = self.steps + other.steps
        self.evaluations = other.evaluations

    def go_on(self) -> None:
        """Make ready to descend further from the present points."""
        self.running = self.problem.finite & ~self.stalled
        self.small_steps = torch.zeros_like(self.small_steps)
        self.stride = 0.3 / self.gradient.norm(dim=1).clamp_min(1e-30)
        self.moves = []

    def descend(self, *, until: int, tolerance: float, patience: int) -> None:
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
        self.stride = torch.where(taken, torch.ones_like(self.stride), shorter)
        self.point = torch.where(taken.unsqueeze(1), trial, self.point)
        self.gradient = torch.where(taken.unsqueeze(1), gradient, self.gradient)
        self.loss = torch.where(taken, loss, self.loss)
        self.steps += taken
        enough = tolerance * (self.first_loss - self.loss).clamp_min(0) + 1e-12 * self.loss.abs()
        self.small_steps = torch.where(taken, torch.where(gain <= enough, self.small_steps + 1, 0), self.small_steps)
        stuck = self.stride * direction.norm(dim=1) < 1e-9
        self.running = self.running & ~((self.small_steps >= patience) | stuck | (self.gradient.norm(dim=1) == 0))

    def _evaluate(self, point: Tensor) -> tuple[Tensor, Tensor]:
        self.evaluations = self.evaluations + self.running
        with torch.enable_grad():
            leaf = point.detach().requires_grad_()
            weights = self.problem.filter.weights(leaf, self.problem.grid)
            losses = self.problem.value(weights.float().unsqueeze(0))[0].double()
            finite = torch.where(losses.isfinite(), losses, 0.0)
            slope = slope_of(finite, leaf, self.problem)
        return torch.where(losses.isfinite(), losses, torch.inf).detach(), slope.nan_to_num(0.0, 0.0, 0.0)

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


def _starts(problem: Problem) -> list[Tensor]:
    """The uniform filter, and where the head has an affine part the exact filter of that part."""
    starts = [problem.filter.start(problem.batch, problem.grid)]
    if problem.filter.on_unit_sphere and problem.losses[0].target is not None:
        part = problem.affine_part()
        if part is not None:
            jacobian = part.jacobian.double().nan_to_num(0.0, 0.0, 0.0).cpu().numpy()
            exact = by_eigenvalues(jacobian, precision=torch.finfo(part.offset.dtype).eps)
            starts.append(torch.from_numpy(exact))
    return starts


def _rescues(problem: Problem) -> list[Tensor]:
    """Filters for where the uniform one shuts every rectifier: the map's strongest position, then its energy."""
    if not problem.filter.parameters_are_weights:
        return []
    energy = problem.energy()
    return [torch.nn.functional.one_hot(energy.argmax(dim=1), energy.shape[1]), energy]
