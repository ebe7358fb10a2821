"""What a recording keeps of the calls before its cut: references, copies, or nothing.

References lean on CPython's reference counts: a value that nobody else holds when the cut returns can be read by
nobody, so a stand-in takes its place. A re-run with nothing filtered catches it where that is wrong.
"""

from __future__ import annotations

import sys
from enum import Enum
from typing import Any

import torch
from torch import Tensor, nn


class Noted:
    """A finished call with what it returned, or with a stand-in once nobody can read that any more."""

    __slots__ = ("held", "module", "shape_of", "value", "version")

    def __init__(self, module: nn.Module, value: Any) -> None:
        self.module = module
        self.value = value
        self.held = isinstance(value, Tensor)
        self.version = 0
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
        if answer.held:
            answer.version = self.value._version
        return answer


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
    if isinstance(value, Tensor):
        return value.clone()
    return torch.utils._pytree.tree_map_only(Tensor, Tensor.clone, value)


def stand_in(shape: torch.Size, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return a tensor that takes no memory and shows itself wherever it is read: all NaN."""
    filler = float("nan") if dtype.is_floating_point else 0
    return torch.full((), filler, dtype=dtype, device=device).expand(shape)
