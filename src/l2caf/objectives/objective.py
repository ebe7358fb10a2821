"""`Objective`, what is minimised over the filters, and `Loss`: linear, least squares, or any function of the output."""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError


@dataclass(frozen=True)
class Loss(abc.ABC):
    """A loss of the filtered output, one number a sample, (B, ...) -> (B,)."""

    @abc.abstractmethod
    def __call__(self, output: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class LeastSquares(Loss):
    """||target - o||^2."""

    target: Tensor

    def __call__(self, output: Tensor) -> Tensor:
        return (_precise(output) - _precise(self.target)).square().sum(dim=1)


@dataclass(frozen=True)
class Linear(Loss):
    """direction . o, so that the gradient is the same everywhere; `direction` is (B, m)."""

    direction: Tensor

    def __call__(self, output: Tensor) -> Tensor:
        return (_precise(output) * _precise(self.direction)).sum(dim=1)


@dataclass(frozen=True)
class General(Loss):
    """Any function of the output that gives one number a sample."""

    function: Callable[[Tensor], Tensor]

    def __call__(self, output: Tensor) -> Tensor:
        loss = self.function(output)
        if not isinstance(loss, Tensor) or loss.shape != output.shape[:1]:
            got = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
            raise InputError(f"The objective gives {got}, but must give one number a sample: shape ({len(output)},).")
        return loss


@dataclass(frozen=True)
class Asked:
    """An objective put to a batch: one loss for each map that is wanted, and the classes they stand for."""

    losses: tuple[Loss, ...]
    several: bool = False
    classes: Tensor | None = None  # (B, number of losses)
    signed: bool = False  # a negative weight speaks against, so the map shows the positive part


class Objective(abc.ABC):
    """What is minimised over the filters."""

    @abc.abstractmethod
    def ask(self, output: Tensor) -> Asked:
        """Put the objective to a batch whose untouched output is this."""


def _precise(values: Tensor) -> Tensor:
    """(B, ...) values as (B, m) in at least single precision: in half, squares overflow and sums lose their end."""
    flat = values.reshape(values.shape[0], -1)
    return flat if flat.dtype in (torch.float32, torch.float64) else flat.float()
