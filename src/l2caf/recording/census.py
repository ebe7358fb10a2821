"""The modules of a network, as they hang together: looked through on every call, hundreds of them.

The first look notes which modules there are and what hangs where; from then on one quick walk tells whether that is
still so. What it costs is mostly the memory that it touches, so whatever is asked of every module is asked here, once.
Modules are known by their ids, and weak references tell when one is gone: nothing is kept alive.

It leans on torch's private names (`_modules`, `_forward_hooks` and the like, `_compiled_call_impl`);
`tests/recording/test_census.py` catches it when one of them changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, repeat
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, ref

from torch import nn

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")

ROUNDS = 8  # times the number of modules: what is longer may go round and round, and is looked for anew each time

_own, _unusual = attrgetter("__dict__"), itemgetter("training", *HOOKS)


class Look(NamedTuple):
    """What one look found: the modules, their attributes, and whether one of them is not as a run of ours needs it.

    `census` is the same object in two looks that found the same modules, of the same classes, in the same places.
    """

    census: Census
    modules: list[nn.Module]
    own: list[dict[str, Any]]
    some_special: bool


class Census:
    """Which modules there were, of which class, and what hung where."""

    def __init__(self, modules: list[nn.Module]) -> None:
        self._most = ROUNDS * len(modules)
        self._places_are_empty = any(None in module._modules.values() for module in modules)
        self._gone: list[ref[Any]] = []
        self._told: list[ref[Any]] = []
        self._seen: list[Any] | None = None
        found = self._walk(modules[0])
        if found is not None:
            self._most = len(found[0])
            self._repeats = self._most > len(modules)
            self._seen = _seen(*found)
            self._told = [ref(one, self._gone.append) for one in (*modules, *dict.fromkeys(map(type, modules)))]

    def modules_now(self, network: nn.Module) -> list[nn.Module] | None:
        """The modules, each once, or None where they are not the same in the same places."""
        found = None if self._seen is None else self._walk(network)
        if found is None or _seen(*found) != self._seen or self._gone:
            return None
        return [*dict.fromkeys(found[0])] if self._repeats else found[0]

    def _walk(self, network: nn.Module) -> tuple[list[nn.Module], list[nn.Module], list[Any]] | None:
        """The modules level by level, as often as they hang somewhere, those of them that have others, and what these
        have; None where the way has no end."""
        modules: list[Any] = [network]
        parents, parts = [], []
        try:
            for module in modules:
                own = module._modules
                if own:
                    parents.append(module)
                    parts.append(own)
                    modules.extend(_there(own) if self._places_are_empty else own.values())
                    if len(modules) > self._most:
                        return None
        except AttributeError:  # a place is empty that was not
            return None
        return modules, parents, parts


def _there(parts: Any) -> list[nn.Module]:
    return [one for one in parts.values() if one is not None]


def _seen(modules: list[nn.Module], parents: list[nn.Module], parts: list[Any]) -> list[Any]:
    """What is equal as long as nothing has changed."""
    names = chain.from_iterable([own.keys() for own in parts])
    return [[*map(id, modules)], [*map(id, map(type, modules))], [*map(id, parents)], [*names]]


_known: WeakKeyDictionary[nn.Module, Census] = WeakKeyDictionary()


def look_through(network: nn.Module) -> Look:
    """Look at a network and all modules in it."""
    census = _known.get(network)
    modules = None if census is None else census.modules_now(network)
    if census is None or modules is None:
        modules = modules_of(network)
        census = _known[network] = Census(modules)
    own = [*map(_own, modules)]
    return Look(census, modules, own, _some_special(own))


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
