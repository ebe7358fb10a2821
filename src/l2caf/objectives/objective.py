"""`Objective`, what is minimised over the filters, and `Loss`: linear, least squares, or any function of the output."""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..errors import InputError


class Loss(abc.ABC):
    """A loss of the filtered output, one number per sample, (B, ...) -> (B,).

    A solver looks at its form only: `direction` where it is linear, `target` where it is a sum of squares, or neither.
    It is made small: a positive weight marks what lowers it, a negative one what raises it. `signed` tells whether the
    two are to be told apart in the picture.
    """

    direction: Tensor | None = None
    target: Tensor | None = None
    signed: bool = True

    @abc.abstractmethod
    def __call__(self, output: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class LeastSquares(Loss):
    """||target - o||^2; `target` has the shape of the output. How much a position matters is all that it tells."""

    target: Tensor = field()
    signed = False

    def __call__(self, output: Tensor) -> Tensor:
        return (_precise(output) - _precise(self.target)).square().sum(dim=1)


@dataclass(frozen=True)
class Linear(Loss):
    """direction . o, so that the gradient is the same everywhere; `direction` is (B, m)."""

    direction: Tensor = field()

    def __call__(self, output: Tensor) -> Tensor:
        return (_precise(output) * _precise(self.direction)).sum(dim=1)


@dataclass(frozen=True)
class General(Loss):
    """Any function of the output that gives one number per sample."""

    function: Callable[[Tensor], Tensor]

    def __call__(self, output: Tensor) -> Tensor:
        loss = self.function(output)
        if not isinstance(loss, Tensor) or loss.shape != output.shape[:1]:
            got = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
            raise InputError(f"The objective gives {got}, but must give one number per sample: shape ({len(output)},).")
        return loss


@dataclass(frozen=True)
class Losses:
    """What an objective asks of a batch: one loss for each map that is wanted, and the classes they stand for.

    With `signed` the map shows the positive part, what lowers the loss, so that to minimise and to maximise the same
    thing give different pictures; without it the magnitude. None leaves it to the losses: linear and general ones are
    signed, sums of squares are not.
    """

    losses: tuple[Loss, ...]
    several: bool = False
    classes: Tensor | None = None  # (B, number of losses)
    signed: bool | None = None

    @property
    def keeps_sign(self) -> bool:
        return any(loss.signed for loss in self.losses) if self.signed is None else self.signed


class Objective(abc.ABC):
    """What is minimised over the filters: pure data, and a function of the output; it knows no network.

    `at` names a module after the layer whose output is asked about in place of the network's own. With `needs_scale`
    the question says nothing of a head that does not feel scale (it normalises), so it is put at the last value that
    does.
    """

    at: str | None = None
    needs_scale: bool = False

    @abc.abstractmethod
    def losses(self, output: Tensor) -> Losses:
        """Put the objective to a batch whose untouched output is this."""


def _precise(values: Tensor) -> Tensor:
    """(B, ...) values as (B, m) in at least single precision: in half, squares overflow and sums lose their end."""
    flat = values.reshape(values.shape[0], -1)
    return flat if flat.dtype in (torch.float32, torch.float64) else flat.float()
