"""`Tangent`: the slope of a head at the untouched filter, by its products alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from ..numerics import rows
from .gradient import gradient_of, gradients_of


class Tangent:
    """J at the untouched filter, by its products."""

    def __init__(self, leaf: Tensor, output: Tensor) -> None:
        """Of an output with its graph from a filter (B, n), which is all ones."""
        self.leaf = leaf
        with torch.enable_grad():
            output = rows(output)
            self.output = output if output.dtype in (torch.float32, torch.float64) else output.float()
        self.value = self.output.detach()
        self.runs = 1

    @classmethod
    def of(cls, head: Callable[[Tensor], Tensor], untouched: Tensor) -> Tangent:
        """Of a head, filters (B, n) to (B, ...)."""
        with torch.enable_grad():
            leaf = untouched.clone().requires_grad_()
            return cls(leaf, head(leaf))

    def pull(self, directions: Tensor) -> Tensor:
        """J^T d, for (B, m) or (K, B, m) directions."""
        directions = directions.to(self.output.dtype)
        if directions.ndim == 3:
            return gradients_of(self.output, self.leaf, directions)
        self.runs += 1
        return gradient_of(self.output, self.leaf, directions, again=True)

    def push(self, weights: Tensor) -> Tensor:
        """J f, as the gradient of d . J f in d: no operation needs a derivative of its own for it."""
        self.runs += 1
        if self._pulled is None:
            return torch.zeros_like(self.value)
        directions, pulled = self._pulled
        return gradient_of(pulled, directions, weights.to(pulled), again=True)

    @cached_property
    def along_untouched(self) -> Tensor:
        """J 1: how the output goes on where all of the map is made stronger."""
        return self.push(torch.ones_like(self.leaf))

    @property
    def pulled_at_random(self) -> Tensor:
        """J^T d for normal random numbers d."""
        return torch.zeros_like(self.leaf) if self._pulled is None else self._pulled[1].detach()

    @cached_property
    def _pulled(self) -> tuple[Tensor, Tensor] | None:
        """J^T d with its graph, for directions that are nowhere zero: what they leave untouched, no others touch."""
        if not self.output.requires_grad:
            return None
        self.runs += 1
        drawn = torch.randn(self.value.shape, generator=torch.Generator().manual_seed(0)).to(self.value)
        with torch.enable_grad():
            directions = drawn.requires_grad_()
            (pulled,) = torch.autograd.grad(self.output, self.leaf, directions, create_graph=True, allow_unused=True)
        return None if pulled is None else (directions, pulled)
