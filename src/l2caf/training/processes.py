"""Devices, precision and processes, by Lightning Fabric: alone, or as one of several that torchrun started."""

from __future__ import annotations

import os
from typing import Any

from torch import Tensor

from ..errors import ExtraError, InputError


def start(device: str = "auto", precision: str | None = None) -> Any:
    """A Fabric on this process's device; under torchrun the processes find one another (gloo on processors)."""
    try:
        from lightning_fabric import Fabric
    except ImportError as error:
        raise ExtraError("Training needs lightning-fabric: pip install 'l2caf[train]'.") from error
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


def gather(fabric: Any, embeddings: Tensor) -> Tensor:
    """The embeddings of all processes, in order of rank, such that gradients find their way back.

    Every process then has the loss of the whole batch. On the way back each receives the sum of what all of them ask
    of its part, and the mean over processes that follows makes it what one process alone would have got.
    """
    if fabric.world_size == 1:
        return embeddings
    everyone: Tensor = fabric.all_gather(embeddings, sync_grads=True)
    return everyone.flatten(0, 1)
