"""How much work the sphere problem takes, counted: a step with the wrong sign would still end at the right answer."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from l2caf import unit_sphere
from l2caf.solvers.sphere import MOST_PRODUCTS, by_eigenvalues, by_products, secular_root

POSITIONS = {"7 x 7": 49, "14 x 14": 196, "a volume": 343}
SPECTRA = {
    "flat": lambda n: np.ones(n),
    "falling": lambda n: 1.0 / np.arange(1, n + 1) ** 2,
    "steep": lambda n: 10.0 ** np.linspace(-12, 0, n)[::-1],
    "one direction": lambda n: np.where(np.arange(n) == 0, 1.0, 1e-9),
}


@pytest.mark.parametrize("positions", POSITIONS.values(), ids=list(POSITIONS))
@pytest.mark.parametrize("shape", SPECTRA)
@pytest.mark.parametrize("seed", range(3))
def test_newton_needs_few_steps(shape: str, positions: int, seed: int) -> None:
    """Quadratic convergence: some five steps, and a dozen where the eigenvalues span twelve decades."""
    spectrum = np.sort(SPECTRA[shape](positions))
    coefficients = np.random.default_rng(seed).normal(1, 0.5, positions)
    found = secular_root(spectrum, spectrum * coefficients, least=0.0)
    assert found is not None
    assert np.linalg.norm(spectrum * coefficients / (spectrum + found.root)) == pytest.approx(1, abs=1e-12)
    assert found.steps <= (16 if shape == "steep" else 9)


def test_halving_would_need_more() -> None:
    """What a bracket alone would do, which is what a step of the wrong sign comes to: the bars above tell the two."""
    spectrum = np.sort(SPECTRA["falling"](49))
    numerators = spectrum * np.ones(49)
    low, high, steps = 0.0, float(np.linalg.norm(numerators)), 0
    while high - low > 4e-16 * high and steps < 200:
        middle, steps = (low + high) / 2, steps + 1
        if middle in (low, high):
            break
        low, high = (middle, high) if np.linalg.norm(numerators / (spectrum + middle)) > 1 else (low, middle)
    found = secular_root(spectrum, numerators, least=0.0)
    assert found is not None
    assert found.root == pytest.approx(low, rel=1e-12)
    assert steps > 4 * found.steps


class Counted:
    """A linear map that counts its products."""

    def __init__(self, jacobian: Tensor) -> None:
        self.jacobian = jacobian
        self.pushed = self.pulled = 0

    def push(self, weights: Tensor) -> Tensor:
        self.pushed += 1
        return (self.jacobian @ weights.unsqueeze(-1)).squeeze(-1)

    def pull(self, directions: Tensor) -> Tensor:
        self.pulled += 1
        return (self.jacobian.mT @ directions.unsqueeze(-1)).squeeze(-1)


def like_a_photograph(samples: int, rows: int, positions: int, *, seed: int = 0) -> Tensor:
    """Features that are not negative have one direction far ahead of all others, as on photographs."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.rand(samples, rows, positions, generator=generator)
    place = torch.linspace(-1, 1, positions)
    return features * torch.exp(-4 * place.square()) + 0.05 * torch.rand(samples, rows, 1, generator=generator)


@pytest.mark.parametrize("samples", [1, 16])
def test_a_photograph_takes_few_products_and_no_eigenproblem_of_its_size(
    samples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    plain = np.linalg.eigh
    monkeypatch.setattr(
        unit_sphere.np.linalg, "eigh", lambda matrix: (sizes.append(matrix.shape[-1]), plain(matrix))[1]
    )
    jacobian = like_a_photograph(samples, 1000, 49)
    counted = Counted(jacobian)
    target = counted.jacobian.sum(dim=2)
    found = by_products(counted, target)
    assert found.certain.all()
    assert counted.pushed <= 6
    assert counted.pulled == counted.pushed + 1  # the gradient comes first
    assert max(sizes) <= 6
    torch.testing.assert_close(
        found.weights, torch.from_numpy(by_eigenvalues(jacobian.double().numpy())), rtol=0, atol=2e-5
    )


def test_products_end_where_they_lead_nowhere() -> None:
    """A spread of eigenvalues that no short sum resolves: the limit is kept, and no certainty is claimed."""
    positions = 49
    basis = torch.linalg.qr(torch.randn(positions, positions, generator=torch.Generator().manual_seed(0)).double()).Q
    jacobian = (torch.logspace(-5, 0, positions).double().sqrt()[:, None] * basis.T)[None]
    counted = Counted(jacobian)
    found = by_products(counted, 1e-3 * jacobian.sum(dim=2))
    assert counted.pushed <= MOST_PRODUCTS
    assert not found.certain.all()
    assert math.isfinite(float(found.loss.sum()))
