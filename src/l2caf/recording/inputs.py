"""What a network is called with, and which part of what it returns is explained."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import NoneType
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError, OutputError
from .layout import Layout
from .storage import stand_in

Inputs = Tensor | Sequence[Any] | Mapping[str, Any]
Select = str | int | Callable[[Any], Tensor] | None


@dataclass(frozen=True)
class Arguments:
    """The positional and named arguments of one call of the network.

    Tensors have names: the place or the name of the argument, and for those inside it their keys after a point
    ("0.image"). `explained` is the name of the one that maps belong to; None stands for the first that may have any.
    `copied` says that every call gets copies, for a network that writes into its inputs.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    copied: bool = False
    explained: str | None = None

    def call(self, network: Callable[..., Any]) -> Any:
        """Call the network with these."""
        given = self.map(Tensor.clone) if self.copied else self
        return network(*given.args, **given.kwargs)

    @classmethod
    def of(cls, inputs: Inputs, *, explained: str | int | None = None) -> Arguments:
        """Read a tensor, a sequence of positional arguments, or a mapping of named ones."""
        named = None if explained is None else str(explained)
        if isinstance(inputs, Tensor):
            arguments = cls((inputs,), {}, explained=named)
        elif isinstance(inputs, Mapping):
            arguments = cls((), dict(inputs), explained=named)
        elif isinstance(inputs, Sequence) and not isinstance(inputs, str):
            arguments = cls(tuple(inputs), {}, explained=named)
        else:
            raise InputError(
                f"The inputs are a {type(inputs).__name__}, but a network takes tensors: give a tensor of shape "
                "(batch, channels, height, width), a tuple of arguments, or a dict of named ones; l2caf.load(…)"
                ".preprocess(photograph)[None] makes one of a photograph."
            )
        main = arguments.main
        if main.shape[0] == 0:
            raise InputError("The batch is empty: give at least one input.")
        # An inference tensor cannot take part in a later gradient, so it is copied into an ordinary one.
        with torch.inference_mode(False):
            return arguments.map(lambda tensor: tensor.clone() if tensor.is_inference() else tensor.detach())

    def about(self, name: str) -> Arguments:
        """The same with another tensor as the one that maps belong to."""
        return self if name == self.main_name else replace(self, explained=name)

    @property
    def main(self) -> Tensor:
        """The tensor that maps belong to and are resized to."""
        return self._main[1]

    @property
    def main_name(self) -> str:
        """What that tensor is called."""
        return self._main[0]

    @cached_property
    def _main(self) -> tuple[str, Tensor]:
        if self.explained is None and len(self.args) == 1 and not self.kwargs:
            only = self.args[0]
            if isinstance(only, Tensor) and only.ndim > 3 and only.is_floating_point():
                return "0", only  # as good as always, and soon told
        found = self.tensors
        if self.explained is None:
            name = self.explainable[0]
            return name, found[name]
        if self.explained not in found:
            raise InputError(
                f"There is no input {self.explained!r} to explain: the tensors among the inputs are "
                f"{', '.join(map(repr, found)) or 'none'}.",
                field="of",
            )
        tensor = found[self.explained]
        if not position_axes(tensor):
            raise InputError(
                f"Input {self.explained!r} has shape {tuple(tensor.shape)}, so it has no axis with positions: choose "
                f"one of {', '.join(map(repr, self.explainable))}.",
                field="of",
            )
        return self.explained, tensor

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """Every tensor among the arguments, by name."""
        found: dict[str, Tensor] = {}
        self._walk(lambda name, tensor: found.setdefault(name, tensor))
        return found

    @cached_property
    def explainable(self) -> list[str]:
        """The tensors that may have a map, the likeliest first: pictures and volumes, then signals, then tokens."""
        ranked = [(_rank(tensor), name) for name, tensor in self.tensors.items() if position_axes(tensor)]
        if not ranked:
            shapes = ", ".join(f"{name!r}: {tuple(tensor.shape)}" for name, tensor in self.tensors.items())
            raise InputError(
                "No input has a map to explain: one of them must have a batch and an axis of at least four positions, "
                f"for example image.unsqueeze(0) with shape (1, 3, 224, 224); there is {shapes or 'no tensor'}."
            )
        return [name for _, name in sorted(ranked, key=lambda one: one[0])]

    def size_for(self, layout: Layout) -> tuple[int, ...]:
        """The size of the explained input along the axes of a map's grid."""
        shape = self.main.shape
        if layout.along is None:
            return tuple(shape[-len(layout.grid) :])
        return tuple(shape[axis] for axis in layout.along[-len(layout.grid) :])

    @property
    def batch(self) -> int:
        return int(self.main.shape[0])

    def map(self, function: Callable[[Tensor], Tensor]) -> Arguments:
        """Apply a function to every tensor among the arguments."""
        return self._walk(lambda _, tensor: function(tensor))

    def versions(self) -> list[int]:
        """How often each tensor among the arguments has been written into."""
        return [tensor._version for tensor in self.tensors.values()]

    def signature(self) -> Hashable:
        """What of the arguments decides how the network runs: names, shapes without the batch, types,
        devices, plain values, and which of them is explained."""

        def describe(value: Any) -> Any:
            if isinstance(value, Tensor):
                return tuple(value.shape[1:]), value.dtype, value.device
            if isinstance(value, (list, tuple)):
                return type(value), tuple(map(describe, value))
            if isinstance(value, Mapping):
                return type(value), tuple((describe(key), describe(one)) for key, one in value.items())
            return value if is_plain(value) else type(value)

        named = tuple((name, describe(value)) for name, value in self.kwargs.items())
        return tuple(map(describe, self.args)), named, self.explained

    def first(self) -> Arguments:
        """The arguments of the first sample alone."""
        return self.with_rows(self.main[:1])

    def with_rows(self, rows: Tensor) -> Arguments:
        """The same with other rows of the explained tensor; of what goes with it, the first sample's for each."""
        batch, main = self.batch, self.main_name

        def row(name: str, tensor: Tensor) -> Tensor:
            if name == main:
                return rows
            if tensor.ndim and tensor.shape[0] == batch:
                return tensor[:1].repeat(len(rows), *[1] * (tensor.ndim - 1))
            return tensor.clone()

        return self._walk(row)

    def of_samples(self, samples: Tensor, *, with_numbers: bool = True) -> Arguments:
        """The same for a batch of these samples, some of them several times. Without its numbers, a stand-in takes the
        place of the tensor that maps belong to: a re-run knows what became of it."""
        batch, main = self.batch, self.main_name

        def chosen(name: str, tensor: Tensor) -> Tensor:
            if not tensor.ndim or tensor.shape[0] != batch:
                return tensor
            if name == main and not with_numbers:
                return stand_in(torch.Size((len(samples), *tensor.shape[1:])), tensor.dtype, tensor.device)
            return tensor[samples]

        return self._walk(chosen)

    def _walk(self, function: Callable[[str, Tensor], Tensor]) -> Arguments:
        args = tuple(_mapped(value, str(place), function) for place, value in enumerate(self.args))
        kwargs = {name: _mapped(value, name, function) for name, value in self.kwargs.items()}
        return Arguments(args, kwargs, self.copied, self.explained)


def position_axes(tensor: Tensor) -> dict[int, int]:
    """The axes that may hold positions, with their lengths: all but the batch and the short ones, such as colour."""
    if tensor.dtype == torch.bool or tensor.is_complex() or tensor.layout != torch.strided:
        return {}
    axes = {axis: length for axis, length in enumerate(tensor.shape) if axis and length >= LEAST_POSITIONS}
    if not axes and tensor.ndim > 3:  # a very small picture
        axes = {axis: length for axis, length in enumerate(tensor.shape) if axis > 1 and length > 1}
    if axes:  # a single column, beside axes that have positions
        axes |= {axis: length for axis, length in enumerate(tensor.shape) if axis > 1 and length == 1}
    if tensor.ndim == 5:  # a clip of two or three frames, before or after the colours
        axes |= {axis: length for axis, length in enumerate(tensor.shape[:3]) if axis and length > 1}
    return dict(sorted(axes.items()))


LEAST_POSITIONS = 4


def _rank(tensor: Tensor) -> int:
    return (0 if tensor.ndim >= 3 else 1) if tensor.is_floating_point() else 2


def _mapped(value: Any, name: str, function: Callable[[str, Tensor], Tensor]) -> Any:
    """Apply a function to every tensor in what may be a container of containers."""
    if isinstance(value, Tensor):
        return function(name, value)
    if isinstance(value, Mapping):
        inside = {key: _mapped(one, f"{name}.{key}", function) for key, one in value.items()}
        return inside if type(value) is dict else type(value)(inside)  # type: ignore[call-arg]
    if isinstance(value, (list, tuple)):
        items = [_mapped(one, f"{name}.{place}", function) for place, one in enumerate(value)]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def is_plain(value: Any) -> bool:
    """Whether a value is the same wherever it is equal, and refers to nothing else."""
    return isinstance(value, (str, int, float, NoneType))


def select_output(returned: Any, select: Select, batch: int) -> Tensor:
    """Take the tensor to explain out of what the network returned, and check that it is one row per sample."""
    chosen = _choose(returned, select)
    if not isinstance(chosen, Tensor):
        raise OutputError(
            f"The network returns {_describe(chosen)}, not a tensor: choose the part to explain with output=, by its "
            "key, its index, or a function of what the network returns.",
            field="output",
        )
    if not torch.is_floating_point(chosen) or chosen.ndim < 1 or chosen.shape[0] != batch:
        raise OutputError(
            f"The network's output has shape {tuple(chosen.shape)} and type {chosen.dtype}, but a floating-point "
            f"tensor with one row for each of the {batch} inputs is needed: choose another part of what it returns "
            "with output=.",
            field="output",
        )
    return chosen


def _choose(returned: Any, select: Select) -> Any:
    if select is None:
        return returned
    if isinstance(select, (bool, list, dict, set, slice, Tensor)):  # a tensor would take them for indices
        raise OutputError(
            f"output is a {type(select).__name__}: give a key, an index, or a function of what the network returns.",
            field="output",
        )
    try:
        if isinstance(returned, Tensor) and isinstance(select, str):  # torch would warn before it refuses
            raise KeyError(select)
        return select(returned) if callable(select) else returned[select]
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise OutputError(
            f"There is no output {select!r}: the network returns {_describe(returned)}; name a part of that.",
            field="output",
        ) from error


def _describe(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"a dict with {', '.join(repr(key) for key in value) or 'nothing in it'}"
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return f"a {type(value).__name__}"
