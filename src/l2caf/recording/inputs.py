"""What a network is called with, and which part of what it returns is explained."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import NoneType
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError, OutputError
from .layout import Layout

Inputs = Tensor | Sequence[Any] | Mapping[str, Any]
Select = str | int | Callable[[Any], Tensor] | None


@dataclass(frozen=True)
class Arguments:
    """The positional and named arguments of one call of the network.

    `copied` says that every call gets copies, for a network that writes into its inputs.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    copied: bool = False

    def call(self, network: Callable[..., Any]) -> Any:
        """Call the network with these."""
        given = self.map(Tensor.clone) if self.copied else self
        return network(*given.args, **given.kwargs)

    @classmethod
    def of(cls, inputs: Inputs) -> Arguments:
        """Read a tensor, a sequence of positional arguments, or a mapping of named ones."""
        if isinstance(inputs, Tensor):
            arguments = cls((inputs,), {})
        elif isinstance(inputs, Mapping):
            arguments = cls((), dict(inputs))
        elif isinstance(inputs, Sequence) and not isinstance(inputs, str):
            arguments = cls(tuple(inputs), {})
        else:
            raise InputError(
                f"The inputs are a {type(inputs).__name__}, but a network takes tensors: give a tensor of shape "
                "(batch, channels, height, width), a tuple of arguments, or a dict of named ones."
            )
        main = arguments.main
        if main.shape[0] == 0:
            raise InputError("The batch is empty: give at least one input.")
        # An inference tensor cannot take part in a later gradient, so it is copied into an ordinary one.
        with torch.inference_mode(False):
            return arguments.map(lambda tensor: tensor.clone() if tensor.is_inference() else tensor.detach())

    @property
    def main(self) -> Tensor:
        """The tensor whose spatial axes the maps are resized to: the first floating one with a batch and a map."""
        return self._main[1]

    @property
    def main_name(self) -> str:
        """What that argument is called: its place among the positional ones, or its name."""
        return self._main[0]

    @cached_property
    def _main(self) -> tuple[str, Tensor]:
        named = {**{str(place): value for place, value in enumerate(self.args)}, **self.kwargs}
        for name, value in named.items():
            if isinstance(value, Tensor) and value.is_floating_point() and value.ndim >= 3:
                return name, value
        raise InputError(
            "No input has a map to explain: one of them must be a floating-point tensor of at least three axes "
            "(batch, channels, and one to three spatial axes), for example image.unsqueeze(0)."
        )

    def size_for(self, layout: Layout) -> tuple[int, ...]:
        """The size of the explained input along the axes of a map's grid."""
        return tuple(self.main.shape[-len(layout.grid) :])

    @property
    def batch(self) -> int:
        return int(self.main.shape[0])

    def map(self, function: Callable[[Tensor], Tensor]) -> Arguments:
        """Apply a function to every tensor among the arguments."""

        def apply(value: Any) -> Any:
            return function(value) if isinstance(value, Tensor) else value

        named = {key: apply(value) for key, value in self.kwargs.items()}
        return Arguments(tuple(map(apply, self.args)), named, self.copied)

    def versions(self) -> list[int]:
        """How often each tensor among the arguments has been written into."""
        return [value._version for value in (*self.args, *self.kwargs.values()) if isinstance(value, Tensor)]

    def signature(self) -> Hashable:
        """What of the arguments decides how the network runs: names, shapes without the batch, types,
        devices, plain values."""

        def describe(value: Any) -> Any:
            if isinstance(value, Tensor):
                return tuple(value.shape[1:]), value.dtype, value.device
            if isinstance(value, (list, tuple)):
                return type(value), tuple(map(describe, value))
            if isinstance(value, dict):
                return type(value), tuple((describe(key), describe(one)) for key, one in value.items())
            return value if is_plain(value) else type(value)

        named = tuple((name, describe(value)) for name, value in self.kwargs.items())
        return tuple(map(describe, self.args)), named

    def first(self) -> Arguments:
        """The arguments of the first sample alone."""
        batch = self.batch
        return self.map(lambda tensor: tensor[:1] if tensor.ndim and tensor.shape[0] == batch else tensor)


def is_plain(value: Any) -> bool:
    """Whether a value is the same wherever it is equal, and refers to nothing else."""
    return isinstance(value, (str, int, float, NoneType))


def select_output(returned: Any, select: Select, batch: int) -> Tensor:
    """Take the tensor to explain out of what the network returned, and check that it is one row per sample."""
    chosen = _choose(returned, select)
    if not isinstance(chosen, Tensor):
        raise OutputError(
            f"The network returns {_describe(chosen)}, not a tensor: select the part to explain by its key, its index, "
            "or a function of what the network returns.",
            field="select",
        )
    if not torch.is_floating_point(chosen) or chosen.ndim < 1 or chosen.shape[0] != batch:
        raise OutputError(
            f"The network's output has shape {tuple(chosen.shape)} and type {chosen.dtype}, but a floating-point "
            f"tensor with one row for each of the {batch} inputs is needed: select another part of what it returns.",
            field="select",
        )
    return chosen


def _choose(returned: Any, select: Select) -> Any:
    if select is None:
        return returned
    if isinstance(select, (bool, list, dict, set, slice, Tensor)):  # a tensor would take them for indices
        raise OutputError(
            f"select is a {type(select).__name__}: give a key, an index, or a function of what the network returns.",
            field="select",
        )
    try:
        return select(returned) if callable(select) else returned[select]
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise OutputError(
            f"There is nothing to select by {select!r}: the network returns {_describe(returned)}.", field="select"
        ) from error


def _describe(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"a dict with {', '.join(repr(key) for key in value) or 'nothing in it'}"
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return f"a {type(value).__name__}"
