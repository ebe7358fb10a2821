"""The buffers that a forward writes: to their owner they are as after one forward, however often we ran the network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass
class _Kept:
    """A buffer, and what was in it when it had that version."""

    holder: dict[str, Any]
    name: str
    tensor: Tensor
    version: int
    values: Tensor

    @property
    def changed(self) -> bool:
        return self.holder.get(self.name) is not self.tensor or self.tensor._version != self.version

    def put_back(self) -> None:
        self.holder[self.name] = self.tensor
        with torch.no_grad():
            self.tensor.copy_(self.values)
        self.version = self.tensor._version


class Buffers:
    """The buffers of a network on loan.

    The owner's run is the one that stands for the forward that was asked for; it leaves its buffers. All others start
    from what that one started from. With the owner's run alone nothing is kept and nothing is looked at.
    """

    def __init__(self, modules: list[nn.Module]) -> None:
        self._modules = modules
        self._start: list[_Kept] | None = None
        self._after: list[_Kept] = []
        self._looked = self._written = False

    def before_a_run(self) -> None:
        """Have the buffers as they were at the start."""
        if self._start is None:
            self._start = self._kept()
        elif self._written:
            self._put_back(self._start)

    def after_a_run(self) -> None:
        """See once whether this network writes into its buffers at all: one run is like the other."""
        if not self._looked and self._start is not None:
            self._looked = True
            self._written = any(kept.changed for kept in self._start)

    def before_the_owners_run(self) -> None:
        if self._start is not None:
            self._put_back(self._start)

    def after_the_owners_run(self) -> None:
        if self._start is not None:
            changed = {(id(kept.holder), kept.name) for kept in self._start if kept.changed}
            self._after = [kept for kept in self._kept() if (id(kept.holder), kept.name) in changed]
            self._written = self._written or bool(changed)

    def finish(self) -> None:
        """Have the buffers as after the owner's run, or as at the start where there was none."""
        if self._start is not None:
            left = {(id(kept.holder), kept.name) for kept in self._after}
            self._put_back([kept for kept in self._start if (id(kept.holder), kept.name) not in left])
            self._put_back(self._after)
        self._start, self._after = None, []

    def _kept(self) -> list[_Kept]:
        return [
            _Kept(module._buffers, name, tensor, tensor._version, tensor.detach().clone())
            for module in self._modules
            for name, tensor in module._buffers.items()
            if tensor is not None and not tensor.is_inference() and not tensor.is_meta
        ]

    @staticmethod
    def _put_back(wanted: list[_Kept]) -> None:
        for kept in wanted:
            if kept.changed:
                kept.put_back()
