"""The unit filter that a linear map can least tell from the untouched one: a trust-region problem, solved whole."""

from __future__ import annotations

import torch
from torch import Tensor


def nearest_on_sphere(jacobian: Tensor, *, precision: float = 2.0**-52) -> Tensor:
    """Return the unit f that minimises ||J (f - 1)||, for (B, m, n) Jacobians known to a relative precision.

    >>> (nearest_on_sphere(torch.tensor([[[3.0, 0.0], [0.0, 1e-9]]], dtype=torch.float64)).round(decimals=3) + 0)
    tensor([[1., 0.]], dtype=torch.float64)
    """
    rows, positions = jacobian.shape[1:]
    ones = jacobian.new_ones(jacobian.shape[0], positions)
    if rows < positions:
        # The smaller Gram matrix has the same spectrum: f = J^T U (S + lam)^-1 U^T J 1 with J J^T = U S U^T.
        spectrum, vectors = torch.linalg.eigh(jacobian @ jacobian.mT)
        basis = jacobian.mT @ vectors / spectrum.clamp_min(1e-300).sqrt().unsqueeze(1)
    else:
        spectrum, basis = torch.linalg.eigh(jacobian.mT @ jacobian)
    largest = spectrum[:, -1:].clamp_min(1e-300)
    # Below this, an eigenvalue is rounding: of the Jacobian, or of the Gram matrix made from it.
    seen = spectrum > max((8 * precision) ** 2, positions * torch.finfo(spectrum.dtype).eps) * largest
    coefficients = (basis.mT @ ones.unsqueeze(-1)).squeeze(-1)
    coefficients = torch.where(seen, coefficients, 0.0)
    spectrum = torch.where(seen, spectrum / largest, 1.0)
    multiplier = _root(spectrum, coefficients)
    weights = (basis @ (spectrum * coefficients / (spectrum + multiplier)).unsqueeze(-1)).squeeze(-1)
    visible = (basis @ coefficients.unsqueeze(-1)).squeeze(-1)
    return torch.where(coefficients.norm(dim=1, keepdim=True) < 1, _hard_case(visible, ones), weights)


def _root(spectrum: Tensor, coefficients: Tensor) -> Tensor:
    """Return lam with ||s c / (s + lam)|| = 1 by Newton on the reciprocal of the norm, held inside a bracket."""
    numerators = spectrum * coefficients
    low = torch.zeros_like(spectrum[:, :1])
    high = numerators.norm(dim=1, keepdim=True)
    root = low
    for _ in range(100):
        terms = numerators / (spectrum + root)
        norm = terms.norm(dim=1, keepdim=True).clamp_min(1e-300)
        low = torch.where(norm > 1, root, low)
        high = torch.where(norm > 1, high, root)
        slope = (terms.square() / (spectrum + root)).sum(dim=1, keepdim=True).clamp_min(1e-300)
        step = root + norm.square() / slope * (norm - 1)
        step = torch.where((step > low) & (step < high), step, (low + high) / 2)
        if bool(((step - root).abs() <= 1e-15 * step.abs()).all()):
            break
        root = step
    return root


def _hard_case(visible: Tensor, ones: Tensor) -> Tensor:
    """Return the unit filter nearest to 1 among those that look like 1 to J."""
    hidden = ones - visible
    room = (1 - visible.square().sum(dim=1, keepdim=True)).clamp_min(0).sqrt()
    return visible + hidden * room / hidden.norm(dim=1, keepdim=True).clamp_min(1e-300)
