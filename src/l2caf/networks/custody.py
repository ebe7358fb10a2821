"""Borrowing a network: whatever is changed on it for a run is put back on the way out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from ..errors import NetworkError

Forward = Callable[..., Any]

_ABSENT = object()
# Forward methods are swapped on the modules themselves, so two threads must not explain at the same moment.
_one_at_a_time = threading.RLock()


def unwrap(network: nn.Module) -> nn.Module:
    """Return the plain network inside a compiled or data-parallel one."""
    if isinstance(network, torch.jit.ScriptModule):
        raise NetworkError("A scripted network hides its modules: give the network from before torch.jit.script.")
    if not isinstance(network, nn.Module):
        raise NetworkError(f"The network is a {type(network).__name__}: give a torch.nn.Module.")
    if isinstance(network, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        return unwrap(network.module)
    compiled_from = getattr(network, "_orig_mod", None)
    return unwrap(compiled_from) if isinstance(compiled_from, nn.Module) else network


@contextmanager
def borrowed(network: nn.Module) -> Iterator[None]:
    """Hold the network in evaluation mode, uncompiled and outside inference mode, and give it back as it was."""
    modules = list(network.modules())
    modes = [module.training for module in modules]
    compiled = [module._compiled_call_impl for module in modules]
    with _one_at_a_time, torch.inference_mode(False):
        try:
            for module in modules:
                module.training = False
                module._compiled_call_impl = None
            yield
        finally:
            for module, mode, implementation in zip(modules, modes, compiled, strict=True):
                module.training = mode
                module._compiled_call_impl = implementation


@contextmanager
def forwards_replaced(replacements: Mapping[nn.Module, Forward]) -> Iterator[None]:
    """Let each module's forward be another function for a while."""
    before: list[tuple[nn.Module, Any]] = []
    try:
        for module, forward in replacements.items():
            before.append((module, module.__dict__.get("forward", _ABSENT)))
            module.__dict__["forward"] = forward
        yield
    finally:
        for module, forward in reversed(before):
            if forward is _ABSENT:
                module.__dict__.pop("forward", None)
            else:
                module.__dict__["forward"] = forward
