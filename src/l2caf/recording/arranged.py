"""What becomes of the owner's forward hooks in a recording and its re-runs.

What a hook makes of an output is what the rest of the network receives, so it is what is recorded and filtered; a call
that is answered from a tape passes its hooks by, which have seen the value once and must not see a stand-in.

Leans on torch's `_forward_hooks` and `_forward_pre_hooks`, dicts of a module from a number to a function, of which the
last runs last; `tests/recording/test_verified.py` catches it when that changes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from threading import get_ident
from typing import Any

from torch import nn

from .changes import Changes


def never() -> bool:
    return False


@dataclass(frozen=True)
class Arranged:
    """What becomes of one module's hooks: when they are passed by, and what sees the output after them all."""

    before_passed: Callable[[], bool] = never
    after_passed: Callable[[], bool] = never
    last: Callable[[Any], Any] | None = None

    def arrange(self, module: nn.Module, changes: Changes) -> None:
        """Change the module's hooks for this thread; in others they are what they were."""
        thread = get_ident()
        pre, post = module._forward_pre_hooks, module._forward_hooks
        earlier = OrderedDict((number, _unless(self.before_passed, hook, thread)) for number, hook in pre.items())
        later = OrderedDict((number, _unless(self.after_passed, hook, thread)) for number, hook in post.items())
        if self.last is not None:
            later[_OURS] = _told(self.last, thread)
        changes.set(module.__dict__, "_forward_pre_hooks", earlier)
        changes.set(module.__dict__, "_forward_hooks", later)


_OURS = -1  # torch counts from 0


def has_hooks(module: nn.Module) -> bool:
    """Tell whether somebody hooked into what the module is given or returns."""
    return bool(module._forward_hooks or module._forward_pre_hooks)


def _unless(passed: Callable[[], bool], hook: Callable[..., Any], thread: int) -> Callable[..., Any]:
    def unless_passed(*args: Any, **kwargs: Any) -> Any:
        return None if get_ident() == thread and passed() else hook(*args, **kwargs)

    return unless_passed


def _told(function: Callable[[Any], Any], thread: int) -> Callable[..., Any]:
    return lambda module, args, output: function(output) if get_ident() == thread else None
