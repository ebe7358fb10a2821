"""The hooks of the network's owner: they see the one forward that was asked for, and none of our other runs.

A hook may also be a part of the network: it gives another output, writes into a tensor, sets an attribute of its
module, or fills something that the network reads (timm collects features that way). Such hooks take part in every run;
which ones they are is seen in the owner's run. Backward hooks wait for gradients of the owner's; ours are none, and the
loan sets them aside. Global hooks belong to no network and see every run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from inspect import getclosurevars
from threading import get_ident
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from .changes import Changes

_DEEPEST = 4  # how far into what a module is given one looks: the tensor in a list in a dict among the arguments


@dataclass
class _Known:
    """What is known of the hooks of a network, by their numbers: torch gives every hook of a process another one."""

    onlookers: set[int] = field(default_factory=set)
    shares: dict[int, bool] = field(default_factory=dict)  # whether it and the network can reach the same thing


_known: WeakKeyDictionary[nn.Module, _Known] = WeakKeyDictionary()


class Hooks:
    """The hooks of a network on loan, each called through `_Hook` for the while."""

    def __init__(self, network: nn.Module, modules: list[nn.Module], changes: Changes) -> None:
        self.thread = get_ident()
        self.ours = False  # whether a run is going on that is none of the owner's
        self.noting = False  # whether the owner's run is going on
        self.found: list[_Hook] = []
        self.onlookers: set[int] = set()
        self.modules = modules
        self._of_network: set[int] = set()
        hooked = [module for module in modules if module._forward_hooks or module._forward_pre_hooks]
        if not hooked:
            return
        known = _known.setdefault(network, _Known())
        self.onlookers, self._shares = known.onlookers, known.shares
        for module in hooked:
            for hooks in (module._forward_hooks, module._forward_pre_hooks):
                for number, function in list(hooks.items()):
                    hook = _Hook(self, number, function, module)
                    self.found.append(hook)
                    changes.set(hooks, number, hook)

    @property
    def unknown(self) -> bool:
        """Whether there are hooks that were never seen in a run of the owner's."""
        return any(not hook.seen and hook.number not in self.onlookers for hook in self.found)

    def share(self, number: int, function: Callable[..., Any]) -> bool:
        """Whether a hook may leave something that the network reads."""
        if number not in self._shares:
            self._of_network = self._of_network or _reached_by_network(self.modules)
            self._shares[number] = not self._of_network.isdisjoint(_reached(function))
        return self._shares[number]

    def begin(self, *, as_owner: bool) -> None:
        """A run begins: one that stands for the owner's, or one of ours."""
        self.noting, self.ours = as_owner, not as_owner
        if as_owner:
            for hook in self.found:
                hook.seen = hook.takes_part = False

    def end(self) -> None:
        """A run has ended; after the owner's, it is known who only looked on."""
        if self.noting:
            self.onlookers.update(hook.number for hook in self.found if hook.seen and not hook.takes_part)
            self.onlookers.difference_update(hook.number for hook in self.found if hook.takes_part)
        self.noting = self.ours = False


class _Hook:
    """Stands in for one hook of the owner's."""

    def __init__(self, hooks: Hooks, number: int, function: Callable[..., Any], module: nn.Module) -> None:
        self.hooks, self.number, self.function, self.module = hooks, number, function, module
        self.seen = self.takes_part = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        hooks = self.hooks
        if get_ident() != hooks.thread:
            return self.function(*args, **kwargs)
        if hooks.ours and self.number in hooks.onlookers:
            return None
        if not hooks.noting or self.takes_part:
            return self.function(*args, **kwargs)
        before = _state(self.module, args)
        found = self.function(*args, **kwargs)
        changed = found is not None or _state(self.module, args) != before
        self.takes_part = changed or hooks.share(self.number, self.function)
        self.seen = True
        return found


def _state(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a hook can change under the eyes of the network: attributes of its module, and what it is given."""
    kept = {name: id(value) for name, value in module.__dict__.items()}
    inner = [id(one) for part in (module._parameters, module._buffers, module._modules) for one in part.values()]
    return kept, inner, list(_versions(args[1:]))


def _versions(value: Any, depth: int = 0) -> Iterator[Any]:
    if isinstance(value, Tensor):
        yield id(value), 0 if value.is_inference() else value._version
    elif depth < _DEEPEST:
        inside = value if isinstance(value, (list, tuple, dict)) else getattr(value, "__dict__", ())
        for one in inside.values() if isinstance(inside, dict) else inside:
            yield id(one)
            yield from _versions(one, depth + 1)


def _reached_by_network(modules: Iterable[nn.Module]) -> set[int]:
    """What the network can read: its attributes, and what its own methods refer to."""
    found: set[int] = set()
    kinds = dict.fromkeys(map(type, modules))
    for module in modules:
        found.add(id(module))
        for value in module.__dict__.values():
            found |= _reached(value)
    for kind in kinds:
        for base in kind.__mro__:
            if not base.__module__.startswith("torch."):
                for value in vars(base).values():
                    found |= _reached(value)
    return found


def _reached(function: Any) -> set[int]:
    """What a function can read or write without being given it: whom it is bound to, its closure, named globals."""
    waiting, seen, found = [function], set[int](), set[int]()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, partial):
            waiting += [one.func, *one.args, *one.keywords.values()]
        elif isinstance(one, MethodType):
            waiting += [one.__self__, one.__func__]
        elif isinstance(one, FunctionType):
            waiting += [one.__globals__[name] for name in one.__code__.co_names if name in one.__globals__]
            waiting += getclosurevars(one).nonlocals.values() if one.__closure__ else ()
            waiting += one.__defaults__ or ()
        elif isinstance(one, (dict, list, set)) or (hasattr(one, "__dict__") and not isinstance(one, _NO_STATE)):
            found.add(id(one))
    return found


# A class, a module or a tensor is often named by a hook and by the network, and seldom a place to leave a value in.
_NO_STATE = (type, ModuleType, BuiltinFunctionType, Tensor)
