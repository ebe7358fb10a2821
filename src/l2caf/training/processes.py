"""Devices, precision and processes, by Lightning Fabric: alone, or as one of several that torchrun started."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..errors import ExtraError, InputError

T = TypeVar("T")


def start(device: str = "auto", precision: str | None = None) -> Any:
    """A Fabric on this process's device; under torchrun the processes find one another (gloo on processors)."""
    try:
        from lightning_fabric import Fabric
    except ImportError as error:
        raise ExtraError("Training needs lightning-fabric: pip install lightning-fabric.") from error
    kind, _, number = device.partition(":")
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    here = int(os.environ.get("LOCAL_WORLD_SIZE", processes))
    try:
        fabric = Fabric(
            accelerator=kind,
            devices=here if processes > 1 else [int(number)] if number and kind != "cpu" else 1,
            num_nodes=processes // here,
            strategy="ddp" if processes > 1 else "auto",
            precision=precision,  # type: ignore[arg-type]
        )
        fabric.launch()
    except (ValueError, RuntimeError, TypeError) as error:
        line = (str(error).strip().splitlines() or [""])[0]
        raise InputError(
            f"Training cannot run with device {device!r}, precision {precision!r} here ({line})."
        ) from error
    return fabric


def gather(fabric: Any, rows: Tensor) -> Tensor:
    """The rows of all processes, in order of rank, such that gradients find their way back.

    Every process then has the loss of the whole batch. On the way back each receives the sum of what all of them ask
    of its part, and the mean over processes that follows makes it what one process alone would have got.
    """
    if fabric.world_size == 1:
        return rows
    everyone: Tensor = fabric.all_gather(rows, sync_grads=True)
    return everyone.flatten(0, 1)


def everyone(fabric: Any, mine: T) -> list[T]:
    """What each process has, in order of rank; all of them must ask."""
    if fabric.world_size == 1:
        return [mine]
    found: list[Any] = [None] * fabric.world_size
    torch.distributed.all_gather_object(found, mine)
    return found


@contextmanager
def interrupts_deferred(note: Callable[[], None]) -> Iterator[None]:
    """Only note the first Ctrl-C, so that work can be left where nothing is half done; a second one acts at once."""

    def first(_number: int, _frame: Any) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        note()

    here = threading.current_thread() is threading.main_thread()
    if not here or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield  # signals come to the main thread alone, and a handler of the caller's own stays
        return
    signal.signal(signal.SIGINT, first)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
