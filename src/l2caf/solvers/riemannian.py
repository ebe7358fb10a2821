"""`Riemannian`: descent for heads that are not affine, all samples at once, each with its own step and stop."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..problem import Problem
from ..solution import Outcome
from .descent import Descent
from .slope import contradicted, said
from .solver import Found, Solver, check_counts, each_map
from .sphere import by_eigenvalues
from .stencil import MOST_POSITIONS, Stencil
from .walkers import ROUNDS, Walkers, far_apart


@dataclass(frozen=True)
class Riemannian(Solver):
    """Limited-memory BFGS on the filter's own surface, with a backtracking line search.

    Every evaluation of the head serves all samples: each tries a point of its own, and takes it or shortens its
    step. A sample stops when `patience` steps in a row lowered its loss by less than `tolerance` of what it has
    gained since the start, or after `evaluations`.

    A curved head may have many valleys, so up to two thirds of the evaluations go into short descents: from the uniform
    filter, from what would be exact if the head were affine, then from elsewhere (for a sum of squares, which is close
    to convex on most heads, from the map's energy and a random filter; for any other objective from points `leap` away
    from the best so far), until one leads to the same depth again. Where none does, or where a descent ended at a kink,
    `exploring` further evaluations go to walkers that pass kinks and leave valleys (`walkers.py`). The best is followed
    down.

    Where it ends, the gradient is compared with the values. Where these contradict each other, or there is no slope at
    all, the outcome is `stuck`, and a search without derivatives goes on (`stencil.py`), unless there are too many
    positions for one.

    >>> import l2caf
    >>> network = torch.nn.Sequential(
    ...     torch.nn.Conv2d(3, 8, 8, stride=8), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Tanh()
    ... )
    >>> heatmap = l2caf.explain(network, torch.rand(1, 3, 32, 32), solver=Riemannian(evaluations=40))
    >>> heatmap.solution.solver
    'Riemannian'
    """

    evaluations: int = 150
    tolerance: float = 3e-4
    patience: int = 2
    memory: int = 12
    leap: float = 0.6
    exploring: int = 1280

    def __post_init__(self) -> None:
        check_counts(self, "evaluations", "patience", "memory")

    def search(self, problem: Problem) -> Found:
        return each_map(problem, self._search_one)

    def _search_one(self, problem: Problem) -> Found:
        def value(weights: Tensor, only: Tensor | None = None) -> Tensor:
            return problem.value(weights.float().unsqueeze(0), only=only)[0]

        state = Descent(problem, value, self.memory)
        first, *others = _starts(problem)
        state.consider(first)
        even = state.loss.clone()
        for start in others:
            state.consider(start)
        if bool(state.stalled.any()):
            for start in _rescues(problem):
                state.consider(start, only=state.stalled)
        walked = torch.zeros_like(state.running)
        if problem.filter.on_unit_sphere and problem.informative:
            walked = self._explore(state, even)
        self._finish(state, walked)
        if problem.filter.parameters_are_weights and bool((late := self._at_kink(state, even) & ~walked).any()):
            late = self._walk(state, late)
            walked = walked | late
            state.go_on(late)
            self._finish(state, walked)
        outcome, reason = self._ended(state, even, walked)
        weights = problem.filter.weights(state.point, problem.grid)
        return Found(
            weights.float().unsqueeze(0),
            state.loss.unsqueeze(0),
            state.steps.unsqueeze(0),
            state.evaluations.unsqueeze(0),
            [outcome],
            even.unsqueeze(0),
            reason=reason,
        )

    def _finish(self, state: Descent, walked: Tensor) -> None:
        """Follow every sample's best point down."""
        limit = self.evaluations + self.exploring * walked
        state.descend(until=limit, tolerance=self.tolerance, patience=self.patience)

    def _explore(self, state: Descent, even: Tensor) -> Tensor:
        """Bring every sample to the best valley that is found; return which ones needed walkers for it."""
        most = self.evaluations * 2 // 3
        looking = state.problem.finite & ~state.stalled & (state.evaluations + LINEARISED < most)
        # Those that have no slope yet, those that other descents do not confirm, and those at a kink.
        rough = state.problem.finite & state.stalled
        if bool(looking.any()):
            if state.problem.losses[0].target is None:
                rough |= self._leap(state, even, looking, most)
                affordable = state.evaluations + MOST_ELSEWHERE < self.evaluations
                rough |= _slopes_oppose(state, looking & ~rough & affordable)
            beside: list[Descent] = []
            if state.problem.losses[0].target is not None and state.problem.takes_rows:
                starts = list(far_apart(state.problem, state.point, 1 + CONFIRMED_SQUARES)[1:])
                beside = state.beside(starts, looking, until=state.evaluations + most, tolerance=COARSE)
            else:
                state.descend(until=most, tolerance=COARSE, patience=2)
            rough |= self._look_elsewhere(state, even, looking & ~rough, beside)
        rough |= self._at_kink(state, even)
        walked = self._walk(state, rough)
        state.go_on()
        return walked

    def _walk(self, state: Descent, samples: Tensor) -> Tensor:
        """Send walkers for some samples; return which ones they could help."""
        samples = samples & bool(self.exploring)
        if not bool(samples.any()):
            return samples
        problem = state.problem
        lies, spent = contradicted(problem, state.value, state.point, samples)
        state.evaluations = state.evaluations + spent * samples
        samples = samples & ~lies  # who follows such a gradient is led astray
        walkers = Walkers(problem, samples, far_apart(problem, state.point, ROUNDS[0][0]))
        flat = samples & state.stalled
        if bool(flat.any()):
            # A head that is shut for every filter moves nobody.
            samples = walkers.samples = samples & ~(flat & ~walkers.have_slopes())
            state.evaluations = state.evaluations + flat * walkers.spent
            walkers.spent = 0
        if bool(samples.any()):
            walkers.walk(self.exploring)
            point, loss, gradient = walkers.best()
            state.take(point, torch.where(samples, loss, torch.inf), gradient)
            state.evaluations = state.evaluations + samples * walkers.spent
        return samples

    def _leap(self, state: Descent, even: Tensor, looking: Tensor, most: int) -> Tensor:
        """Descend from where the head, taken for affine, has its best filter, then from leaps away from the best."""
        other = state
        for _ in range(LINEARISED):
            other = state.sibling(-other.gradient, looking, evaluations=other.evaluations)
        state.evaluations = other.evaluations
        state.descend(until=most, tolerance=COARSE, patience=2)
        other.evaluations = state.evaluations
        other.descend(until=most, tolerance=COARSE, patience=2)
        state.take_from(other)
        generator = torch.Generator().manual_seed(0)
        while bool((going := looking & (state.evaluations < most - 1)).any()):
            leap = torch.randn(1, state.point.shape[1], generator=generator, dtype=torch.float64)
            leap = self.leap * (leap / leap.norm()).to(state.point)
            other = state.sibling(state.point + leap, going, evaluations=state.evaluations)
            other.descend(until=most, tolerance=COARSE, patience=2)
            gained = even - torch.minimum(state.loss, other.loss)
            same = (other.loss - state.loss).abs() <= SAME_VALLEY * gained + 1e-7 * even.abs()
            looking = looking & ~(going & same)
            state.take_from(other)
        return looking

    def _look_elsewhere(self, state: Descent, even: Tensor, looking: Tensor, beside: list[Descent]) -> Tensor:
        """Descend from filters that are far from the best one; tell which samples got elsewhere.

        The first of these descents may have gone down `beside` the one from the best filter.
        """
        squares = state.problem.losses[0].target is not None
        far = OTHER_VALLEY[0 if squares else 1]
        differ, same = torch.zeros_like(looking), torch.zeros_like(state.steps)
        for start in far_apart(state.problem, state.point, 1 + MOST_ELSEWHERE)[1:]:
            going = looking & ~differ & (state.evaluations + SHORT < self.evaluations * 4 // 5)
            going &= same < (CONFIRMED_SQUARES if squares else CONFIRMED)
            if beside:
                other = beside.pop(0)
                going = looking & other.loss.isfinite()
            elif not bool(going.any()):
                break
            else:
                other = state.sibling(start, going, evaluations=state.evaluations)
                if not squares:  # on a head that is nearly affine this leads to the best filter
                    other = state.sibling(-other.gradient, going, evaluations=other.evaluations)
                other.descend(until=state.evaluations + SHORT, tolerance=COARSE if squares else FINE, patience=2)
            gained = even - torch.minimum(state.loss, other.loss) + 1e-7 * even.abs()
            higher = other.loss - state.loss
            differ |= going & ((higher < -SAME_VALLEY * gained) | (higher > far * gained))
            same += going & (squares | (higher.abs() <= 0.1 * SAME_VALLEY * gained))
            state.take_from(other)
        return differ

    def _at_kink(self, state: Descent, even: Tensor) -> Tensor:
        """Which samples ended where there is a slope and yet no way down along it; corners of a filter are no kinks."""
        if not state.problem.filter.on_unit_sphere:
            return torch.zeros_like(state.blocked)
        point = state.point / state.point.norm(dim=1, keepdim=True)
        along = state.gradient - (state.gradient * point).sum(dim=1, keepdim=True) * point
        return state.blocked & (KINK * along.norm(dim=1) > COARSE * (even - state.loss))

    def _ended(self, state: Descent, even: Tensor, walked: Tensor) -> tuple[list[Outcome], str]:
        """How each search ended; one whose gradient leads nowhere is taken further without it."""
        problem = state.problem
        lies, spent = contradicted(problem, state.value, state.point)
        state.evaluations = state.evaluations + spent * problem.finite
        flat = problem.finite & state.stalled & (state.steps == 0) & ~lies
        kink = self._at_kink(state, even) & ~walked & ~lies
        stuck = lies | flat | kink
        words = [said(lies)]
        without = lies | (flat & problem.moved)
        if bool((flat & problem.moved).any()):
            words.append(f"{int((flat & problem.moved).sum())} of {problem.batch} samples have no slope")
        if bool(without.any()) and problem.positions <= MOST_POSITIONS:
            stencil = Stencil(problem, state.value, state.point, state.loss)
            stencil.descend(without)
            state.point, state.loss = stencil.point, stencil.loss
            state.evaluations = state.evaluations + stencil.spent * without
            words.append("these were searched without derivatives")
        outcome = [
            Outcome.STUCK if is_stuck else Outcome.STEP_LIMIT if running else Outcome.CONVERGED
            for is_stuck, running in zip(stuck.tolist(), state.running.tolist(), strict=True)
        ]
        return outcome, ", ".join(word for word in words if word)


COARSE, FINE = 2e-2, 5e-3  # the tolerances of short descents
# Shares of what was gained over the uniform filter. Short descents that end this close, or deeper by no more, found the
# same valley; from far away they need not get all the way down, and have found another where they end this high: on
# networks with one valley up to 0.11 for sums of squares, and up to 0.13 for other losses.
SAME_VALLEY, OTHER_VALLEY = 1e-2, (0.15, 0.2)
LINEARISED = 4  # how often the head is taken for affine where it stands, to make a start that knows its slope
# Descents that only ask whether there is another valley: how many, how many that end at the very same depth are enough,
# and the evaluations of one.
MOST_ELSEWHERE, CONFIRMED, CONFIRMED_SQUARES, SHORT = 7, 5, 2, 20
OPPOSED = -0.2  # the least cosine of two slopes that a head with one valley has; VGG's come down to -0.1
KINK = 0.05  # how far a step must be able to go down a slope, on the unit sphere


def _slopes_oppose(state: Descent, looking: Tensor) -> Tensor:
    """For which samples the slopes at filters that are far apart point away from one another: the loss turns round."""
    if not bool(looking.any()):
        return looking
    walkers = Walkers(state.problem, looking, far_apart(state.problem, state.point, 1 + MOST_ELSEWHERE)[1:])
    losses, slopes = walkers.look()
    for own in zip(walkers.points, losses, slopes, strict=True):
        state.take(*own)
    state.evaluations = state.evaluations + walkers.spent * looking
    stacked = torch.nn.functional.normalize(slopes, dim=2).transpose(0, 1)
    return looking & ((stacked @ stacked.mT).amin(dim=(1, 2)) < OPPOSED)


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
