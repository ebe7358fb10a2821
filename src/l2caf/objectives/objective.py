"""`Objective`, what is minimised over the filters, and `Loss`: linear, least squares, or any function of the output."""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import InputError
from ..rendering.region import OutputRegion
from ..softmax_metric import MetricArrays


class Metric(abc.ABC):
    """How far two outputs are apart: ||S (o - o')||, for a linear map S per sample, in double precision.

    Values are (B, m), or (B, n, m) for several per sample. `reach` bounds ||S v|| over all v with entries of at most 1,
    (B,): how much of the rounding of the outputs it lets through.
    """

    reach: Tensor
    arrays: MetricArrays | None = None  # the same for plain arrays, which takes so few numbers a fraction of the time

    @abc.abstractmethod
    def push(self, values: Tensor) -> Tensor:
        """S v."""

    @abc.abstractmethod
    def pull(self, directions: Tensor) -> Tensor:
        """S^T d."""

    @abc.abstractmethod
    def only(self, samples: Tensor) -> Metric:
        """The metric of some samples."""


class Spike(NamedTuple):
    """A direction that is one number at a place of each sample, (B,), and another elsewhere: a class against all."""

    places: Tensor
    at: float
    elsewhere: float


class Loss(abc.ABC):
    """A loss of the filtered output, one number per sample, (B, ...) -> (B,).

    A solver looks at its form only: `direction` where it is linear, `target` where it is a sum of squares (in `metric`,
    where there is one), or neither; then `approximation` may be a sum of squares that stands for it in closed form.
    It is made small: a positive weight marks what lowers it, a negative one what raises it. `signed` tells whether the
    two are to be distinguished in the picture.
    """

    direction: Tensor | None = None
    spike: Spike | None = None  # the same in short, where it has that form
    target: Tensor | None = None
    metric: Metric | None = None
    approximation: Loss | None = None
    signed: bool = True

    @property
    def is_linear(self) -> bool:
        return self.spike is not None or self.direction is not None

    @abc.abstractmethod
    def __call__(self, output: Tensor) -> Tensor: ...

    def fitted(self, output: Tensor) -> Loss:
        """This loss for a batch whose untouched output is this: what is said once holds for every sample."""
        return self


@dataclass(frozen=True)
class LeastSquares(Loss):
    """||target - o||^2; `target` has the shape of the output, or of one sample's.

    With a `metric` the difference is measured in it. How much a position matters is all that it tells.

    >>> LeastSquares(torch.zeros(1, 2))(torch.tensor([[3.0, 4.0]])).tolist()
    [25.0]
    """

    target: Tensor = field()
    metric: Metric | None = None
    signed = False

    def fitted(self, output: Tensor) -> Loss:
        return self if self.target.shape == output.shape else replace(self, target=_each(self.target, output, "target"))

    def __call__(self, output: Tensor) -> Tensor:
        missed = _precise(output) - _precise(self.target)
        return (missed if self.metric is None else self.metric.push(missed)).square().sum(dim=1)


@dataclass(frozen=True)
class Linear(Loss):
    """direction . o, so that the gradient is the same everywhere; `direction` is (B, m), or (m,) for all samples.

    >>> Linear(torch.tensor([[1.0, -1.0]]))(torch.tensor([[3.0, 4.0]])).tolist()
    [-1.0]
    """

    direction: Tensor = field()

    def fitted(self, output: Tensor) -> Loss:
        if self.direction.shape == output.shape:
            return self
        return replace(self, direction=_each(self.direction, output, "direction"))

    def __call__(self, output: Tensor) -> Tensor:
        return (_precise(output) * _precise(self.direction)).sum(dim=1)


@dataclass(frozen=True, eq=False)
class Contrast(Loss):
    """A linear loss along a spike, of outputs with so many numbers; the direction is written out for whom it helps.

    >>> loss = Contrast(Spike(torch.tensor([1]), -1.0, 1.0), torch.zeros(1, 3))
    >>> loss.direction.tolist(), loss(torch.tensor([[3.0, 4.0, 1.0]])).tolist()
    ([[1.0, -1.0, 1.0]], [0.0])
    """

    spike: Spike = field()
    scores: Tensor  # (B, m), of which the direction has shape, type and device

    @cached_property
    def direction(self) -> Tensor:  # type: ignore[override]
        flat = self.scores.new_full(self.scores.shape, self.spike.elsewhere)
        return flat.scatter_(1, self.spike.places.unsqueeze(1), self.spike.at)

    def __call__(self, output: Tensor) -> Tensor:
        return (_precise(output) * _precise(self.direction)).sum(dim=1)


@dataclass(frozen=True)
class General(Loss):
    """Any function of the output that gives one number per sample.

    >>> General(lambda output: output.amax(dim=1))(torch.tensor([[3.0, 4.0]])).tolist()
    [4.0]
    """

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

    >>> Losses((Linear(torch.ones(1, 2)),)).keeps_sign, Losses((LeastSquares(torch.ones(1, 2)),)).keeps_sign
    (True, False)
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
    the question says nothing of a head that is scale-invariant (it normalises), so it is put at the last value that
    does, unless it is `only_of_output`: then such a head has nothing to tell.

    >>> class First(Objective):
    ...     def losses(self, output):
    ...         direction = torch.zeros_like(output)
    ...         direction[:, 0] = -1
    ...         return Losses((Linear(direction),))
    >>> import l2caf
    >>> network = torch.nn.Sequential(
    ...     torch.nn.Conv2d(3, 8, 4, stride=4), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    ... )
    >>> l2caf.explain(network, torch.rand(1, 3, 32, 32), objective=First())
    Heatmap(1 sample of 32×32, layer '0', AttentionFilter, exact)
    """

    at: str | None = None
    needs_scale: bool = False
    only_of_output: bool = False

    @abc.abstractmethod
    def losses(self, output: Tensor) -> Losses:
        """Put the objective to a batch whose untouched output is this."""

    def reading(self, output: Tensor) -> Callable[[Tensor], Tensor] | None:
        """What of an untouched output is asked about, as a function of such outputs, (B, ...) to (B, m); None for all.

        What it gives stands for the output from then on, and is what `losses` gets. Where it is linear, what was affine
        in the filter stays so.
        """
        return None

    def shown(self, output: Tensor) -> OutputRegion | None:
        """The part of an untouched output that is asked about, for a picture of it; None for all."""
        return None

    @property
    def is_slope(self) -> bool:
        """Whether the slope of what is read, at the untouched filter, answers this where a head is curved."""
        return False

    @property
    def instead(self) -> Objective | None:
        """What is asked where a scale-invariant head answers this with a loss of zero at the uniform filter."""
        return None

    def repeated(self, times: int) -> Objective | None:
        """This objective for a batch in which all samples come so many times over, one batch after the other; None
        where that cannot be told, and the frames of a clip are then asked about one after the other."""
        return None


def _each(given: Tensor, output: Tensor, name: str) -> Tensor:
    """What a loss holds, for each sample of the output."""
    batch, numbers = len(output), output[:1].numel()
    if given.ndim and len(given) == batch and given.numel() == batch * numbers:
        return given.reshape(output.shape).to(output.device)
    if given.numel() == numbers and given.shape in (output.shape[1:], (numbers,), (1, *output.shape[1:]), (1, numbers)):
        return given.reshape(1, *output.shape[1:]).to(output.device).expand(output.shape)
    raise InputError(
        f"The {name} of the loss has shape {tuple(given.shape)}, but the output has {tuple(output.shape)}: give one of "
        f"that shape, or {tuple(output.shape[1:])} for all samples."
    )


def _precise(values: Tensor) -> Tensor:
    """(B, ...) values as (B, m) in at least single precision: in half, squares overflow and sums lose their end."""
    flat = values.reshape(values.shape[0], -1)
    return flat if flat.dtype in (torch.float32, torch.float64) else flat.float()
