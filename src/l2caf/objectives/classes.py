"""Objectives about classes: which positions raise one class above the others."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import ClassError, InputError, OutputError
from .objective import Linear, Losses, Objective


@dataclass(frozen=True)
class ClassSpecific(Objective):
    """min -2 (FT_c - mean_i FT_i): which positions raise class c above the others.

    This is the paper's -FT_c + sum_{i != c} FT_i on logits less their mean, which softmax cannot tell from the
    logits. As published (`published=True`), the sum follows whatever the classes' weights have in common, and two
    classes may get the same map.

    Give one class, or several for a map each; `top=k` takes each sample's k best; `each` takes one class per sample
    (its labels, say). With nothing, each sample's best class.
    """

    classes: int | Sequence[int] | None = None
    top: int | None = None
    each: Sequence[int] | Tensor | None = None
    published: bool = False

    def __post_init__(self) -> None:
        if sum(given is not None for given in (self.classes, self.top, self.each)) > 1:
            raise InputError("Give ClassSpecific one of: classes, top, each.")

    def losses(self, output: Tensor) -> Losses:
        chosen = self.choose(output)
        directions = (_published if self.published else _centred)(chosen, output)
        losses = tuple(Linear(direction) for direction in directions)
        return Losses(losses, several=self.several, classes=chosen, signed=not self.published)

    @property
    def several(self) -> bool:
        """Whether several maps per sample are asked for, even if there is one class on the list."""
        return self.top is not None or (self.classes is not None and _indices(self.classes)[1])

    def choose(self, output: Tensor) -> Tensor:
        """Return the class indices, (B, K)."""
        batch, count = _rows_of_scores(output)
        if self.classes is not None:
            wanted, _ = _indices(self.classes)
            if not wanted:
                raise ClassError("No class is given: name at least one.", field="class")
            chosen = torch.tensor(wanted, dtype=torch.int64, device=output.device).expand(batch, -1)
        elif self.each is not None:
            labels, _ = _indices(self.each)
            chosen = torch.tensor(labels, dtype=torch.int64, device=output.device).reshape(-1, 1)
            if len(chosen) != batch:
                raise ClassError(f"each names {len(chosen)} classes for {batch} inputs: give one per input.")
        else:
            wanted_top = 1 if self.top is None else self.top
            if not 1 <= wanted_top <= count:
                raise ClassError(
                    f"The best {wanted_top} classes are asked for, but the network has {count}: give 1 to {count}.",
                    field="top",
                )
            chosen = output.nan_to_num(nan=-torch.inf).topk(wanted_top, dim=1).indices
        outside = chosen[(chosen < 0) | (chosen >= count)]
        if len(outside):
            raise ClassError(
                f"Class {int(outside[0])} is out of range: the network has {count} classes, 0 to {count - 1}.",
                field="class",
            )
        return chosen


def _rows_of_scores(output: Tensor) -> tuple[int, int]:
    if output.ndim != 2:
        raise OutputError(
            f"The output has shape {tuple(output.shape)}, but a class needs one row of scores per input, "
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
    """-2 (e_c - 1/N), one (B, N) direction per map."""
    hot = torch.nn.functional.one_hot(chosen.T, output.shape[1]).to(output.dtype)
    return -2 * (hot - 1 / output.shape[1])


def _published(chosen: Tensor, output: Tensor) -> Tensor:
    """1 - 2 e_c, one (B, N) direction per map."""
    hot = torch.nn.functional.one_hot(chosen.T, output.shape[1]).to(output.dtype)
    return 1 - 2 * hot
