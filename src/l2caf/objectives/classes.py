"""Objectives about classes: which positions raise one class above the others, and which classes are meant."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..errors import ClassError, InputError, OutputError
from ..numerics import rows
from .objective import Contrast, Losses, Objective, Spike


@dataclass(frozen=True)
class ClassChoice:
    """Which classes are meant, for whatever has a map per class.

    which    one class, `ClassSpecific(207)`, or a list of them
    classes  the same by name: each of these classes for each sample, a map each
    labels   one class per sample: the first for the first sample, and so on
    top      each sample's k best

    With nothing, each sample's best class. A list as long as the batch may mean either, so there it has to be given
    by name: `classes=` or `labels=`.
    """

    which: int | Sequence[int] | Tensor | None = None
    _: KW_ONLY
    classes: int | Sequence[int] | Tensor | None = None
    top: int | None = None
    labels: Sequence[int] | Tensor | None = None

    def __post_init__(self) -> None:
        if sum(given is not None for given in (self.which, self.classes, self.top, self.labels)) > 1:
            raise InputError(f"Classes are named in two ways: give {type(self).__name__} one of classes, labels, top.")

    @property
    def several(self) -> bool:
        """Whether several maps per sample are asked for, even if there is one class on the list."""
        named = self.which if self.classes is None else self.classes
        return self.top is not None or (named is not None and _indices(named)[1])

    def choose(self, output: Tensor) -> Tensor:
        """Return the class indices, (B, K)."""
        scores = scores_of(output)
        batch, count = scores.shape
        if self.labels is not None:
            wanted, _ = _indices(self.labels)
            if len(wanted) != batch:
                raise ClassError(
                    f"labels names {len(wanted)} classes for {batch} inputs: give one per input, or classes= for a map"
                    " of each class."
                )
            chosen = torch.tensor(wanted, dtype=torch.int64, device=output.device).reshape(-1, 1)
        elif self.which is not None or self.classes is not None:
            wanted = self._for_each(batch)
            chosen = torch.tensor(wanted, dtype=torch.int64, device=output.device).expand(batch, -1)
        else:
            return _ranked(scores, _best(self.top, count))
        outside = chosen[(chosen < 0) | (chosen >= count)]
        if len(outside):
            known = f"{count} classes, 0 to {count - 1}" if count > 1 else "one class, 0"
            raise ClassError(f"Class {int(outside[0])} is out of range: the network has {known}.", field="class")
        return chosen

    def _for_each(self, batch: int) -> list[int]:
        """The classes that every sample gets a map of."""
        wanted, several = _indices(self.which if self.classes is None else self.classes)
        if not wanted:
            raise ClassError("No class is given: name at least one.", field="class")
        if several and self.classes is None and len(wanted) == batch > 1:
            raise ClassError(
                f"{batch} classes for {batch} inputs may mean two things: give labels= for one class per input, or"
                " classes= for a map of each class on each input.",
                field="class",
            )
        return wanted


@dataclass(frozen=True, kw_only=True)
class ClassSpecific(ClassChoice, Objective):
    """min -2 (FT_c - mean_i FT_i): which positions raise class c above the others.

    This is the paper's -FT_c + sum_{i != c} FT_i on logits less their mean, which softmax cannot tell from the
    logits. As published (`published=True`), the sum follows whatever the classes' weights have in common, and two
    classes may get the same map. A network with one logit has one class, 0: nothing stands beside it, so that the
    logit itself is raised, min -FT.

    Give one class, or several for a map each; `top=k` takes each sample's k best; `labels` takes one class per sample.
    With nothing, each sample's best class.

    >>> ClassSpecific(labels=[2, 0]).choose(torch.zeros(2, 3)).tolist()
    [[2], [0]]
    >>> ClassSpecific(classes=[2, 0]).choose(torch.zeros(2, 3)).tolist()
    [[2, 0], [2, 0]]
    """

    published: bool = False

    def losses(self, output: Tensor) -> Losses:
        chosen, scores = self.choose(output), scores_of(output)
        at, elsewhere = (_published if self.published else _centred)(scores.shape[1])
        losses = tuple(Contrast(Spike(places, at, elsewhere), scores) for places in chosen.unbind(1))
        return Losses(losses, several=self.several, classes=chosen, signed=not self.published)

    def repeated(self, times: int) -> ClassSpecific:
        return self if self.labels is None else replace(self, labels=list(self.labels) * times)


def scores_of(output: Tensor) -> Tensor:
    """The output as a row of scores per sample, (B, N); one number per sample is the one logit of its network."""
    if output.ndim not in (1, 2):
        raise OutputError(
            f"The output has shape {tuple(output.shape)}, but a class needs one row of scores per input, "
            "(batch, classes): choose such an output with output=, or use ClassOblivious."
        )
    return rows(output)


def _ranked(scores: Tensor, best: int) -> Tensor:
    """The best classes of each sample, (B, best); NaN comes last."""
    if math.isnan(float(scores.sum())):
        scores = scores.nan_to_num(nan=-torch.inf)
    return scores.argmax(dim=1, keepdim=True) if best == 1 else scores.topk(best, dim=1).indices


def _best(top: Any, count: int) -> int:
    """How many of the best classes are asked for."""
    if top is None:
        return 1
    try:
        wanted = operator.index(top)
    except TypeError:
        wanted = 0
    if isinstance(top, bool) or not 1 <= wanted <= count:
        raise ClassError(
            f"The best {top} classes are asked for, but the network has {count}: give 1 to {count}.", field="top"
        )
    return wanted


def _indices(classes: Any) -> tuple[list[int], bool]:
    """Read one index, or several, from whatever holds whole numbers; tell whether it was a list of them."""
    if isinstance(classes, Tensor) or hasattr(classes, "tolist"):
        classes = classes.tolist()  # torch's and numpy's numbers and arrays
    several = isinstance(classes, Iterable) and not isinstance(classes, str)
    listed = list(classes) if several else [classes]
    try:
        if any(isinstance(index, bool) for index in listed):  # a mask, or a switch that is none
            raise TypeError
        return [operator.index(index) for index in listed], several
    except TypeError as error:
        raise ClassError(
            f"{classes!r} names no class: give a whole number, as model.class_index(name) finds it, or a list."
        ) from error


def _centred(count: int) -> tuple[float, float]:
    """-2 (e_c - 1/N), at the class and elsewhere; a logit that is alone is its own measure."""
    return _published(count) if count == 1 else (2 / count - 2, 2 / count)


def _published(count: int) -> tuple[float, float]:
    """1 - 2 e_c."""
    return -1.0, 1.0
