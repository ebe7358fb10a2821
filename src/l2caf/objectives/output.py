"""Objectives about the whole output: keep it as it is, or make it similar to another."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..errors import InputError, OutputError
from .objective import General, LeastSquares, Linear, Losses, Objective


@dataclass(frozen=True)
class ClassOblivious(Objective):
    """min ||NT - FT(f)||^2: which positions keep the output what it is; any output will do.

    `at` names a module after the layer whose output is kept instead of the network's own.

    >>> loss = ClassOblivious().losses(torch.ones(1, 3)).losses[0]
    >>> loss(torch.zeros(1, 3)).tolist()
    [3.0]
    """

    at: str | None = None

    needs_scale = True

    def losses(self, output: Tensor) -> Losses:
        return Losses((LeastSquares(output),))

    def repeated(self, times: int) -> ClassOblivious:
        return self


@dataclass(frozen=True)
class Similarity(Objective):
    """min -FT(f) . to: which positions make this embedding similar to a given one.

    `to` is (m,) or (B, m). With `cosine=True` the cosine of the two is raised instead, which does not depend on the
    embedding's length and has no closed form.

    >>> loss = Similarity(torch.tensor([1.0, 0.0])).losses(torch.zeros(1, 2)).losses[0]
    >>> loss(torch.tensor([[3.0, 4.0]])).tolist()
    [-3.0]
    """

    to: Tensor
    cosine: bool = False

    def losses(self, output: Tensor) -> Losses:
        try:
            to = torch.as_tensor(self.to).detach().to(output)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(
                f"A {type(self.to).__name__} is no embedding to compare with: give a tensor, (m,) or one per input."
            ) from error
        if output.ndim != 2 or to.shape not in (output.shape, output.shape[1:], (1, *output.shape[1:])):
            raise OutputError(
                f"The embeddings have shape {tuple(output.shape)}, but the one to compare with has {tuple(to.shape)}: "
                "give one of the same length, or one for each input."
            )
        to = to.expand(output.shape)
        if self.cosine:
            return Losses((General(lambda found: -torch.nn.functional.cosine_similarity(found, to, dim=1)),))
        return Losses((Linear(-to),))

    def repeated(self, times: int) -> Similarity:
        to = torch.as_tensor(self.to)
        return replace(self, to=to.repeat(times, 1)) if to.ndim == 2 and len(to) > 1 else self
