"""Least squares on the unit sphere for tensors: `unit_sphere.py` with a linear map's products on its own device."""

from __future__ import annotations

from collections.abc import Callable
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


OfArrays = Callable[[Floats], Floats]


class LinearMap(Protocol):
    """A linear map J, (B, n) to (B, m), and its transpose."""

    def push(self, weights: Tensor) -> Tensor: ...

    def pull(self, directions: Tensor) -> Tensor: ...


class Nearest(NamedTuple):
    """Unit filters (B, n), ||J f - t||^2 (B,), and which of them are certain (B,)."""

    weights: Tensor
    loss: Tensor
    certain: Tensor


def by_products(
    mapping: LinearMap,
    target: Tensor,
    *,
    precision: float | None = None,
    on_arrays: tuple[OfArrays, OfArrays] | None = None,
) -> Nearest:
    """Minimise in the span of a few products (`in_span`), which are computed in the map's own precision.

    `precision` is how far a filter may be from the best one, if not just that of the map's numbers; `on_arrays` are the
    map's push and pull for plain arrays, where it has such.
    """
    push, pull = on_arrays or _by_tensors(mapping, target)
    pushed: list[Floats] = []

    def product(direction: Floats) -> Floats:
        pushed.append(push(direction))
        return pull(pushed[-1])

    wanted, least = as_array(target), CERTAIN * torch.finfo(target.dtype).eps
    found = in_span(pull(wanted), product, max(least, precision or 0.0))
    missed = -wanted
    for coefficients, output in zip(found.coefficients.T, pushed, strict=True):
        missed += coefficients[:, None] * output
    loss = torch.from_numpy((missed * missed).sum(axis=1))
    weights, certain = torch.from_numpy(found.weights), torch.from_numpy(found.certain)
    return Nearest(weights.to(target.device), loss.to(target.device), certain.to(target.device))


def _by_tensors(mapping: LinearMap, like: Tensor) -> tuple[OfArrays, OfArrays]:
    """A map's products for arrays, in the precision and on the device of a tensor."""

    def tensor(values: Floats) -> Tensor:
        return torch.from_numpy(values).to(like)

    return lambda filters: as_array(mapping.push(tensor(filters))), lambda d: as_array(mapping.pull(tensor(d)))


def as_array(values: Tensor) -> Floats:
    """Values in double precision."""
    array: Floats = values.detach().cpu().double().numpy()
    return array
