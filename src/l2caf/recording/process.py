"""What torch decides for the whole process, decided anew for the threads that borrow a network, and only for them.

Three things of torch are in the way of recording: checkpointing runs a part of the network a second time when its
gradient is asked for, with its own forward methods back in place; the fused kernel of attention passes the inner
modules by; compiled functions hold the modules as they were. Torch has no switch for one thread, so while any network
is on loan these names hold stand-ins that ask which thread is here: other threads, which train or serve, get what they
had. The names are torch's private ones; tests/recording/test_bystanders.py catches it when one of them changes.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from threading import get_ident
from typing import Any

import torch
import torch.utils.checkpoint as checkpointing

_borrowing: Counter[int] = Counter()  # how many networks each thread has on loan
_lock = threading.Lock()


class _StandIn:
    """Takes the place of one of torch's names, and knows what was there."""

    def __init__(self, original: Any) -> None:
        self.original = original

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)


class _FastPath(_StandIn):
    """Whether attention may take its fused kernel."""

    def __bool__(self) -> bool:
        return get_ident() not in _borrowing and bool(self.original)


class _Reentrant(_StandIn):
    """The autograd function of a re-entrant checkpoint."""

    def apply(self, function: Callable[..., Any], preserve_random_state: bool, *args: Any) -> Any:
        if get_ident() in _borrowing:
            return function(*args)
        return self.original.apply(function, preserve_random_state, *args)


class _Checkpoint(_StandIn):
    """What surrounds the run of any other checkpoint: a generator that yields once."""

    def __call__(self, *args: Any, **kwargs: Any) -> Iterator[None]:
        return _around_nothing() if get_ident() in _borrowing else self.original(*args, **kwargs)


def _around_nothing() -> Iterator[None]:
    yield


class _Stance(_StandIn):
    """What compiled functions do: run as they are written, or compiled."""

    @property
    def stance(self) -> str:
        return "force_eager" if get_ident() in _borrowing else self.original.stance


_NAMES: tuple[tuple[str, str, type[_StandIn]], ...] = (
    (torch.backends.mha.__name__, "_is_fastpath_enabled", _FastPath),
    (checkpointing.__name__, "CheckpointFunction", _Reentrant),
    (checkpointing.__name__, "_checkpoint_without_reentrant_generator", _Checkpoint),
    ("torch._dynamo.eval_frame", "_stance", _Stance),  # without the compiler loaded, nothing is compiled
)


def enter() -> None:
    """Let torch decide for this thread as recording needs it."""
    with _lock:
        _borrowing[get_ident()] += 1
        for module, name, stand_in in _NAMES:
            names = vars(sys.modules[module]) if module in sys.modules else {}
            if name in names and not isinstance(names[name], stand_in):
                names[name] = stand_in(names[name])


def leave(thread: int) -> None:
    """End one `enter` of a thread; after the last one of all, torch has its own names back."""
    with _lock:
        _borrowing[thread] -= 1
        if _borrowing[thread] <= 0:
            del _borrowing[thread]
        if not _borrowing:
            _put_back()


def only(thread: int) -> None:
    """Forget every other thread: in a forked process there are no others."""
    global _lock  # a thread that is not here any more may hold it
    _lock = threading.Lock()
    for other in [one for one in _borrowing if one != thread]:
        del _borrowing[other]
    if not _borrowing:
        _put_back()


def _put_back() -> None:
    for module, name, stand_in in _NAMES:
        names = vars(sys.modules[module]) if module in sys.modules else {}
        if isinstance(names.get(name), stand_in):
            names[name] = names[name].original
