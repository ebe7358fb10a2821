"""Ctrl-C that waits while something is being entered or left, so that nothing is left half changed.

Python may raise `KeyboardInterrupt` in the first instruction of an `__exit__`, before any `try` of it: a `with` alone
cannot keep a promise against that. While a network is on loan to the main thread (only there interrupts are raised),
SIGINT is handled here: inside an `__enter__` or `__exit__`, ours, torch's or contextlib's, an interrupt is noted and
raised when ours is done; anywhere else it is raised at once, by the handler that was there before.
"""

from __future__ import annotations

# What `signal` wraps in enumerations, which takes longer than to borrow a network.
import _signal  # type: ignore[import-not-found]
import signal
import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, TypeVar

_previous: Callable[[int, FrameType | None], Any] = signal.default_int_handler
_holders = 0
_arrived = False
Waiting = TypeVar("Waiting", bound=Callable[..., None])
_may_be_interrupted: set[CodeType] = set()


def may_be_interrupted(function: Waiting) -> Waiting:
    """Mark what may wait for long inside an `__enter__`, and where an interrupt does no harm."""
    _may_be_interrupted.add(function.__code__)
    return function


def hold() -> bool:
    """Let interrupts wait inside every `__enter__` and `__exit__` from now on; tell whether `release` must follow."""
    global _previous, _holders  # there is one handler of interrupts in a process
    if threading.current_thread() is not threading.main_thread():
        return False
    if _holders == 0:
        handler = _signal.getsignal(signal.SIGINT)
        # Where interrupts are ignored, end the process or are handled outside of Python, there is nothing to raise.
        if callable(handler) and handler is not _handle:
            _previous = handler
            _signal.signal(signal.SIGINT, _handle)
    _holders += 1
    return True


def release() -> None:
    """End one `hold`, and raise what has arrived meanwhile."""
    global _holders
    _holders -= 1
    if _holders == 0 and _signal.getsignal(signal.SIGINT) is _handle:
        _signal.signal(signal.SIGINT, _previous)
    raise_what_arrived()


def raise_what_arrived() -> None:
    """Raise an interrupt that waits; for where everything is in order, or about to wait for long."""
    global _arrived
    if _arrived and threading.current_thread() is threading.main_thread():
        _arrived = False
        _previous(signal.SIGINT, sys._getframe())


def forget() -> None:
    """Handle interrupts as if nothing were held: for a process that was forked while another thread held something."""
    global _holders, _arrived
    _holders, _arrived = 0, False
    if _signal.getsignal(signal.SIGINT) is _handle:
        _signal.signal(signal.SIGINT, _previous)


def _handle(number: int, frame: FrameType | None) -> None:
    global _arrived
    if _must_wait(frame):
        _arrived = True
    else:
        _previous(number, frame)


def _must_wait(frame: FrameType | None) -> bool:
    """Whether something is being entered or left, and somebody will ask for the interrupt afterwards."""
    asked_for = _holders > 0
    leaving = False
    while frame is not None:
        code = frame.f_code
        if not leaving and code in _may_be_interrupted:
            return False
        leaving = leaving or code.co_name in ("__enter__", "__exit__", "__del__")
        asked_for = asked_for or code in (hold.__code__, release.__code__)
        frame = frame.f_back
    return leaving and asked_for
