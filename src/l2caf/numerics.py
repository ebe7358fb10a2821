"""Small numerical helpers that every room shares, and the tolerances by name, each with its reason."""

from __future__ import annotations

import torch
from torch import Tensor

from .unit_sphere import FLAT as FLAT

# A head that moves, from the untouched filter to the uniform one, by less than this share of how far (squared) it moves
# to a random one is scale-invariant: a norm's own small constant alone leaves that much.
FEELS_SCALE = 1e-3
# Two computations of one output agree to 1e-5 of its largest number: single precision after some hundred operations.
AGREE = 1e-5
# A loss that was found in closed form and the same loss computed by the head may differ by this share.
CONFIRMED = 1e-3
# Positions whose features differ by less than this share of the largest are the same: rounding differs by position.
ALIKE = 1e-5


def rows(values: Tensor) -> Tensor:
    """Return (B, ...) values as (B, m), also where there is one number per sample.

    >>> rows(torch.zeros(4)).shape, rows(torch.zeros(4, 2, 3)).shape
    (torch.Size([4, 1]), torch.Size([4, 6]))
    """
    return values.reshape(values.shape[0], -1)


def agree(a: Tensor, b: Tensor, *, slack: float = 1.0) -> bool:
    """Tell whether two computations of the same thing agree to within their precision.

    >>> agree(torch.ones(2, 3), torch.ones(2, 3)), agree(torch.ones(2, 3), torch.ones(2, 4))
    (True, False)
    """
    return a.shape == b.shape and bool(agreeing(a.reshape(1, -1), b.reshape(1, -1), slack=slack).all())


def agreeing(a: Tensor, b: Tensor, *, slack: float = 1.0) -> Tensor:
    """Tell for which samples two computations of the same thing agree, each on its own scale: (B,).

    >>> agreeing(torch.tensor([[1e-6, 0.0], [1.0, 0.0]]), torch.tensor([[2e-6, 0.0], [1.0, 0.0]]))
    tensor([False,  True])
    """
    if a.shape != b.shape:
        return torch.zeros(b.shape[0], dtype=torch.bool, device=b.device)
    tolerance = max(slack * AGREE, 4 * torch.finfo(b.dtype).eps)
    a, b = rows(a.detach()).double(), rows(b.detach()).double()
    scale = b.abs().nan_to_num(0, 0, 0).amax(dim=1, keepdim=True).clamp_min(1e-30) if b.numel() else 1.0
    same = ((a - b).abs() <= tolerance * scale) | (a == b) | (a.isnan() & b.isnan())
    return same.all(dim=1)
