"""A network on loan: whatever is changed on it for a run is put back on the way out.

All that leans on torch's private names stands in this file: `_compiled_call_impl` and `_orig_mod` (compiled networks),
`_modules`, `_forward_hooks` and the like (what a network is made of), and the two entrances of checkpointing.
The contract tests over every method (`tests/contracts/test_left_as_found.py`) catch it when one of them changes.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, MethodType, NoneType
from typing import Any
from weakref import ref

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

    def fingerprint(self) -> Hashable:
        """What of the network decides how it computes, other than the values of its tensors.

        Which modules there are, under which names, of which class, with which hooks and settings (a flag that switches
        a rectifier on is such a setting), and whether somebody replaced a method. Objects are told apart by weak
        references: the number of one that is gone may be that of another, and nothing is kept alive.
        """
        found: list[Any] = [*map(ref, self.modules)]
        for hooks in (nn.modules.module._global_forward_hooks, nn.modules.module._global_forward_pre_hooks):
            found += hooks
        # Written as one loop, and noting only what is unusual: it runs on every call, over hundreds of modules.
        for module in self.modules:
            parts, kind = module.__dict__, type(module)
            if parts["_modules"]:
                found += parts["_modules"]
            if parts["_forward_hooks"]:
                found += ("after", ref(module), *parts["_forward_hooks"])
            if parts["_forward_pre_hooks"]:
                found += ("before", ref(module), *parts["_forward_pre_hooks"])
            if kind in _SIMPLE:
                if "forward" in parts:
                    found.append(_described(parts["forward"]))
                continue
            # What torch keeps in every module is looked at elsewhere; evaluation mode is set for the while of a loan.
            for name in parts.keys() - _OF_EVERY_MODULE:
                value = parts[name]
                if type(value) in _PLAIN or (type(value) is tuple and _PLAIN.issuperset(map(type, value))):
                    found.append(value)
                else:
                    found.append(_described(value))
        for kind in dict.fromkeys(map(type, self.modules)):
            found.append(ref(kind.forward))
            for base in kind.__mro__:
                if base.__module__.startswith("torch.nn.modules."):
                    break
                for value in vars(base).values():
                    if type(value) is FunctionType:
                        found.append(ref(value))
                    elif type(value) in _PLAIN:
                        found.append(value)
                    elif type(value) in _HOLDERS and value:
                        found.append(_described(value))
        return tuple(found)


_PLAIN = frozenset({bool, int, float, str, NoneType, torch.dtype, torch.device})
_OF_EVERY_MODULE = frozenset(nn.Module().__dict__)
# Torch's own modules have no settings that a value would not show, and they are the most; but for the activations: a
# slope below zero, or whether one writes into its input.
_SIMPLE = frozenset(
    kind
    for kind in vars(nn).values()
    if isinstance(kind, type)
    and kind.__module__.startswith("torch.nn.modules.")
    and kind.__module__ != "torch.nn.modules.activation"
)
_HOLDERS = (dict, list, tuple, set, frozenset)
_CODE = (FunctionType, MethodType, BuiltinFunctionType, property, classmethod, staticmethod)
_MOST = 64  # of what a setting holds: a list of class names is none that decides
_DEEPEST = 3  # how far into a network's settings one looks: a list in a configuration in an attribute


def _described(value: Any, depth: int = 0) -> Any:
    """A setting, as something that is equal as long as the setting is the same; objects by reference and by content."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, torch.Tensor):
        # Many a network keeps the maps of its last run, which are no setting: each run would look like another network.
        return (ref(value), value._version) if value.ndim < 3 else value.ndim
    inside: Any = ()
    if depth < _DEEPEST:
        if isinstance(value, _HOLDERS) and len(value) > _MOST:
            inside = len(value)
        elif isinstance(value, _HOLDERS) and _PLAIN.issuperset(map(type, value)) and not isinstance(value, dict):
            inside = tuple(value)
        elif isinstance(value, dict):
            keys = list(value) if _PLAIN.issuperset(map(type, value)) else [_described(key, depth + 1) for key in value]
            inside = keys, _described(list(value.values()), depth)
        elif isinstance(value, _HOLDERS):
            inside = [one if type(one) in _PLAIN else _described(one, depth + 1) for one in value]
        elif not isinstance(value, (type, nn.Module, *_CODE)) and hasattr(value, "__dict__"):
            inside = _described(vars(value), depth + 1)
    try:
        return ref(value), inside
    except TypeError:  # not everything can be referred to weakly
        return type(value), inside


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
