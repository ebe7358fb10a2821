"""Places in a run of a network: what a call is given, and all calls of a module as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .borrow import Call


@dataclass(frozen=True)
class Given(Call):
    """What the index-th call of a module is given, its first tensor: a value that may be no module's output."""


@dataclass(frozen=True)
class EveryCall(Call):
    """All calls of a module in one run, one per frame; what they return is one batch, a sample's frames in a row."""

    calls: int = 1

    @classmethod
    def of(cls, module: nn.Module, calls: int) -> EveryCall:
        return cls(module, 0, calls)

    def joined(self, values: Sequence[Any]) -> Tensor | None:
        """The values of the calls as one batch; None where they are not alike."""
        shapes = {value.shape if isinstance(value, Tensor) else None for value in values}
        if len(values) != self.calls or len(shapes) > 1 or None in shapes:
            return None
        return torch.stack(list(values), dim=1).flatten(0, 1)

    def parted(self, value: Tensor) -> list[Tensor]:
        """Such a batch as the values of the calls."""
        return [one.contiguous() for one in value.unflatten(0, (-1, self.calls)).unbind(1)]

    def each(self) -> list[Call]:
        """The calls one by one."""
        return [Call(self.module, number) for number in range(self.calls)]


@dataclass(frozen=True)
class EveryGiven(EveryCall):
    """What all calls of a module in one run are given, one per frame."""

    def each(self) -> list[Call]:
        return [Given(self.module, number) for number in range(self.calls)]


def given(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor | None:
    """What a call is given: its first tensor of real numbers."""
    return next((one for one in (*args, *kwargs.values()) if _is_numbers(one)), None)


def given_instead(args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call with another value in that place."""
    for place, one in enumerate(args):
        if _is_numbers(one):
            return (*args[:place], value, *args[place + 1 :]), kwargs
    for name, one in kwargs.items():
        if _is_numbers(one):
            return args, {**kwargs, name: value}
    return args, kwargs


def _is_numbers(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()
