"""What a tape answers: known values in place of calls, before the cut, at it, and after it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from .arranged import Arranged
from .borrow import Forward
from .places import given_instead
from .storage import Noted


class After:
    """The calls that begin after the cut, in order, and what those of them that do not depend on it returned.

    What is inside such a call is not called again, so it is not listed.
    """

    def __init__(self) -> None:
        self._calls: dict[nn.Module, list[Noted | None]] = defaultdict(list)  # None: computed
        self._waiting: list[tuple[list[Noted | None], int]] = []

    @property
    def answered(self) -> list[Noted]:
        return [noted for calls in self._calls.values() for noted in calls if noted is not None]

    def changed(self, of_noted: Callable[[Noted], Noted]) -> After:
        """The same calls with a function applied to each of those that are answered, in their order."""
        other = After()
        for module, calls in self._calls.items():
            other._calls[module] = [None if noted is None else of_noted(noted) for noted in calls]
        return other

    def by_module(self) -> list[tuple[nn.Module, list[Noted | None]]]:
        """The calls of modules of which at least one is answered."""
        return [(module, calls) for module, calls in self._calls.items() if any(one is not None for one in calls)]

    def computes(self, module: nn.Module, place: int) -> bool:
        calls = self._calls.get(module, [])
        return place >= len(calls) or calls[place] is None

    def begins_inside(self, running: Sequence[nn.Module]) -> None:
        """Calls that began before the cut and go on after it are computed."""
        for module in running:
            self._calls[module].append(None)

    def begins(self, module: nn.Module) -> int:
        """List a call, and return its place among those of its module."""
        self._calls[module].append(None)
        return len(self._calls[module]) - 1

    def ends(self, module: nn.Module, place: int, noted: Noted) -> None:
        """Take what a call returned that does not depend on the cut."""
        self._calls[module][place] = noted
        self._waiting.append((self._calls[module], place))

    def let_go(self) -> None:
        """Let go of every value that nobody can read any more."""
        for calls, place in self._waiting:
            noted = calls[place]
            assert noted is not None
            noted.is_read()

    def settle(self, *, lean: bool) -> None:
        """Make what was taken since the last call of the cut ready to be answered."""
        for calls, place in self._waiting:
            noted = calls[place]
            assert noted is not None
            calls[place] = noted.settled(lean=lean)
        self._waiting = []


COMPUTED = object()  # in place of an answer


class Answers:
    """A module's forward that answers some of its first calls with known values; their hooks are passed by."""

    def __init__(self, forward: Forward, values: Sequence[Any], anew: Callable[[Any], Any]) -> None:
        self.forward = forward
        self.values = values
        self.anew = anew
        self.given = 0
        self.answered = False  # whether the call that ran last was answered
        self.hooks = Arranged(self.answers_next, lambda: self.answered)

    def answers_next(self) -> bool:
        if self.given >= len(self.values):
            return False
        return self.values[self.given] is not COMPUTED and not isinstance(self.values[self.given], Fed)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        answered = self.answers_next()
        value = self.values[self.given] if self.given < len(self.values) else COMPUTED
        self.given += 1
        if not answered:
            if isinstance(value, Fed):
                args, kwargs = given_instead(args, kwargs, value.value)
            output = self.forward(*args, **kwargs)
            self.answered = False
            return output
        self.answered = True
        if isinstance(value, Exactly):
            return value.value
        return self.anew(value)


@dataclass(frozen=True)
class Exactly:
    value: Any


@dataclass(frozen=True)
class Fed:
    """A call that is computed, but given this."""

    value: Any
