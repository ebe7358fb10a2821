"""The modules of a network, as they hang together: looked through on every call, hundreds of them.

The first look walks down from module to module. From then on it is known which modules there were and what hung where
(by weak references: nothing is kept alive), and a few passes in C tell whether that is still so. What these passes
cost is mostly the memory that they touch, so whatever is asked of every module is asked here, once.

It leans on torch's private names (`_modules`, `_forward_hooks` and the like, `_compiled_call_impl`);
`tests/recording/test_census.py` catches it when one of them changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, repeat
from operator import attrgetter, is_, itemgetter
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, ref

from torch import nn

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")

_own, _parts, _unusual = attrgetter("__dict__"), attrgetter("_modules"), itemgetter("training", *HOOKS)


class Look(NamedTuple):
    """What one look found: the modules, their attributes, and whether one of them is not as a run of ours needs it.

    `census` is the same object in two looks that found the same modules in the same places.
    """

    census: Census
    modules: list[nn.Module]
    own: list[dict[str, Any]]
    some_special: bool


class Census:
    """Which modules there were, of which class, and what hung where."""

    def __init__(self, modules: list[nn.Module]) -> None:
        places: dict[nn.Module | None, int] = {module: place for place, module in enumerate(modules)}
        places[None] = len(modules)
        parts = [*map(_parts, modules)]
        self._modules = [*map(ref, modules)]
        self._kinds = [*map(ref, map(type, modules))]
        self._counts = [*map(len, parts)]
        self._names = [*chain.from_iterable([one.keys() for one in parts])]
        self._children = [places[child] for child in chain.from_iterable([one.values() for one in parts])]

    def modules_now(self) -> tuple[list[nn.Module], list[dict[str, Any]]] | None:
        """The modules and their attributes, or None where they are not the same in the same places."""
        modules: list[Any] = [module() for module in self._modules]
        if any(map(is_, modules, repeat(None))):
            return None  # one is gone
        own = [*map(_own, modules)]
        parts = [*map(_parts, modules)]
        if [*map(len, parts)] != self._counts:
            return None
        held = [one for one in parts if one]
        children = map([*modules, None].__getitem__, self._children)
        same = all(map(is_, chain.from_iterable([one.values() for one in held]), children))
        if not same or [*chain.from_iterable([one.keys() for one in held])] != self._names:
            return None
        if not all(map(is_, map(type, modules), [kind() for kind in self._kinds])):
            return None
        return modules, own


_known: WeakKeyDictionary[nn.Module, Census] = WeakKeyDictionary()


def look_through(network: nn.Module) -> Look:
    """Look at a network and all modules in it."""
    census = _known.get(network)
    found = None if census is None else census.modules_now()
    if census is None or found is None:
        modules = modules_of(network)
        found = modules, [*map(_own, modules)]
        census = _known[network] = Census(modules)
    return Look(census, *found, _some_special(found[1]))


def _some_special(own: list[dict[str, Any]]) -> bool:
    """Whether a module trains, has hooks or is compiled."""
    try:
        if any(chain.from_iterable(map(_unusual, own))):
            return True
    except KeyError:  # a scripted module keeps it elsewhere
        return True
    return any(map(dict.__contains__, own, repeat("_compiled_call_impl")))


def modules_of(network: nn.Module) -> list[nn.Module]:
    """List a network and all modules in it, each once, level by level.

    >>> len(modules_of(nn.Sequential(nn.ReLU(), nn.Sequential(nn.ReLU()))))
    4
    """
    found: dict[nn.Module, None] = {network: None}
    level: Iterable[nn.Module] = [network]
    while level:
        below = dict.fromkeys(chain.from_iterable([module._modules.values() for module in level if module._modules]))
        level = [module for module in below if module not in found and module is not None]
        found.update(dict.fromkeys(level))
    return list(found)
