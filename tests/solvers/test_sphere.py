"""The unit filter that a linear map can least tell from 1: against SciPy, and the corners by hand."""

from __future__ import annotations

import numpy
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from l2caf.solvers import sphere
from l2caf.solvers.sphere import by_products


def by_eigenvalues(jacobian: Tensor, target: Tensor | None = None, *, precision: float = 2.0**-52) -> Tensor:
    """The same for tensors."""
    wanted = None if target is None else target.double().numpy()
    return torch.from_numpy(sphere.by_eigenvalues(jacobian.double().numpy(), wanted, precision=precision))


SINGLE = torch.finfo(torch.float32).eps


def random_jacobian(rows: int, positions: int, *, rank: int | None = None, shift: float = 0.0, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    if rank is None:
        return draw(rows, positions) + shift
    return draw(rows, rank) @ (draw(rank, positions) + shift)


def loss(jacobian: Tensor, weights: Tensor) -> float:
    return float((jacobian @ (weights - 1)).square().sum())


def best_of_scipy(jacobian: Tensor, *, starts: int = 12) -> float:
    """The least loss that sequential quadratic programming finds from many starts."""
    gram = (jacobian.T @ jacobian).numpy()
    scale = numpy.trace(gram) or 1.0
    gram = gram / scale
    n = len(gram)
    random = numpy.random.default_rng(0)
    best = numpy.inf
    for start in random.normal(size=(starts, n)):
        found = minimize(
            lambda f: (f - 1) @ gram @ (f - 1),
            start / numpy.linalg.norm(start),
            jac=lambda f: 2 * gram @ (f - 1),
            constraints={"type": "eq", "fun": lambda f: f @ f - 1, "jac": lambda f: 2 * f},
            method="SLSQP",
            options={"maxiter": 500, "ftol": 1e-14},
        )
        if abs(numpy.linalg.norm(found.x) - 1) < 1e-5:
            best = min(best, found.fun)
    return float(best * scale)


CASES = {
    "square": {"rows": 9, "positions": 9},
    "more rows": {"rows": 30, "positions": 9},
    "fewer rows": {"rows": 4, "positions": 16, "shift": 1.0},
    "positive": {"rows": 12, "positions": 16, "shift": 2.0},
    "rank 3 of 9": {"rows": 20, "positions": 9, "rank": 3, "shift": 1.0},
    "rank 2, fewer rows": {"rows": 5, "positions": 12, "rank": 2, "shift": 1.0},
    "two positions": {"rows": 3, "positions": 2},
    "one row": {"rows": 1, "positions": 6, "shift": 1.0},
    "seven by seven": {"rows": 60, "positions": 49, "shift": 0.5},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", range(3))
def test_no_filter_that_scipy_finds_is_better(case: str, seed: int) -> None:
    jacobian = random_jacobian(**CASES[case], seed=seed)
    found = by_eigenvalues(jacobian[None])[0]
    assert float(found.norm()) == pytest.approx(1, abs=1e-9)
    untouched = loss(jacobian, torch.zeros_like(found))
    assert loss(jacobian, found) <= best_of_scipy(jacobian) + 1e-9 * untouched


@pytest.mark.parametrize("case", CASES)
def test_first_order_conditions(case: str) -> None:
    """J^T J (f - 1) = -lam f with lam >= 0: for this problem that is enough for the global optimum."""
    jacobian = random_jacobian(**CASES[case], seed=7)
    found = by_eigenvalues(jacobian[None])[0]
    slope = jacobian.T @ (jacobian @ (found - 1))
    multiplier = -(slope @ found)
    scale = float(jacobian.square().sum())
    assert float(multiplier) >= -1e-9 * scale
    assert float((slope + multiplier * found).norm()) <= 1e-7 * scale


@pytest.mark.parametrize("precision", [2.0**-52, SINGLE], ids=["double", "single"])
@pytest.mark.parametrize("rows", [1, 4, 20], ids="rows {}".format)
def test_hard_case(rows: int, precision: float) -> None:
    """Where J sees less than a unit of 1: loss zero, unit norm, and nearest to 1 among those."""
    positions = 9
    seen = torch.zeros(positions, dtype=torch.float64)
    seen[:4] = torch.tensor([1.0, -1.0, 0.5, 0.0])  # its part of 1 has length 0.5 / 1.5
    jacobian = torch.arange(1.0, rows + 1, dtype=torch.float64)[:, None] * seen
    if precision == SINGLE:
        jacobian = jacobian.float().double()
    found = by_eigenvalues(jacobian[None], precision=precision)[0]
    assert float(found.norm()) == pytest.approx(1, abs=1e-9)
    assert loss(jacobian, found) < 1e-20 * float(jacobian.square().sum())
    visible = seen * seen.sum() / seen.square().sum()
    hidden = 1 - visible
    expected = visible + hidden / hidden.norm() * (1 - visible.square().sum()).sqrt()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize("rows", [3, 20])
def test_many_hidden_directions_in_double(rows: int) -> None:
    """Rounding in the Gram matrix must not pass for something seen."""
    generator = torch.Generator().manual_seed(0)
    basis = torch.linalg.qr(torch.randn(16, 16, generator=generator, dtype=torch.float64)).Q
    two = basis[:, :2] - basis[:, :2].sum(dim=0) * 0.9 / 16  # little of 1 is in these
    jacobian = torch.randn(rows, 2, generator=generator, dtype=torch.float64) @ two.T
    visible = torch.linalg.pinv(jacobian, rtol=1e-10) @ jacobian @ torch.ones(16, dtype=torch.float64)
    assert visible.norm() < 1, "not the hard case"
    found = by_eigenvalues(jacobian[None])[0]
    hidden = 1 - visible
    expected = visible + hidden / hidden.norm() * (1 - visible.square().sum()).sqrt()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


def test_nothing_seen_gives_the_even_filter() -> None:
    found = by_eigenvalues(torch.zeros(2, 5, 9, dtype=torch.float64))
    torch.testing.assert_close(found, torch.full((2, 9), 1 / 3, dtype=torch.float64))


def test_a_batch_is_its_samples() -> None:
    jacobians = torch.stack([random_jacobian(5, 12, shift=k / 2, seed=k) * 10.0**k for k in range(-3, 4)])
    together = by_eigenvalues(jacobians)
    alone = torch.cat([by_eigenvalues(one[None]) for one in jacobians])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-9)


@pytest.mark.parametrize("factor", [1e-12, 1.0, 1e12])
def test_scale_of_the_jacobian_does_not_matter(factor: float) -> None:
    jacobian = random_jacobian(20, 16, shift=1.0)[None]
    torch.testing.assert_close(by_eigenvalues(factor * jacobian), by_eigenvalues(jacobian), rtol=0, atol=1e-9)


def test_two_orthogonal_positions_by_hand() -> None:
    """J = diag(a, b): f_i = s_i / (s_i + lam) with s = (a^2, b^2); for a = b it is (1, 1) / sqrt 2."""
    even = by_eigenvalues(2 * torch.eye(2, dtype=torch.float64)[None])[0]
    torch.testing.assert_close(even, torch.full((2,), 2**-0.5, dtype=torch.float64))
    first, second = by_eigenvalues(torch.diag(torch.tensor([3.0, 1.0], dtype=torch.float64))[None])[0]
    multiplier = 9 / first - 9
    assert float(1 / (1 + multiplier)) == pytest.approx(float(second), abs=1e-9)
    assert first > second > 0


class Dense:
    """A linear map that is written out, in a precision of choice."""

    def __init__(self, jacobian: Tensor) -> None:
        self.jacobian = jacobian

    def push(self, weights: Tensor) -> Tensor:
        return (self.jacobian @ weights.unsqueeze(-1)).squeeze(-1)

    def pull(self, directions: Tensor) -> Tensor:
        return (self.jacobian.mT @ directions.unsqueeze(-1)).squeeze(-1)


def distance(jacobian: Tensor, weights: Tensor, target: Tensor) -> float:
    return float((jacobian @ weights - target).square().sum())


def best_for_target(jacobian: Tensor, target: Tensor, *, starts: int = 12) -> float:
    """The least ||J f - t||^2 on the unit sphere that sequential quadratic programming finds from many starts."""
    matrix, wanted = jacobian.numpy(), target.numpy()
    scale = max(float((wanted**2).sum()), float((matrix**2).sum()))
    random = numpy.random.default_rng(0)
    best = numpy.inf
    for start in random.normal(size=(starts, matrix.shape[1])):
        found = minimize(
            lambda f: ((matrix @ f - wanted) ** 2).sum() / scale,
            start / numpy.linalg.norm(start),
            jac=lambda f: 2 * matrix.T @ (matrix @ f - wanted) / scale,
            constraints={"type": "eq", "fun": lambda f: f @ f - 1, "jac": lambda f: 2 * f},
            method="SLSQP",
            options={"maxiter": 500, "ftol": 1e-14},
        )
        if abs(numpy.linalg.norm(found.x) - 1) < 1e-5:
            best = min(best, found.fun)
    return float(best * scale)


@pytest.mark.parametrize("size", [0.0, 0.01, 0.3, 1.0, 30.0])
@pytest.mark.parametrize("case", ["square", "more rows", "fewer rows", "rank 3 of 9"])
def test_any_target_is_reached_as_nearly_as_scipy_reaches_it(case: str, size: float) -> None:
    """Near targets want a filter shorter than the sphere allows, so the multiplier is negative; far ones a longer."""
    jacobian = random_jacobian(**CASES[case])
    target = size * torch.randn(jacobian.shape[0], generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    found = by_eigenvalues(jacobian[None], target[None])[0]
    assert float(found.norm()) == pytest.approx(1, abs=1e-9)
    reached, best = distance(jacobian, found, target), best_for_target(jacobian, target)
    assert reached <= best + 1e-7 * max(1.0, best)


def test_the_hard_case_of_a_target_fills_up_along_the_least_eigenvalue() -> None:
    """Nothing pulls along the last axis, and the others do not fill the sphere: of both signs, the one near 1."""
    jacobian = torch.diag(torch.tensor([3.0, 2.0, 1.0], dtype=torch.float64))
    target = torch.tensor([0.6, 0.0, 0.0], dtype=torch.float64)
    found = by_eigenvalues(jacobian[None], target[None])[0]
    first = 3 * 0.6 / (9 - 1)
    expected = torch.tensor([first, 0.0, (1 - first**2) ** 0.5], dtype=torch.float64)
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=0)
    assert distance(jacobian, found, target) <= best_for_target(jacobian, target) + 1e-9


def test_the_hard_case_of_a_target_that_few_outputs_see() -> None:
    jacobian = torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64)
    found = by_eigenvalues(jacobian[None], torch.tensor([[0.5]], dtype=torch.float64))[0]
    expected = torch.tensor([0.5, (0.75 / 2) ** 0.5, (0.75 / 2) ** 0.5], dtype=torch.float64)
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=0)


def test_products_find_what_eigenvalues_find_or_say_that_they_do_not() -> None:
    """Over maps of every condition: whatever is called certain is right."""
    certain = 0
    for seed in range(60):
        generator = torch.Generator().manual_seed(seed)
        spread = torch.rand(1, generator=generator) * 4
        jacobian = torch.randn(4, 60, 49, generator=generator) * torch.logspace(0, -float(spread), 49)
        jacobian = jacobian + (seed % 3)
        target = jacobian.sum(dim=2) if seed % 2 else torch.randn(4, 60, generator=generator) * 10 ** (seed % 5 - 2)
        found = by_products(Dense(jacobian), target)
        exact = by_eigenvalues(jacobian, target.double(), precision=SINGLE)
        error = (found.weights - exact).norm(dim=1)
        assert bool((error[found.certain] < 1e-4).all()), (seed, error, found.certain)
        certain += int(found.certain.sum())
    assert certain > 60  # of 240: it must not always pass
