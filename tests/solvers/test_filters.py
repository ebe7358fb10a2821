"""Every filter keeps its constraint, on any grid, and its derivative is right."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from l2caf.filters import Filter, Gaussian, Softmax, UnitL1, UnitL2

GRIDS = [(5,), (2,), (4, 4), (7, 7), (1, 9), (9, 1), (3, 8), (2, 3, 4), (1, 1, 6)]


def unit_l2(weights: Tensor) -> Tensor:
    return weights.norm(dim=1) - 1


def unit_l1(weights: Tensor) -> Tensor:
    return weights.abs().sum(dim=1) - 1


def a_distribution(weights: Tensor) -> Tensor:
    return (weights.sum(dim=1) - 1).abs() + weights.clamp_max(0).abs().sum(dim=1)


FILTERS = [
    (UnitL2(), unit_l2),
    (UnitL1(), unit_l1),
    (Softmax(), a_distribution),
    (Gaussian(), a_distribution),
    (Gaussian(sigma=0.4), a_distribution),
]
each_filter = pytest.mark.parametrize(("kind", "excess"), FILTERS, ids=[repr(kind) for kind, _ in FILTERS])
each_grid = pytest.mark.parametrize("grid", GRIDS, ids=str)


def parameters_of(kind: Filter, grid: tuple[int, ...], *, seed: int | None = 0) -> Tensor:
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    return kind.start(3, grid, generator).double()


@each_filter
@each_grid
def test_constraint(kind: Filter, excess, grid: tuple[int, ...]) -> None:
    for seed in (None, 0, 1):
        start = parameters_of(kind, grid, seed=seed)
        for parameters in (start, 3 * start - 1, -start - 0.1, 1e-4 * start + 1e-6):
            weights = kind.weights(parameters, grid)
            assert weights.shape == (3, torch.Size(grid).numel())
            assert excess(weights).abs().max() < 1e-9


@each_filter
@each_grid
def test_derivative(kind: Filter, excess, grid: tuple[int, ...]) -> None:
    parameters = (parameters_of(kind, grid) + 0.1).requires_grad_()
    assert torch.autograd.gradcheck(lambda p: kind.weights(p, grid), (parameters,))


@each_filter
def test_going_on_from_a_representative_is_going_on_from_the_same_weights(kind: Filter, excess) -> None:
    parameters = 5 * parameters_of(kind, (4, 5))
    before, after = kind.weights(parameters, (4, 5)), kind.weights(kind.retract(parameters), (4, 5))
    torch.testing.assert_close(before, after)


@each_filter
def test_a_start_is_even_or_of_its_seed(kind: Filter, excess) -> None:
    grid = (6, 6)
    even = kind.weights(parameters_of(kind, grid, seed=None), grid).reshape(3, *grid)
    for flipped in (even.flip(1), even.flip(2), even.transpose(1, 2)):
        torch.testing.assert_close(flipped, even)
    assert torch.equal(parameters_of(kind, grid, seed=4), parameters_of(kind, grid, seed=4))
    assert not torch.equal(parameters_of(kind, grid, seed=4), parameters_of(kind, grid, seed=5))


def test_the_gaussian_of_seven_by_seven_is_the_papers() -> None:
    rows, columns = torch.meshgrid(torch.arange(7.0), torch.arange(7.0), indexing="ij")
    bump = torch.exp(-((rows - 2) ** 2 + (columns - 5) ** 2) / 2)
    centre = torch.tensor([[2.5 / 7, 5.5 / 7]])
    torch.testing.assert_close(Gaussian().weights(centre, (7, 7)).reshape(7, 7), bump / bump.sum())


def test_the_gaussian_covers_the_same_share_of_any_grid() -> None:
    def spread(grid: tuple[int, int]) -> float:
        weights = Gaussian().weights(torch.tensor([[0.5, 0.5]]), grid).reshape(grid).sum(dim=1)
        places = (torch.arange(grid[0]) + 0.5) / grid[0]
        return float((weights * (places - 0.5) ** 2).sum().sqrt())

    assert spread((28, 14)) == pytest.approx(1 / 7, rel=0.05)
    assert spread((14, 14)) == pytest.approx(1 / 7, rel=0.05)
