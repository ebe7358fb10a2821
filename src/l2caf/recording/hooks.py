"""The owner's forward hooks during a recording and its re-runs.

What a hook makes of an output is what the rest of the network receives, so it is what is recorded and filtered; a call
that is answered from a tape passes its hooks by, which have seen the value once and must not see a stand-in.

Leans on torch's `_forward_hooks` and `_forward_pre_hooks`, dicts of a module from a number to a function, of which the
last runs last; `tests/recording/test_verified.py` catches it when that changes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import nn


def never() -> bool:
    return False


@dataclass(frozen=True)
class Arranged:
    """What becomes of one module's hooks: when they are passed by, and what sees the output after them all."""

    before_passed: Callable[[], bool] = never
    after_passed: Callable[[], bool] = never
    last: Callable[[Any], Any] | None = None


def has_hooks(module: nn.Module) -> bool:
    """Tell whether somebody hooked into what the module is given or returns."""
    return bool(module._forward_hooks or module._forward_pre_hooks)


@contextmanager
def hooks_arranged(arrangements: Mapping[nn.Module, Arranged]) -> Iterator[None]:
    """Let hooks be passed by for a while, and a function see (and replace) what a module returns, after them all."""
    before: list[tuple[nn.Module, Any, Any]] = []
    try:
        for module, arranged in arrangements.items():
            pre, post = module._forward_pre_hooks, module._forward_hooks
            earlier = OrderedDict((number, _unless(arranged.before_passed, hook)) for number, hook in pre.items())
            later = OrderedDict((number, _unless(arranged.after_passed, hook)) for number, hook in post.items())
            if arranged.last is not None:
                later[_OURS] = _told(arranged.last)
            before.append((module, pre, post))
            module.__dict__["_forward_pre_hooks"] = earlier
            module.__dict__["_forward_hooks"] = later
        yield
    finally:
        for module, pre, post in reversed(before):
            module.__dict__["_forward_pre_hooks"] = pre
            module.__dict__["_forward_hooks"] = post


_OURS = -1  # torch counts from 0


def _unless(passed: Callable[[], bool], hook: Callable[..., Any]) -> Callable[..., Any]:
    def unless_passed(*args: Any, **kwargs: Any) -> Any:
        return None if passed() else hook(*args, **kwargs)

    return unless_passed


def _told(function: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda module, args, output: function(output)
