"""How long a search may take: `with time_limit(seconds)`, read by whatever evaluates filters inside of it.

    with time_limit(2.0):
        heatmap = method(network, images)      # the best filters that were found in two seconds

It is kept per thread and task (a context variable), so that a service may have another limit for each request.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from contextvars import ContextVar

from .errors import InputError

_ends: ContextVar[float] = ContextVar("ends", default=math.inf)


class OutOfTime(Exception):  # noqa: N818 - nothing is at fault, and no user sees it
    """The time is over; a solver's entry makes the best filter so far of it."""


@contextlib.contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Let searches in this block end after so many seconds; None for no limit. The nearer of two limits counts.

    >>> with time_limit(60):
    ...     is_limited(), is_over()
    (True, False)
    """
    if seconds is None:
        yield
        return
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds > 0:
        raise InputError(f"The timeout is {seconds!r}: give seconds, a number above 0, such as 2.5.", field="timeout")
    token = _ends.set(min(_ends.get(), time.monotonic() + seconds))
    try:
        yield
    finally:
        _ends.reset(token)


@contextlib.contextmanager
def no_limit() -> Iterator[None]:
    """For the little that is to be done when the time is over."""
    token = _ends.set(math.inf)
    try:
        yield
    finally:
        _ends.reset(token)


def is_limited() -> bool:
    """Whether there is a limit."""
    return _ends.get() < math.inf


def is_over() -> bool:
    """Whether the time is over."""
    return is_limited() and time.monotonic() >= _ends.get()
