"""What a recording keeps of the calls before its cut: references, copies, or nothing.

References lean on CPython's reference counts: a value that nobody else holds when the cut returns can be read by
nobody, so a stand-in takes its place. Whatever is computed from a stand-in is one as well, so that none can vanish in a
comparison; and a re-run at a random filter is compared with the whole network (`replay.py`).
"""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree


class Noted:
    """A finished call with what it returned, or with a stand-in once nobody can read that any more."""

    __slots__ = ("held", "module", "shape_of", "value", "versions")

    def __init__(self, module: nn.Module, value: Any) -> None:
        self.module = module
        self.take(value)

    def take(self, value: Any) -> None:
        """Note what the call returned; a container is noted as it is now, since others may put more into it."""
        self.held = isinstance(value, Tensor)
        self.value = value if self.held else rebuilt(value)
        self.versions: list[tuple[Tensor, int]] = []
        self.shape_of: tuple[torch.Size, torch.dtype, torch.device] | None = None

    def is_read(self) -> bool:
        """Tell whether a variable of the running network still holds the tensor; let go of it if none does."""
        # One reference is ours and one is getrefcount's own.
        if self.held and sys.getrefcount(self.value) <= 2:
            self.shape_of = (self.value.shape, self.value.dtype, self.value.device)
            self.drop()
        return self.held

    def drop(self) -> None:
        self.value = None
        self.held = False

    def settled(self, *, lean: bool) -> Noted:
        """The call ready to be answered: with what is still held, or a stand-in; the run may go on with its own."""
        if lean and not self.is_read() and self.shape_of is not None:
            answer = Noted(self.module, stand_in(*self.shape_of))
            answer.held = False
            return answer
        answer = Noted(self.module, self.value)
        answer.versions = [(tensor, tensor._version) for tensor in tensors_in(self.value)]
        return answer

    def changed(self, of_tensor: Callable[[Tensor], Tensor]) -> Noted:
        """The same call with a function applied to each tensor that it answers with."""
        answer = Noted(self.module, rebuilt(self.value, of_tensor))
        answer.held = self.held
        return answer

    def forgotten(self) -> Noted:
        """The same call answered with stand-ins."""
        return self.changed(lambda tensor: stand_in(tensor.shape, tensor.dtype, tensor.device))

    def written_into(self) -> bool:
        """Tell whether somebody wrote into a tensor of the value since it was settled."""
        return any(tensor._version != version for tensor, version in self.versions)


class Frames:
    """The calls that finished, a list for each call that still runs, and those of them whose value is still held."""

    def __init__(self) -> None:
        self.open: list[list[Noted]] = [[]]
        self._held: list[Noted] = []

    def enter(self) -> None:
        self.open.append([])

    def leave(self) -> list[Noted]:
        return self.open.pop()

    def note(self, noted: Noted) -> None:
        self.open[-1].append(noted)
        self._held.append(noted)

    def let_go(self) -> None:
        """Let go of every value that nobody can read any more, so that a record takes no more memory than a run."""
        self._held = [noted for noted in self._held if noted.is_read()]


class Keeping(Enum):
    """What a tape keeps of the calls before its cut, from the leanest to the surest.

    LEAN keeps only what the network itself still held when the cut returned: what nobody holds, nobody can read. Glue
    that reads a value before it is dropped, or that writes into one, breaks this.
    COPIES keeps a copy of everything. It fails where a call does something beside returning a value: it writes
    into its input, or a hook inside it collects what others read.
    NOTHING runs the whole network every time, with another value at the cut.
    """

    LEAN = "lean"
    COPIES = "copies"
    NOTHING = "nothing"


def copied(value: Any) -> Any:
    """A copy of a value, its tensors included."""
    return value.clone() if isinstance(value, Tensor) else rebuilt(value, Tensor.clone)


def rebuilt(value: Any, of_tensor: Callable[[Tensor], Tensor] = lambda tensor: tensor) -> Any:
    """The same containers made anew (lists, dicts, tuples, dataclasses), with a function applied to each tensor.

    >>> features = [torch.zeros(1)]
    >>> kept = rebuilt({"features": features})
    >>> features.append(torch.ones(1))
    >>> len(kept["features"]), kept["features"][0] is features[0]
    (1, True)
    """

    def leaf(one: Any) -> Any:
        if isinstance(one, Tensor):
            return of_tensor(one)
        if not _has_fields(one):
            return one
        anew = copy.copy(one)
        for name, field in vars(one).items():
            object.__setattr__(anew, name, rebuilt(field, of_tensor))
        return anew

    return of_tensor(value) if isinstance(value, Tensor) else pytree.tree_map(leaf, value)


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors in a value, also inside its containers."""
    for one in pytree.tree_leaves(value):
        if isinstance(one, Tensor):
            yield one
        elif _has_fields(one):
            for field in vars(one).values():
                yield from tensors_in(field)


def _has_fields(value: Any) -> bool:
    is_record = dataclasses.is_dataclass(value) or isinstance(value, SimpleNamespace)
    return is_record and not isinstance(value, type) and hasattr(value, "__dict__")


class StandInReadError(BaseException):
    """Somebody looked at the numbers of a stand-in; no `except Exception` of a network catches it."""


class StandIn(Tensor):
    """Takes the place of a value that nobody reads: what is computed from it is a stand-in too, and to look at its
    numbers, or to write them into another tensor, ends the run."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in _LOOKS or (kwargs and kwargs.get("out") is not None):
            raise StandInReadError
        writes = name in _WRITES or (name.endswith("_") and not name.endswith("__"))
        if writes and not isinstance(args[0], StandIn):
            raise StandInReadError
        if name in _BLANK and isinstance(args[0], StandIn) and not any(map(holds_stand_in, args[1:])):
            # What these make has the type of a tensor, perhaps its shape, and none of its numbers.
            return func(args[0].as_subclass(Tensor), *args[1:], **(kwargs or {}))
        # A mask decides the shape of what it picks.
        if name == "__getitem__" and any(one.dtype == torch.bool for one in tensors_in(args[1])):
            raise StandInReadError
        is_view = name in _AS_IT_IS or (name == "__getitem__" and _is_part(args[1]))
        if not is_view and args and isinstance(args[0], StandIn) and Tensor.numel(args[0]) > MANY_NUMBERS:
            found = _shape_alone(func, args, kwargs or {})
            if found is not None:
                return found
        return super().__torch_function__(func, types, args, kwargs or {})


_LOOKS = frozenset(
    "item tolist numpy __array__ __bool__ __int__ __float__ __complex__ __index__ __contains__ __dlpack__ equal "
    "allclose is_nonzero nonzero argwhere unique unique_consecutive masked_select bincount".split()
)
_BLANK = frozenset("new_zeros new_ones new_full new_empty zeros_like ones_like full_like empty_like".split())
_WRITES = frozenset(
    f"__i{name}__" for name in "add sub mul matmul truediv floordiv mod pow and or xor lshift rshift".split()
) | {"__setitem__"}


MANY_NUMBERS = (
    1 << 17
)  # from which on to compute the numbers of a stand-in takes longer than to tell what shape they have
# What asks for a property, names a device, or looks at the same numbers: none is computed.
_AS_IT_IS = frozenset(
    "__get__ __set__ to cuda cpu type float half double clone detach dim size stride numel is_floating_point"
    " untyped_storage unbind select unsqueeze squeeze transpose permute".split()
)


def _is_part(index: Any) -> bool:
    """Whether an index takes a part of a tensor without copying it."""
    parts = index if isinstance(index, tuple) else (index,)
    return all(one is None or one is Ellipsis or type(one) in (int, slice) for one in parts)


def _shape_alone(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """What a function makes of stand-ins, without computing their numbers; None where only numbers tell."""
    device = next(one.device for one in tensors_in((args, kwargs)) if isinstance(one, StandIn))
    try:
        with torch.no_grad():
            of_shapes = pytree.tree_map_only(Tensor, _without_numbers, (args, kwargs))
            found = func(*of_shapes[0], **of_shapes[1])
    except Exception:  # noqa: BLE001 - it may refuse in any way, and is then computed
        return None
    if not any(isinstance(one, Tensor) for one in pytree.tree_leaves(found)):
        return None
    return pytree.tree_map_only(Tensor, lambda one: stand_in(one.shape, one.dtype, device), found)


def _without_numbers(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")


def stand_in(shape: torch.Size, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return a tensor that takes no memory and shows itself wherever it is read."""
    filler = float("nan") if dtype.is_floating_point else 0
    return torch.full((), filler, dtype=dtype, device=device).expand(shape).as_subclass(StandIn)


def rows_of(tensor: Tensor, samples: Tensor, batch: int) -> Tensor:
    """The rows of some samples, where each sample of a batch has one or several; a stand-in stays one."""
    if isinstance(tensor, StandIn):
        rows = len(samples) * (tensor.shape[0] // batch)
        return stand_in(torch.Size((rows, *tensor.shape[1:])), tensor.dtype, tensor.device)
    if tensor.shape[0] == batch:
        return tensor[samples]
    return tensor.unflatten(0, (batch, -1))[samples].flatten(0, 1)


def fingerprint_of(value: Any) -> object:
    """What two values have in common, as good as always, only if all numbers of their tensors are the same."""
    return [(tuple(tensor.shape), int(tensor.detach().contiguous().view(_BITS[tensor.itemsize]).sum()))
            for tensor in tensors_in(value) if tensor.itemsize in _BITS]  # fmt: skip


_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # whole numbers of the same size


def holds_stand_in(value: Any) -> bool:
    """Tell whether a value was computed from a stand-in."""
    return any(isinstance(tensor, StandIn) for tensor in tensors_in(value))
