"""How long work tells how far it is, the same way from the library to every door.

Whoever works calls `progress(stage, done, total, numbers)` now and then; whoever asked for the work draws it, counts
it, or raises `Cancelled` to stop it there. Work calls it only where it can stop with nothing lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

NONE: Mapping[str, float] = MappingProxyType({})


class Progress(Protocol):
    """Called with what is being done, how much of it, of how much (None: unknown), and numbers so far."""

    def __call__(self, stage: str, done: int, total: int | None, numbers: Mapping[str, float] = NONE) -> None: ...


def silent(stage: str, done: int, total: int | None, numbers: Mapping[str, float] = NONE) -> None:
    """Tell nobody."""


def part(progress: Progress, before: int, total: int) -> Progress:
    """The progress of one part of a longer work: what it has done is counted after `before`, of `total`.

    >>> part(lambda stage, done, total, numbers=NONE: print(stage, done, total), before=10, total=30)("reading", 3, 10)
    reading 13 30
    """

    whole = total

    def tell(stage: str, done: int, total: int | None, numbers: Mapping[str, float] = NONE) -> None:
        progress(stage, before + done, whole, numbers)

    return tell
