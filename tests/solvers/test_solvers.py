"""Every solver on problems whose minimum is known, and the solvers against one another and against SciPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor, nn

import l2caf
import networks_for_tests as nets
from l2caf.errors import MethodError
from l2caf.filters import Filter, Gaussian, Softmax, UnitL1, UnitL2
from l2caf.heads.recorded import RecordedHead
from l2caf.methods.attention_filter import pose
from l2caf.objectives.classes import ClassSpecific
from l2caf.objectives.objective import LeastSquares, Losses, Objective
from l2caf.objectives.output import ClassOblivious, Similarity
from l2caf.problem import Problem, Way
from l2caf.recording.replay import Replay
from l2caf.solution import Outcome
from l2caf.solvers.auto import Auto
from l2caf.solvers.exact import Exact
from l2caf.solvers.gradient_descent import GradientDescent
from l2caf.solvers.riemannian import Riemannian
from l2caf.solvers.solver import Solver
from networks_for_tests import pixels, seeded

DESCENT = GradientDescent(steps=500, adam=True, learning_rate=0.05, tolerance=0.0)
# Four times the paper's rate: with that the slowest of these problems takes 2,000 steps, in `make endurance`.
PLAIN_DESCENT = GradientDescent(steps=700, learning_rate=2.0, tolerance=0.0)
PAPERS_DESCENT = pytest.param(GradientDescent(steps=2000, tolerance=0.0), marks=pytest.mark.endurance)
SOLVERS = [Exact(), Riemannian(), DESCENT, PLAIN_DESCENT, PAPERS_DESCENT, Auto()]


def posed(
    network: nn.Module,
    inputs: Tensor,
    objective: Objective | None = None,
    *,
    filter: Filter | None = None,
    **where: str,
) -> Problem:
    head = RecordedHead(Replay(network, inputs, **where))
    return pose(head, filter or UnitL2(), objective or ClassOblivious())[0]


def replayed(problem: Problem, weights: Tensor) -> Tensor:
    """The losses of the one map at (B, ...) filters, by replays."""
    return problem.value(weights.flatten(1).unsqueeze(0), way=Way.REPLAY)[0]


def mean_and_weigh(weights: Tensor) -> nn.Module:
    """The picture is the map; its mean, weighed by (classes, channels), is the output."""
    linear = nn.Linear(weights.shape[1], weights.shape[0], bias=False)
    linear.weight = nn.Parameter(weights)
    return nn.Sequential(nn.Identity(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), linear)


def bent(gain: float) -> nn.Module:
    """The picture is the map; each output is the tanh of one position."""
    linear = nn.Linear(9, 9, bias=False)
    linear.weight = nn.Parameter(gain * torch.eye(9))
    return nn.Sequential(nn.Identity(), nn.Flatten(), linear, nn.Tanh())


def each_position() -> nn.Module:
    """The picture is the map, and its nine positions are the output."""
    linear = nn.Linear(9, 9, bias=False)
    linear.weight = nn.Parameter(torch.eye(9))
    return nn.Sequential(nn.Identity(), nn.Flatten(), linear)


@dataclass(frozen=True)
class Known:
    """A problem, its minimum and, where there is only one, the filter that reaches it."""

    network: nn.Module
    inputs: Tensor
    objective: Objective
    minimum: float
    filter: Tensor | None
    affine: bool = True


def _rank_one() -> Known:
    # o = 9 mean(a f) = a . f, so the nearest that a unit filter gets to sum(a) is ||a||, along a.
    a = torch.tensor([1.0, 2, 0.5, 1, 3, 1, 2, 0.2, 1])
    gap = (a.sum() - a.norm()).square()
    return Known(
        mean_and_weigh(torch.full((1, 1), 9.0)),
        a.reshape(1, 1, 3, 3),
        ClassOblivious(),
        gap.item(),
        a / a.norm(),
    )


def _positions() -> Known:
    # Nine equal positions: all that a unit filter can do is to shrink them all, (1 - 1/3)^2 each.
    return Known(each_position(), torch.ones(1, 1, 3, 3), ClassOblivious(), 9 * (2 / 3) ** 2, torch.full((9,), 1 / 3))


def _planted(network: nn.Module, objective: Objective, minimum: float, *, affine: bool) -> Known:
    a = torch.zeros(9)
    a[5] = 2.0
    expected = torch.zeros(9)
    expected[5] = 1.0
    return Known(network, a.reshape(1, 1, 3, 3), objective, minimum, expected, affine)


def _two_classes() -> Known:
    # Channel 0 speaks for class 0 and lives in the left column; channel 1 for class 1, in the right one.
    a = torch.zeros(1, 2, 3, 3)
    a[0, 0, :, 0], a[0, 1, :, 2] = 1.0, 1.0
    # min -2 (o_0 - mean o) = min -(o_0 - o_1) with o = 9 mean: the best is (left - right) / sqrt 6.
    expected = torch.tensor([[1.0, 0, -1]] * 3).flatten() / 6**0.5
    return Known(mean_and_weigh(9 * torch.eye(2)), a, ClassSpecific(0), -(6**0.5), expected)


def _one_embedding() -> Known:
    a = torch.tensor([1.0, -2, 0.5, 1, 3, 1, 2, 0.2, -1])
    return Known(
        mean_and_weigh(torch.tensor([[9.0], [-9.0]])),
        a.reshape(1, 1, 3, 3),
        Similarity(torch.tensor([1.0, -1.0])),
        -2 * a.norm().item(),
        a / a.norm(),
    )


KNOWN: dict[str, Callable[[], Known]] = {
    "rank one": _rank_one,
    "equal positions": _positions,
    "planted position, mean": lambda: _planted(
        mean_and_weigh(torch.tensor([[9.0]])), ClassOblivious(), 0.0, affine=True
    ),
    "planted position, each": lambda: _planted(each_position(), ClassOblivious(), 0.0, affine=True),
    "planted position, bent": lambda: _planted(bent(0.5), ClassOblivious(), 0.0, affine=False),
    "planted class, bent": lambda: _planted(bent(0.5), ClassSpecific(5), -2 * (8 / 9) * math.tanh(1.0), affine=False),
    "two classes": _two_classes,
    "embedding": _one_embedding,
}


@pytest.mark.parametrize("case", KNOWN)
@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: f"{solver.name}{'+Adam' if solver is DESCENT else ''}")
def test_known_minimum(solver: Solver, case: str) -> None:
    known = KNOWN[case]()
    problem = posed(known.network, known.inputs, known.objective)
    if isinstance(solver, Exact) and not known.affine:
        with pytest.raises(MethodError, match="not affine"):
            solver.solve(problem)
        return
    solution = solver.solve(problem)
    found = solution.filter.flatten(1)
    assert float(found.norm()) == pytest.approx(1, abs=1e-5)
    with torch.no_grad():
        untouched = float(problem.value(torch.ones(1, 1, 9) / 3))
        again = float(problem.value(found.unsqueeze(0)))
    slack = 1e-5 * max(abs(known.minimum), abs(untouched)) if solution.solver == "Exact" else 2e-3 * abs(untouched)
    assert float(solution.loss) == pytest.approx(known.minimum, abs=slack + 1e-6)
    assert again == pytest.approx(float(solution.loss), abs=1e-4 * abs(untouched) + 1e-6)
    assert float(found[0] @ known.filter) > (1 - 1e-6 if solution.solver == "Exact" else 0.99)
    if case == "equal positions":
        assert solution.outcome == [Outcome.UNIFORM]
    elif solution.solver == "Exact":
        assert solution.outcome == [Outcome.EXACT]


# Exact against others on networks

AFFINE = {
    "pooled": (nets.pooled, {}),
    "flattened": (nets.flattened, {}),
    "before the rectifier": (nets.ChannelsLast, {}),
    "a head of one class": (lambda: nets.pooled(classes=1), {}),
    "a wide head": (lambda: nets.pooled(classes=100), {}),
}


def strong(network: nn.Module) -> nn.Module:
    """Weights large enough for the paper's fixed rate and tolerance to mean something."""
    if isinstance(network, nets.Tokens):
        return network  # attention that is sharper still has many minima, and no solver promises the best of them
    with torch.no_grad():
        for parameter in network.parameters():
            parameter *= 3
    return network


@pytest.mark.parametrize(
    ("case", "objective"),
    [
        (case, objective)
        for case in AFFINE
        for objective in (ClassOblivious(), ClassSpecific(0), ClassSpecific(0, published=True))
        # One class alone has nothing to be centred against.
        if not (case == "a head of one class" and objective == ClassSpecific(0))
    ],
    ids=repr,
)
def test_exact_against_descent_run_to_convergence(case: str, objective: Objective) -> None:
    make, where = AFFINE[case]
    problem = posed(strong(seeded(make)).double(), pixels(2, seed=3).double(), objective, **where)
    exact = Exact().solve(problem)
    descent = GradientDescent(steps=500, adam=True, learning_rate=0.03, tolerance=0.0).solve(problem)
    cosine = torch.cosine_similarity(exact.filter.flatten(1), descent.filter.flatten(1))
    assert (exact.loss <= descent.loss + 1e-6 * descent.loss.abs()).all()
    torch.testing.assert_close(exact.loss, descent.loss.to(exact.loss), rtol=2e-3, atol=1e-5)
    if case not in ("a head of one class",):
        assert cosine.min() > 0.999


@pytest.mark.parametrize("case", ["pooled", "flattened"])
def test_exact_against_scipy_on_a_network(case: str) -> None:
    network = seeded(AFFINE[case][0]).double()
    problem = posed(network, pixels(1).double())
    solution = Exact().solve(problem)

    def loss_and_slope(weights: numpy.ndarray) -> tuple[float, numpy.ndarray]:
        leaf = torch.tensor(weights[None], requires_grad=True)
        loss = 1e3 * replayed(problem, leaf).sum()
        (slope,) = torch.autograd.grad(loss, leaf)
        return loss.item(), slope[0].numpy()

    best = math.inf
    for start in numpy.random.default_rng(0).normal(size=(4, math.prod(problem.grid))):
        found = minimize(
            loss_and_slope,
            start / numpy.linalg.norm(start),
            jac=True,
            constraints={"type": "eq", "fun": lambda f: f @ f - 1, "jac": lambda f: 2 * f},
            method="SLSQP",
            options={"maxiter": 300, "ftol": 1e-12},
        )
        best = min(best, found.fun / 1e3)
    assert solution.loss.item() <= best * (1 + 1e-6)
    assert solution.loss.item() == pytest.approx(best, rel=1e-3)


# Heads that bend

CURVED: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "tanh": (nets.curved, (3, 32, 32)),
    "rectified after pooling": (nets.RectifiedAfterPooling, (3, 16, 16)),
    "rectified after the layer": (nets.RectifiedAfterLayer, (3, 32, 32)),
    "shared rectifier": (nets.OneRectifier, (3, 32, 32)),
    "dense predictor": (nets.UNet, (3, 32, 32)),
    "recurrent": (nets.Frames, (3, 3, 16, 16)),
    "tokens": (nets.Tokens, (3, 32, 32)),
}
OBLIVIOUS, SPECIFIC = 1.001, 0.01
NOT_CONVEX = {"rectified after the layer": 1.002}  # a negative weight lets through what the rectifier held back


@pytest.mark.parametrize("case", CURVED)
def test_riemannian_is_as_good_as_the_best_descent(case: str) -> None:
    make, size = CURVED[case]
    network = strong(seeded(make, 1))
    problem = posed(network, torch.rand(2, *size, generator=torch.Generator().manual_seed(2)))
    solution = Riemannian().solve(problem)
    descents = [GradientDescent(steps=600, adam=True, learning_rate=rate).solve(problem) for rate in (0.1, 0.02)]
    best = torch.stack([descent.loss for descent in descents]).amin(dim=0)
    assert (solution.loss <= NOT_CONVEX.get(case, OBLIVIOUS) * best + 1e-7).all()
    limit = Riemannian().evaluations + (Riemannian().exploring if case in NOT_CONVEX else 0)
    assert (solution.evaluations <= limit + 6).all()  # three or six for the check of the gradient
    again = replayed(problem, solution.filter).detach().double()
    torch.testing.assert_close(again, solution.loss.double(), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("case", [case for case in CURVED if case != "dense predictor"])
def test_riemannian_is_as_good_as_the_best_descent_for_a_class(case: str) -> None:
    make, size = CURVED[case]
    problem = posed(
        strong(seeded(make, 1)),
        torch.rand(2, *size, generator=torch.Generator().manual_seed(2)),
        ClassSpecific(2),
    )
    solution = Riemannian().solve(problem)
    best = GradientDescent(steps=600, adam=True, learning_rate=0.05).solve(problem).loss
    start = problem.value(torch.full((1, 2, math.prod(problem.grid)), math.prod(problem.grid) ** -0.5))[0].double()
    assert (solution.loss <= best + SPECIFIC * (start - best).abs() + 1e-6).all()


@pytest.mark.parametrize(
    ("filter", "share"),
    # Of what a long descent gains over the even filter. A norm with kinks is hard for curvature, a bump may
    # settle on another peak than where a random start leads.
    [(UnitL1(), 0.2), (Softmax(), 0.98), (Gaussian(), 0.1)],
    ids=["UnitL1", "Softmax", "Gaussian"],
)
@pytest.mark.parametrize("make", [nets.pooled, nets.curved])
def test_other_filters(filter: Filter, share: float, make: Callable[[], nn.Module]) -> None:
    problem = posed(strong(seeded(make)), pixels(), filter=filter)
    solution = Riemannian().solve(problem)
    descent = GradientDescent(steps=600, adam=True, learning_rate=0.05).solve(problem)
    even = problem.value(filter.weights(filter.start(2, problem.grid), problem.grid).unsqueeze(0))[0].detach().double()
    assert (even - solution.loss >= share * (even - descent.loss) - 1e-6).all()
    with pytest.raises(MethodError, match=f"the filter is {filter.name}, not UnitL2"):
        Exact().solve(problem)


class TwoValleys(nn.Module):
    """The picture is the map, and the score is relu(u . f) + 3 relu(v . f): u is even, v is at right angles to it.

    At the even filter only u has a slope, and along it v stays shut.
    """

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Identity()
        self.flatten = nn.Flatten()
        self.directions = nn.Linear(9, 2, bias=False)
        self.rectifier = nn.ReLU()
        self.scores = nn.Linear(2, 2, bias=False)
        one_half = torch.tensor([1.0, 1, 1, 1, 0, -1, -1, -1, -1])
        self.directions.weight = nn.Parameter(torch.stack([torch.ones(9) / 3, one_half / one_half.norm()]))
        self.scores.weight = nn.Parameter(torch.tensor([[1.0, 3.0], [0.0, 0.0]]))

    def forward(self, picture: Tensor) -> Tensor:
        found: Tensor = self.scores(self.rectifier(self.directions(self.flatten(self.map(picture)))))
        return found


def test_riemannian_leaps_out_of_a_shallow_valley() -> None:
    problem = posed(TwoValleys(), torch.ones(1, 1, 3, 3), ClassSpecific(0), layer="map")
    found = Riemannian().search(problem)
    # Where both are open the score is (u + 3 v) . f, at most ||u + 3 v||; the centred loss is minus the score.
    assert found.loss.item() == pytest.approx(-math.sqrt(10), rel=1e-3)
    # With too few evaluations for a leap it stays where the score is 1.
    assert Riemannian(evaluations=9, exploring=0).search(problem).loss.item() == pytest.approx(-1, abs=1e-3)


def test_a_batch_leaps_as_its_samples_do_alone() -> None:
    network, pictures = seeded(nets.RectifiedAfterPooling), pixels(3, size=(16, 16))
    together = Riemannian().search(posed(network, pictures, ClassSpecific(1)))
    for sample in range(3):
        alone = Riemannian().search(posed(network, pictures[sample : sample + 1], ClassSpecific(1)))
        torch.testing.assert_close(together.weights[0, sample], alone.weights[0, 0], atol=1e-3, rtol=1e-3)
        assert together.evaluations[0, sample] == alone.evaluations[0, 0]


def test_vanilla_descent_is_the_fast_one() -> None:
    problem = posed(seeded(nets.curved), pixels())
    fast = GradientDescent(steps=60).solve(problem)
    vanilla = GradientDescent(steps=60, vanilla=True).solve(problem)
    torch.testing.assert_close(fast.filter, vanilla.filter, rtol=0, atol=1e-5)


def test_descent_keeps_its_path_where_asked() -> None:
    problem = posed(strong(seeded(nets.curved)), pixels())
    solution = GradientDescent(steps=20, keep_path=True).solve(problem)
    assert solution.path.shape == (20, 2, 4, 4)
    assert solution.losses.shape == (20, 2)
    assert (solution.losses[-1] < solution.losses[0]).all()
    torch.testing.assert_close(solution.path.flatten(2).norm(dim=2), torch.ones(20, 2))
    assert GradientDescent(steps=20).solve(problem).path is None


def test_descent_stops_sample_by_sample() -> None:
    network = strong(seeded(nets.curved))
    inputs = torch.cat([pixels(1), 1e-3 * pixels(1)])
    solver = GradientDescent(steps=400, tolerance=1e-4, window=20)
    solution = solver.solve(posed(network, inputs))
    assert solution.steps[0] != solution.steps[1]
    for sample in range(2):
        alone = solver.solve(posed(network, inputs[sample : sample + 1]))
        torch.testing.assert_close(solution.filter[sample], alone.filter[0], rtol=0, atol=1e-5)
        assert solution.steps[sample] == alone.steps[0]


# Auto


def test_auto_takes_exact_where_the_head_is_affine() -> None:
    solver, why = Auto().choose(posed(seeded(nets.pooled), pixels()))
    assert isinstance(solver, Exact)
    assert why == "the output is affine in the filter"


@pytest.mark.parametrize(
    ("make", "filter", "objective", "why"),
    [
        (nets.curved, None, None, "output is not affine"),
        (nets.pooled, Softmax(), None, "the filter is Softmax, not UnitL2"),
        (nets.pooled, None, Similarity(torch.ones(5), cosine=True), "neither linear nor a sum of squares"),
    ],
    ids=["curved", "filter", "objective"],
)
def test_auto_descends_elsewhere_and_says_why(
    make: Callable[[], nn.Module], filter: Filter | None, objective: Objective | None, why: str
) -> None:
    solution = Auto().solve(posed(seeded(make), pixels(), objective, filter=filter))
    assert solution.solver == "Riemannian"
    assert why in solution.reason


def test_a_head_that_is_affine_for_positive_filters_only() -> None:
    """The exact filter is taken where it is one; elsewhere its loss would be a fiction."""
    network = strong(seeded(nets.RectifiedAfterLayer))
    inputs = pixels(8)
    head = RecordedHead(Replay(network, inputs))
    assert not head.is_affine
    assert head.is_affine_where_positive
    for objective in (ClassOblivious(), ClassSpecific(1)):
        problem, _ = pose(head, UnitL2(), objective)
        solution = Auto().solve(problem)
        again = replayed(problem, solution.filter).detach().double()
        torch.testing.assert_close(again, solution.loss.double(), rtol=1e-3, atol=1e-5)
        for sample, outcome in enumerate(solution.outcome):
            if outcome == Outcome.EXACT:
                assert solution.filter[sample].min() >= -1e-6
    # A class-specific filter pulls both ways, so here descent was needed, and the answer says so.
    assert "Riemannian" in solution.solver
    assert "lies where it is not" in solution.reason
    with pytest.raises(MethodError, match="lies where the head is not affine"):
        Exact().solve(problem)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("objective", [ClassOblivious(), ClassSpecific(1)], ids=repr)
def test_a_head_that_only_looks_straight(seed: int, objective: Objective) -> None:
    """Nothing may be called exact whose loss a replay does not confirm."""
    problem = posed(seeded(nets.RectifiedAfterPooling, seed), pixels(1), objective)
    solution = Auto().solve(problem)
    again = replayed(problem, solution.filter).detach().double()
    torch.testing.assert_close(again, solution.loss.double(), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_a_rectifier_after_the_mean_is_not_taken_for_affine(seed: int) -> None:
    """About the untouched filter the mean hardly moves, so a probe there would cross no kink."""
    network = seeded(nets.RectifiedAfterPooling, seed)
    network.hidden.bias.data.zero_()
    network.conv.bias.data += 0.5
    head = RecordedHead(Replay(network, pixels(1)))
    assert not head.is_affine
    assert head.name_of(head.affine_calls[-1]) == "hidden"


def test_same_seed_same_filter_another_seed_another_path() -> None:
    network = seeded(nets.curved)
    one, again, other = (
        l2caf.explain(network, pixels(), solver=GradientDescent(steps=30, seed=seed)).maps for seed in (1, 1, 2)
    )
    assert torch.equal(one, again)
    assert not torch.allclose(one, other)


@pytest.mark.parametrize("evaluations", [2, 5, 9, 40])
def test_riemannian_keeps_to_its_evaluations(evaluations: int) -> None:
    problem = posed(TwoValleys(), torch.ones(1, 1, 3, 3), ClassSpecific(0), layer="map")
    before = problem.evaluations
    found = Riemannian(evaluations=evaluations, exploring=0).search(problem)
    assert int(found.evaluations) <= evaluations + 9  # three to nine for the check of the gradient
    assert problem.evaluations - before <= evaluations + 9


@dataclass(frozen=True)
class Towards(Objective):
    """Brings the output to a target of one's own."""

    target: Tensor

    def losses(self, output: Tensor) -> Losses:
        return Losses((LeastSquares(self.target.expand_as(output)),))


@pytest.mark.parametrize("size", [0.0, 0.1, 3.0])
@pytest.mark.parametrize("make", [nets.pooled, nets.flattened], ids=lambda make: make.__name__)
def test_a_target_of_ones_own_is_reached_exactly(make: Callable[[], nn.Module], size: float) -> None:
    network, inputs = strong(seeded(make)), pixels()
    objective = Towards(size * torch.randn(5, generator=torch.Generator().manual_seed(0)))
    for _ in range(2):  # recorded, then by its plan
        solution = l2caf.explain(network, inputs, objective=objective).solved
        assert solution.outcome == [Outcome.EXACT] * 2
        again = replayed(posed(network, inputs, objective), solution.filter).double()
        torch.testing.assert_close(again, solution.loss.double(), rtol=1e-3, atol=1e-6)
    for seed in range(3):
        other = GradientDescent(steps=400, adam=True, learning_rate=0.05, seed=seed)
        assert (solution.loss <= other.solve(posed(network, inputs, objective)).loss + 1e-5).all()
