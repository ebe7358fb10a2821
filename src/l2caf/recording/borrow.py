"""A network on loan: whatever is changed on it for a run is put back on the way out.

What leans on torch's private names stands in this file (`_compiled_call_impl` and `_orig_mod` of compiled networks,
`_modules`, the two entrances of checkpointing) and in `fingerprint.py`.
The contract tests over every method (`tests/contracts/test_left_as_found.py`) catch it when one of them changes.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils.checkpoint as checkpointing
from torch import nn

from ..errors import NetworkError

Forward = Callable[..., Any]

_ABSENT = object()


@dataclass(frozen=True)
class Call:
    """The index-th call of a module in one run."""

    module: nn.Module
    index: int


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


class Loan:
    """A network that is held, with its modules, since to walk through them takes longer than many a head."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        self.modules = modules_of(network)
        self.thread = threading.get_ident()
        self.depth = 0
        self.knowledge: Any = None  # what is known about the network as it is now; looked up once a loan

    def shares_with(self, other: Loan) -> bool:
        """Whether two loans hold a module in common."""
        return not set(self.modules).isdisjoint(other.modules)


def modules_of(network: nn.Module) -> list[nn.Module]:
    """List a network and all modules in it, in torch's own order, each once.

    >>> len(modules_of(nn.Sequential(nn.ReLU(), nn.Sequential(nn.ReLU()))))
    4
    """
    found: dict[nn.Module, None] = {}
    waiting: list[nn.Module | None] = [network]
    while waiting:
        module = waiting.pop()
        if module is not None and module not in found:
            found[module] = None
            if module._modules:
                waiting += reversed(module._modules.values())
    return list(found)


# Forward methods are swapped on the modules themselves, so no two threads may hold the same module; networks that
# share none are explained side by side.
_changed = threading.Condition(threading.RLock())
_loans: dict[nn.Module, Loan] = {}


@contextmanager
def borrowed(network: nn.Module) -> Iterator[Loan]:
    """Hold the network in evaluation mode, uncompiled and outside inference mode, and give it back as it was.

    Nothing is checkpointed meanwhile. A network that this thread holds already stays as it is, so a long piece of work
    borrows it once for all its runs. Another thread waits until every module of the network is free.
    """
    loan = _taken(network)
    try:
        if loan.depth > 1:
            yield loan
        else:
            with torch.inference_mode(False), _settings, _as_evaluated(loan.modules):
                yield loan
    finally:
        _returned(loan)


def _taken(network: nn.Module) -> Loan:
    me = threading.get_ident()
    with _changed:
        loan = _loans.get(network)
        while loan is None or loan.thread != me:
            loan = Loan(network)
            if any(other.thread != me and other.shares_with(loan) for other in _loans.values()):
                _changed.wait()
                loan = _loans.get(network)
            else:
                _loans[network] = loan
        loan.depth += 1
        return loan


def _returned(loan: Loan) -> None:
    with _changed:
        loan.depth -= 1
        if loan.depth == 0:
            del _loans[loan.network]
            _changed.notify_all()


@contextmanager
def _as_evaluated(modules: list[nn.Module]) -> Iterator[None]:
    training = [module for module in modules if module.training]
    compiled = {module: module._compiled_call_impl for module in modules if module._compiled_call_impl is not None}
    try:
        for module in training:
            module.training = False
        for module in compiled:
            module._compiled_call_impl = None
        yield
    finally:
        for module in training:
            module.training = True
        for module, implementation in compiled.items():
            module._compiled_call_impl = implementation


class _Settings:
    """What holds for the whole process while any network is on loan: the first loan sets it, the last puts it back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loans = 0
        self._changes = ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            if self._loans == 0:
                with ExitStack() as changes:
                    changes.enter_context(_no_fast_attention())
                    changes.enter_context(_nothing_checkpointed())
                    changes.enter_context(_nothing_compiled())
                    self._changes = changes.pop_all()
            self._loans += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._loans -= 1
            if self._loans == 0:
                self._changes.close()


_settings = _Settings()


@contextmanager
def _no_fast_attention() -> Iterator[None]:
    """The fused kernel, used only where no gradient is wanted, passes the inner modules by."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


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


def watching(
    modules: Iterable[nn.Module],
    *,
    called: Callable[[Call], None] | None = None,
    returned: Callable[[Call, Any], None] | None = None,
    forwards: Mapping[nn.Module, Forward] | None = None,
) -> dict[nn.Module, Forward]:
    """Return forwards that tell of every call, when it begins and with what it returned, and compute as ever.

    `forwards` are taken in place of the modules' own, where given. Put them in place with `forwards_replaced`.
    """
    own = forwards or {}

    def watched_forward(module: nn.Module, forward: Forward) -> Forward:
        calls = 0

        def watched(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            call = Call(module, calls)
            calls += 1
            if called is not None:
                called(call)
            output = forward(*args, **kwargs)
            if returned is not None:
                returned(call, output)
            return output

        return watched

    return {module: watched_forward(module, own.get(module, module.forward)) for module in modules}
