"""Small numerical helpers that every room shares, and how close two computations of one thing must be."""

from __future__ import annotations

import torch
from torch import Tensor


def rows(values: Tensor) -> Tensor:
    """Return (B, ...) values as (B, m), also where there is one number a sample.

    >>> rows(torch.zeros(4)).shape, rows(torch.zeros(4, 2, 3)).shape
    (torch.Size([4, 1]), torch.Size([4, 6]))
    """
    return values.reshape(values.shape[0], -1)


def agree(a: Tensor, b: Tensor, *, slack: float = 1.0) -> bool:
    """Tell whether two computations of the same thing agree to within their precision."""
    tolerance = max(slack * 1e-5, 4 * torch.finfo(b.dtype).eps)
    a, b = a.detach().double(), b.detach().double()
    scale = b.abs().nan_to_num(0, 0, 0).max().clamp_min(1e-30) if b.numel() else 1.0
    same = ((a - b).abs() <= tolerance * scale) | (a == b) | (a.isnan() & b.isnan())
    return bool(same.all())
