"""Least squares on the unit sphere for tensors: `unit_sphere.py` with a linear map's products on its own device."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ..unit_sphere import CERTAIN, FEW, MOST_PRODUCTS, TINY, Floats, by_eigenvalues, in_span, secular_root

__all__ = ["FEW", "MOST_PRODUCTS", "TINY", "LinearMap", "Nearest", "by_eigenvalues", "by_products", "secular_root"]


class LinearMap(Protocol):
    """A linear map J, (B, n) to (B, m), and its transpose."""

    def push(self, weights: Tensor) -> Tensor: ...

    def pull(self, directions: Tensor) -> Tensor: ...


class Nearest(NamedTuple):
    """Unit filters (B, n), ||J f - t||^2 (B,), and which of them are certain (B,)."""

    weights: Tensor
    loss: Tensor
    certain: Tensor


def by_products(mapping: LinearMap, target: Tensor) -> Nearest:
    """Minimise in the span of a few products (`in_span`), which are computed in the map's own precision."""
    pushed: list[Tensor] = []

    def product(direction: Floats) -> Floats:
        pushed.append(mapping.push(torch.from_numpy(direction).to(target)))
        return _array(mapping.pull(pushed[-1]))

    found = in_span(_array(mapping.pull(target)), product, CERTAIN * torch.finfo(target.dtype).eps)
    coefficients = torch.from_numpy(found.coefficients).to(target)
    outputs = (coefficients.unsqueeze(1) @ torch.stack(pushed, dim=1)).squeeze(1)
    missed = _array(outputs - target)
    loss = torch.from_numpy((missed * missed).sum(axis=1))
    weights, certain = torch.from_numpy(found.weights), torch.from_numpy(found.certain)
    return Nearest(weights.to(target.device), loss.to(target.device), certain.to(target.device))


def _array(values: Tensor) -> Floats:
    array: Floats = values.detach().cpu().double().numpy()
    return array
