"""The objectives: what a filter is asked to do, as a loss on the network's filtered output."""

from __future__ import annotations

import abc
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .errors import ClassError, InputError, OutputError


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


@dataclass(frozen=True)
class ClassOblivious(Objective):
    """min ||NT - FT(f)||^2: which positions keep the output what it is; any output will do.

    `at` names a module after the layer whose output is kept instead of the network's own.
    """

    at: str | None = None

    def ask(self, output: Tensor) -> Asked:
        return Asked((LeastSquares(output),))


@dataclass(frozen=True)
class ClassSpecific(Objective):
    """min -2 (FT_c - mean_i FT_i): which positions raise class c above the others.

    This is the paper's -FT_c + sum_{i != c} FT_i on logits less their mean, which softmax cannot tell from the
    logits. As published (`published=True`), the sum follows whatever the classes' weights have in common, and two
    classes may get the same map.

    Give one class, or several for a map each; `top=k` takes each sample's k best; `each` takes one class a sample
    (its labels, say). With nothing, each sample's best class.
    """

    classes: int | Sequence[int] | None = None
    top: int | None = None
    each: Sequence[int] | Tensor | None = None
    published: bool = False

    def __post_init__(self) -> None:
        if sum(given is not None for given in (self.classes, self.top, self.each)) > 1:
            raise InputError("Give ClassSpecific one of: classes, top, each.")

    def ask(self, output: Tensor) -> Asked:
        chosen = self.choose(output)
        directions = (_published if self.published else _centred)(chosen, output)
        losses = tuple(Linear(direction) for direction in directions)
        return Asked(losses, several=self.several, classes=chosen, signed=not self.published)

    @property
    def several(self) -> bool:
        """Whether several maps a sample are asked for, be it that there is one class on the list."""
        return self.top is not None or (self.classes is not None and _indices(self.classes)[1])

    def choose(self, output: Tensor) -> Tensor:
        """Return the class indices, (B, K)."""
        batch, count = _rows_of_scores(output)
        if self.classes is not None:
            wanted, _ = _indices(self.classes)
            if not wanted:
                raise ClassError("No class is given: name at least one.")
            chosen = torch.tensor(wanted, dtype=torch.int64, device=output.device).expand(batch, -1)
        elif self.each is not None:
            labels, _ = _indices(self.each)
            chosen = torch.tensor(labels, dtype=torch.int64, device=output.device).reshape(-1, 1)
            if len(chosen) != batch:
                raise ClassError(f"each names {len(chosen)} classes for {batch} inputs: give one an input.")
        else:
            wanted_top = 1 if self.top is None else self.top
            if not 1 <= wanted_top <= count:
                raise ClassError(f"top={wanted_top} is out of range: the network has {count} classes.")
            chosen = output.nan_to_num(nan=-torch.inf).topk(wanted_top, dim=1).indices
        outside = chosen[(chosen < 0) | (chosen >= count)]
        if len(outside):
            raise ClassError(
                f"Class {int(outside[0])} is out of range: the network has {count} classes, 0 to {count - 1}."
            )
        return chosen


@dataclass(frozen=True)
class Similarity(Objective):
    """min -FT(f) . to: which positions make this embedding similar to a given one.

    `to` is (m,) or (B, m). With `cosine=True` the cosine of the two is raised instead, which does not feel the
    embedding's length and has no closed form.
    """

    to: Tensor
    cosine: bool = False

    def ask(self, output: Tensor) -> Asked:
        to = torch.as_tensor(self.to).detach().to(output)
        if output.ndim != 2 or to.shape not in (output.shape, output.shape[1:], (1, *output.shape[1:])):
            raise OutputError(
                f"The embeddings have shape {tuple(output.shape)}, but the one to compare with has {tuple(to.shape)}: "
                "give one of the same length, or one for each input."
            )
        to = to.expand(output.shape)
        if self.cosine:
            return Asked(
                (General(lambda found: -torch.nn.functional.cosine_similarity(found, to, dim=1)),),
                signed=True,
            )
        return Asked((Linear(-to),), signed=True)


@dataclass(frozen=True)
class _Custom(Objective):
    function: Callable[[Tensor], Tensor]

    def ask(self, output: Tensor) -> Asked:
        return Asked((General(self.function),))


def as_objective(objective: Objective | Callable[[Tensor], Tensor] | None) -> Objective:
    """Take an objective, a plain function of the output, or nothing (class-oblivious)."""
    if objective is None:
        return ClassOblivious()
    if isinstance(objective, Objective):
        return objective
    if callable(objective):
        return _Custom(objective)
    raise InputError(f"The objective is a {type(objective).__name__}: give an objective or a function of the output.")


def _precise(values: Tensor) -> Tensor:
    """(B, ...) values as (B, m) in at least single precision: in half, squares overflow and sums lose their end."""
    flat = values.reshape(values.shape[0], -1)
    return flat if flat.dtype in (torch.float32, torch.float64) else flat.float()


def _rows_of_scores(output: Tensor) -> tuple[int, int]:
    if output.ndim != 2:
        raise OutputError(
            f"The output has shape {tuple(output.shape)}, but a class needs one row of scores an input, "
            "(batch, classes): choose such an output with select=, or use ClassOblivious."
        )
    return output.shape[0], output.shape[1]


def _indices(classes: Any) -> tuple[list[int], bool]:
    """Read one index, or several, from whatever holds whole numbers; tell whether it was a list of them."""
    if isinstance(classes, Tensor) or hasattr(classes, "tolist"):
        classes = classes.tolist()  # torch's and numpy's numbers and arrays
    several = isinstance(classes, Iterable) and not isinstance(classes, str)
    try:
        return [operator.index(index) for index in (classes if several else [classes])], several
    except TypeError as error:
        raise ClassError(f"{classes!r} names no class: give a whole number, or a list of them.") from error


def _centred(chosen: Tensor, output: Tensor) -> Tensor:
    """-2 (e_c - 1/N), one (B, N) direction a map."""
    hot = torch.nn.functional.one_hot(chosen.T, output.shape[1]).to(output.dtype)
    return -2 * (hot - 1 / output.shape[1])


def _published(chosen: Tensor, output: Tensor) -> Tensor:
    """1 - 2 e_c, one (B, N) direction a map."""
    hot = torch.nn.functional.one_hot(chosen.T, output.shape[1]).to(output.dtype)
    return 1 - 2 * hot
