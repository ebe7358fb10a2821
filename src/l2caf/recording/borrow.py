"""Borrowing a network: whatever is changed on it for a run is put back on the way out."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils.checkpoint as checkpointing
from torch import nn

from ..errors import NetworkError

Forward = Callable[..., Any]
_ABSENT = object()
# Forward methods are swapped on the modules themselves, so two threads must not explain at the same moment.
_one_at_a_time = threading.RLock()
_held: dict[nn.Module, list[nn.Module]] = {}  # the networks on loan, with their modules


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
def borrowed(network: nn.Module) -> Iterator[list[nn.Module]]:
    """Hold the network in evaluation mode, uncompiled and outside inference mode, and give it back as it was.

    Nothing is checkpointed meanwhile. Its modules are given for the while, since walking through them takes longer
    than many a head. A network that is held already stays as it is, so a long piece of work borrows it once for all
    its runs.
    """
    with _one_at_a_time:
        if network in _held:
            yield _held[network]
            return
        modules = list(network.modules())
        training = [module for module in modules if module.training]
        compiled = {module: module._compiled_call_impl for module in modules if module._compiled_call_impl is not None}
        fast_attention = torch.backends.mha.get_fastpath_enabled()
        with torch.inference_mode(False), _nothing_checkpointed(), _nothing_compiled():
            try:
                _held[network] = modules
                # The fused kernel, used only where no gradient is wanted, passes the inner modules by.
                torch.backends.mha.set_fastpath_enabled(False)
                for module in training:
                    module.training = False
                for module in compiled:
                    module._compiled_call_impl = None
                yield modules
            finally:
                _held.pop(network, None)
                torch.backends.mha.set_fastpath_enabled(fast_attention)
                for module in training:
                    module.training = True
                for module, implementation in compiled.items():
                    module._compiled_call_impl = implementation


def _nothing_compiled() -> AbstractContextManager[Any]:
    """Let what is compiled inside the network run as it is written; without its compiler loaded, nothing is."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()


@contextmanager
def _nothing_checkpointed() -> Iterator[None]:
    """Let what is checkpointed run once and keep its graph.

    Otherwise it would run a second time when its gradient is asked for, with its own forward methods back in place,
    and compute something else.
    """
    before = {name: getattr(checkpointing, name) for name in _CHECKPOINTS if hasattr(checkpointing, name)}
    try:
        for name in before:
            setattr(checkpointing, name, _CHECKPOINTS[name])
        yield
    finally:
        for name, original in before.items():
            setattr(checkpointing, name, original)


class _RunOnce:
    """Stands in for the autograd function of a re-entrant checkpoint."""

    @staticmethod
    def apply(function: Forward, preserve_random_state: bool, *args: Any) -> Any:
        return function(*args)


def _around_nothing(*args: Any, **kwargs: Any) -> Iterator[None]:
    """Stands in for what surrounds the run of any other checkpoint."""
    yield


_CHECKPOINTS = {"CheckpointFunction": _RunOnce, "_checkpoint_without_reentrant_generator": _around_nothing}


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


@dataclass(frozen=True)
class Call:
    """The index-th call of a module in one run."""

    module: nn.Module
    index: int
