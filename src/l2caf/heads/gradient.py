"""The gradient of a network's output, also where there is none."""

from __future__ import annotations

import torch
from torch import Tensor


def gradient_of(output: Tensor, leaf: Tensor, direction: Tensor | None = None, *, again: bool = False) -> Tensor:
    """Return the gradient of `output` (times `direction`) in `leaf`: zeros where the output does not depend on it.

    `again` says that the same output will be asked once more. Nothing is written to any `.grad`.

    >>> leaf = torch.ones(2, requires_grad=True)
    >>> gradient_of(torch.tensor(3.0), leaf), gradient_of((3 * leaf).sum(), leaf)
    (tensor([0., 0.]), tensor([3., 3.]))
    """
    if not output.requires_grad:
        return torch.zeros_like(leaf)
    (found,) = torch.autograd.grad(output, leaf, direction, retain_graph=again, allow_unused=True)
    return torch.zeros_like(leaf) if found is None else found


def gradients_of(output: Tensor, leaf: Tensor, directions: Tensor) -> Tensor:
    """Return the gradients of one output in several directions, (K, ...) to (K, *leaf): in one pass where it can.

    >>> leaf = torch.ones(2, requires_grad=True)
    >>> gradients_of(3 * leaf, leaf, torch.eye(2))
    tensor([[3., 0.],
            [0., 3.]])
    """
    if len(directions) > 1 and output.requires_grad:
        try:
            (found,) = torch.autograd.grad(
                output, leaf, directions, retain_graph=True, allow_unused=True, is_grads_batched=True
            )
        except RuntimeError:  # not every operation can run several gradients at once
            found = None
        if found is not None:
            return found
    return torch.stack([gradient_of(output, leaf, direction, again=True) for direction in directions])
