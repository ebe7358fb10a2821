"""What is looked for in a run, and put in place of what the network computes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from .arranged import Arranged, has_hooks
from .borrow import Call, Forward
from .places import EveryCall, Given, given, given_instead

Observer = Callable[[Call, Any], None]
AtCut = Callable[[Any, int], Any]


class Reached(BaseException):
    """Ends a run at the module whose output was asked for; no `except Exception` of a network catches it."""

    def __init__(self, value: Any) -> None:
        self.value = value


@dataclass(frozen=True)
class Watch:
    """What is looked for in a run, and put in place of what the network computes."""

    until: Call | None = None
    observe: Observer | None = None
    instead: tuple[tuple[Call, Any], ...] = ()
    at: Call | None = None
    at_cut: AtCut | None = None

    @property
    def is_idle(self) -> bool:
        return self.until is None and self.observe is None and not self.instead

    @property
    def modules(self) -> list[nn.Module]:
        """The modules that must be watched."""
        return [call.module for call in (self.until, *(call for call, _ in self.instead)) if call is not None]

    def over(
        self,
        modules: Iterable[nn.Module],
        forwards: Mapping[nn.Module, Forward],
        hooks: Mapping[nn.Module, Arranged],
    ) -> tuple[dict[nn.Module, Forward], dict[nn.Module, Arranged]]:
        """Return forwards that are watched, and the hooks to arrange with them."""
        watched, arranged = dict(forwards), dict(hooks)
        for module in modules:
            one = Watched(self, module, forwards.get(module, module.forward))
            watched[module] = one
            if has_hooks(module):
                arranged[module] = replace(hooks.get(module, Arranged()), last=one.ends)
        return watched, arranged

    def passing(self, call: Call, value: Any) -> Any:
        """Let a value of the run pass by: observed, replaced, or the last that is wanted."""
        if self.at_cut is not None and self.at is not None and not isinstance(call, Given):
            if call == self.at:
                value = self.at_cut(value, 0)
            elif isinstance(self.at, EveryCall) and call.module is self.at.module:
                value = self.at_cut(value, call.index)
        for where, other in self.instead:
            if call == where:
                value = other
        if self.observe is not None:
            self.observe(call, value)
        if call == self.until:
            raise Reached(value)
        return value


class Watched:
    """A module's forward that tells of what it is given and, after the owner's hooks, of what it returns."""

    def __init__(self, watch: Watch, module: nn.Module, forward: Forward) -> None:
        self.watch = watch
        self.module = module
        self.forward = forward
        self.hooked = has_hooks(module)
        self.calls = 0
        self.running: list[int] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        index = self.calls
        self.calls += 1
        self.running.append(index)
        args, kwargs = self._begins(index, args, kwargs)
        output = self.forward(*args, **kwargs)
        return output if self.hooked else self.ends(output)

    def ends(self, output: Any) -> Any:
        return self.watch.passing(Call(self.module, self.running.pop()), output)

    def _begins(self, index: int, args: Any, kwargs: Any) -> tuple[Any, Any]:
        one = given(args, kwargs)
        if one is None:
            return args, kwargs
        other = self.watch.passing(Given(self.module, index), one)
        return (args, kwargs) if other is one else given_instead(args, kwargs, other)
