"""Least squares on the unit sphere for tensors: `unit_sphere.py` with a linear map's products on its own device."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ..unit_sphere import CERTAIN, FEW, MOST_PRODUCTS, TINY, Floats, by_eigenvalues, in_span, secular_root

__all__ = [
    "FEW",
    "MOST_PRODUCTS",
    "TINY",
    "LinearMap",
    "Nearest",
    "as_array",
    "by_eigenvalues",
    "by_products",
    "secular_root",
]


class LinearMap(Protocol):
    """A linear map J, (B, n) to (B, m), and its transpose."""

    def push(self, weights: Tensor) -> Tensor: ...

    def pull(self, directions: Tensor) -> Tensor: ...


class Nearest(NamedTuple):
    """Unit filters (B, n), ||J f - t||^2 (B,), and which of them are certain (B,)."""

    weights: Tensor
    loss: Tensor
    certain: Tensor


def by_products(mapping: LinearMap, target: Tensor, *, precision: float | None = None) -> Nearest:
    """Minimise in the span of a few products (`in_span`), which are computed in the map's own precision.

    `precision` is how far a filter may be from the best one, if not just that of the map's numbers.
    """
    pushed: list[Floats] = []

    def product(direction: Floats) -> Floats:
        output = mapping.push(torch.from_numpy(direction).to(target))
        pushed.append(as_array(output))
        return as_array(mapping.pull(output))

    least = CERTAIN * torch.finfo(target.dtype).eps
    found = in_span(as_array(mapping.pull(target)), product, max(least, precision or 0.0))
    missed = -as_array(target)
    for coefficients, output in zip(found.coefficients.T, pushed, strict=True):
        missed += coefficients[:, None] * output
    loss = torch.from_numpy((missed * missed).sum(axis=1))
    weights, certain = torch.from_numpy(found.weights), torch.from_numpy(found.certain)
    return Nearest(weights.to(target.device), loss.to(target.device), certain.to(target.device))


def as_array(values: Tensor) -> Floats:
    """Values in double precision."""
    array: Floats = values.detach().cpu().double().numpy()
    return array
