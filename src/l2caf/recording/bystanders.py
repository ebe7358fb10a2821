"""What a thread gets that calls a network while another thread has it on loan.

Replaced forwards act for the thread that holds the network; any other runs the module's own. That is right as long as
nothing else of the network is changed. A module that had to be put into evaluation mode, or whose compiled call or
backward hooks were set aside, cannot be both at once: whoever calls it waits until the network is back. And who is in
the middle of a call when such a network is borrowed is waited for.

A network that runs parts of itself in threads of its own would wait for itself: give it in evaluation mode.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from threading import get_ident
from types import FrameType
from typing import Any

from torch import nn

from .interrupts import may_be_interrupted, raise_what_arrived

Forward = Callable[..., Any]

_PAUSE = 0.001  # seconds between two looks at threads that are in the middle of a call: a forward takes several


def in_this_thread(forward: Forward, own: Forward) -> Forward:
    """Return a forward that is this one for the present thread, and the module's own for all others."""
    thread = get_ident()

    def chosen(*args: Any, **kwargs: Any) -> Any:
        return forward(*args, **kwargs) if get_ident() == thread else own(*args, **kwargs)

    return chosen


@may_be_interrupted
def wait_for(lock: threading.Lock) -> None:
    """Wait until a lock is free, and leave it so."""
    raise_what_arrived()
    with lock:
        pass


class Bystanders:
    """The other threads, while the present one holds some modules."""

    def __init__(self, modules: list[nn.Module]) -> None:
        self.thread = get_ident()
        self.back = threading.Lock()  # free once the network is back
        self.back.acquire()
        self._modules = modules
        self._inside: set[int] = set()  # the threads that were in the middle of a call

    def call_of(self, module: nn.Module, own: Forward) -> Forward:
        """Return what stands before every call of a module that is not as its owner left it."""

        def call(*args: Any, **kwargs: Any) -> Any:
            me = get_ident()
            if me == self.thread:
                return module._call_impl(*args, **kwargs)
            if me in self._inside:
                if self._is_inside(sys._getframe()):
                    return own(*args, **kwargs)  # nothing was changed yet, and it is waited for
                self._inside.discard(me)
            wait_for(self.back)
            return module(*args, **kwargs)

        call._torchdynamo_disable = True  # type: ignore[attr-defined]  # it must ask anew at every call
        return call

    @may_be_interrupted
    def let_out(self) -> None:
        """Wait until no other thread is in the middle of a call that began before."""
        self._inside |= {thread for thread, frame in _other_threads() if self._is_inside(frame)}
        while self._inside:
            raise_what_arrived()
            time.sleep(_PAUSE)
            self._inside &= {thread for thread, frame in _other_threads() if self._is_inside(frame)}

    def _is_inside(self, frame: FrameType | None) -> bool:
        """Whether a thread with this innermost frame is in the middle of a call of one of the modules."""
        while frame is not None:
            if frame.f_code is _WAIT and frame.f_locals.get("lock") is self.back:
                return False  # it waits for us, so we need not wait for it
            if frame.f_code is _CALL and any(frame.f_locals.get("self") is module for module in self._modules):
                return True
            frame = frame.f_back
        return False


def _other_threads() -> list[tuple[int, FrameType]]:
    me = get_ident()
    return [(thread, frame) for thread, frame in sys._current_frames().items() if thread != me]


_CALL, _WAIT = nn.Module._call_impl.__code__, wait_for.__code__
