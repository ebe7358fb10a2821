"""`Fingerprint`: what of a network decides how it computes, other than the values of its tensors.

Which modules there are, under which names, of which class, with which hooks and settings (a flag that switches a
rectifier on is such a setting), and whether somebody replaced a method. It is looked at on every call, over hundreds of
modules, so there are two ways to tell that nothing has changed: at first sight, by a few passes in C that compare every
plain setting and the ids of all else (`_sight`), or else by describing everything in words of its own
(`_description`). The id of an object that is gone may be that of another; weak references tell of it, and keep nothing
alive.

It leans on torch's private names (`_modules`, `_forward_hooks` and the like); `tests/heads/test_plan.py` catches it
when one of them changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from functools import cache
from inspect import signature
from itertools import chain
from operator import itemgetter
from types import BuiltinFunctionType, FunctionType, MethodType, NoneType
from typing import Any
from weakref import ref

import torch
from torch import nn

from .census import Look

_PLAIN = frozenset({bool, int, float, str, NoneType, torch.dtype, torch.device})
_OF_EVERY_MODULE = frozenset(nn.Module().__dict__)
# Torch's own modules have no settings that a value would not show, and they are the most; but for the activations: a
# slope below zero, or whether one writes into its input; and for what has an activation inside.
_SIMPLE = frozenset(
    kind
    for kind in vars(nn).values()
    if isinstance(kind, type)
    and kind.__module__.startswith("torch.nn.modules.")
    and kind.__module__ not in ("torch.nn.modules.activation", "torch.nn.modules.transformer")
)
_BY_BATCH = "track_running_stats"  # without them a norm computes with those of the batch, whose samples it mixes
_OF_RECURRENT = ("_flat_weight_refs", "_flat_weights_names", "_all_weights", "_flat_weights")  # its parameters again
_HOLDERS = (dict, list, tuple, set, frozenset)
_CODE = (FunctionType, MethodType, BuiltinFunctionType, property, classmethod, staticmethod)
_MOST = 64  # of what a setting holds: a list of class names is none that decides
_DEEPEST = 3  # how far into a network's settings one looks: a list in a configuration in an attribute

_COPIED = 4  # the place, in what is seen, of the containers that are compared by value

_after, _before = itemgetter("_forward_hooks"), itemgetter("_forward_pre_hooks")


class Fingerprint:
    """A network as it was; `holds` tells whether it still is."""

    def __init__(self, look: Look) -> None:
        self._described = _description(look.modules)
        self._look_at(look)

    def holds(self, look: Look) -> bool:
        """Whether the network, at which this is the look now, is what it was."""
        try:
            if look.census is self._census and self._sight(look) == self._seen and not self._gone:
                return True
        except (LookupError, AttributeError, TypeError, ValueError, RuntimeError):
            pass  # a setting was taken away, or is now something that cannot be compared
        if _description(look.modules) != self._described:
            return False
        self._look_at(look)  # something of no account has changed
        return True

    def _look_at(self, look: Look) -> None:
        """Note what to compare at first sight, and what it is now."""
        modules = look.modules
        kinds: list[Any] = [*dict.fromkeys(map(type, modules))]
        classes = [*dict.fromkeys(chain.from_iterable(map(_own_classes, kinds)))]
        self._census = look.census  # which has the modules, their classes and their names
        self._gone: list[ref[Any]] = []
        plain: dict[tuple[str, ...], list[int]] = {}  # by their names: the places of what has settings by value;
        self._fixed: list[tuple[int, itemgetter[Any]]] = []  # functions, which are compared by id,
        self._copied: list[tuple[int, str]] = []  # what holds plain values alone, which is compared with a copy,
        self._loose: list[tuple[int, str, Callable[[Any], Any]]] = []  # and what must be described to tell
        told: list[Any] = [*modules, *kinds, *classes, *(kind.forward for kind in kinds)]
        for place, settings in enumerate([*look.own, *map(vars, classes)]):
            of_class = place >= len(modules)
            names = [*settings] if of_class else _own_settings(modules[place])
            own = tuple(name for name in names if _is_plain(settings[name]))
            fixed = [name for name in names if type(settings[name]) is FunctionType]
            copied = [name for name in names if _is_of_plain(settings[name])]
            loose = [name for name in names if name not in own and name not in fixed and name not in copied]
            if own:
                plain.setdefault(own, []).append(place)
            self._copied += ((place, name) for name in copied)
            self._fixed += [(place, _reader(fixed))] if fixed else []
            self._loose += ((place, name, _described_of_class if of_class else _described) for name in loose)
            told += (settings[name] for name in fixed)
        self._plain = [(_reader(names), _reader(places)) for names, places in plain.items()]
        self._kinds, self._classes = [*map(ref, kinds)], [*map(ref, classes)]
        self._told = [ref(one, self._gone.append) for one in told]
        self._seen = self._sight(look)
        self._seen[_COPIED] = deepcopy(self._seen[_COPIED])  # the thing itself would always equal itself

    def _sight(self, look: Look) -> list[Any]:
        """What is equal as long as nothing has changed."""
        kinds: list[Any] = [kind() for kind in self._kinds]
        places = look.own + [vars(kind()) for kind in self._classes]
        return [
            [*map(len, places)],
            _hooks_of(look.own) if look.some_special else [-1],
            _hooks_on_all(),
            [[*map(read, chosen(places))] for read, chosen in self._plain],
            [places[place][name] for place, name in self._copied],
            [*map(id, chain.from_iterable([read(places[place]) for place, read in self._fixed]))],
            [describe(places[place][name]) for place, name, describe in self._loose],
            [id(kind.forward) for kind in kinds],
            [*map(id, chain.from_iterable([kind.__mro__ for kind in kinds]))],
        ]


def _hooks_of(own: list[dict[str, Any]]) -> list[int]:
    return [*chain.from_iterable(map(_after, own)), -1, *chain.from_iterable(map(_before, own))]


def _reader(names: Sequence[Any]) -> itemgetter[Any]:
    return itemgetter(*names, names[0])  # one of them twice, so that it gives a tuple


def _hooks_on_all() -> list[int]:
    return [*nn.modules.module._global_forward_hooks, -1, *nn.modules.module._global_forward_pre_hooks]


def _own_settings(module: nn.Module) -> list[str]:
    """The names of a module's settings; what torch keeps in every module is looked at elsewhere."""
    kind: Any = type(module)
    usual = _usual_settings(kind) if kind in _SIMPLE else _OF_EVERY_MODULE
    return [name for name in module.__dict__ if name not in usual]


@cache
def _usual_settings(kind: type[nn.Module]) -> frozenset[str]:
    """What every module of a class of torch's has; whatever else one has, somebody put there, who may read it."""
    found = _OF_EVERY_MODULE.union(_OF_RECURRENT)
    for base in kind.__mro__[: kind.__mro__.index(nn.Module)]:
        made = signature(vars(base)["__init__"]).parameters if "__init__" in vars(base) else ()
        found = found.union(vars(base).get("__annotations__", ()), vars(base).get("__constants__", ()), made)
    return found - {"forward", _BY_BATCH}


def _own_classes(kind: type) -> Iterator[type]:
    """A class and what it derives from, up to torch's own."""
    for base in kind.__mro__:
        if base.__module__.startswith("torch.nn.modules."):
            return
        yield base


def _is_plain(value: Any) -> bool:
    return type(value) in _PLAIN or (type(value) is tuple and _PLAIN.issuperset(map(type, value)))


def _is_of_plain(value: Any, depth: int = 0) -> bool:
    """Whether a container holds nothing but plain values and such containers, so that a copy tells what it was."""
    if type(value) not in (dict, list, tuple) or depth > _DEEPEST or len(value) > _MOST:
        return False
    inside = [*value, *value.values()] if type(value) is dict else value
    return all(type(one) in _PLAIN or _is_of_plain(one, depth + 1) for one in inside)


def _description(modules: list[nn.Module]) -> list[Any]:
    """The same in full; equal also where a thing was replaced by its equal."""
    found: list[Any] = [*map(_Reference, modules), *_hooks_on_all()]
    for module in modules:
        parts = module.__dict__
        found += parts["_modules"]
        if parts["_forward_hooks"] or parts["_forward_pre_hooks"]:
            found += ("hooks", _Reference(module), *parts["_forward_hooks"], -1, *parts["_forward_pre_hooks"])
        # In no order of names: whoever sets an attribute anew has changed nothing.
        settings = sorted(_own_settings(module))
        found += (settings, [_described(parts[name]) for name in settings])
    kinds: dict[Any, None] = dict.fromkeys(map(type, modules))
    for kind in kinds:
        found.append(_Reference(kind.forward))
        for base in _own_classes(kind):
            found += (_Reference(base), *map(_described_of_class, vars(base).values()))
    return found


class _Reference(ref[Any]):
    """A weak reference that equals another to the same object; torch's own idea of equality gives a tensor."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, ref) and self() is not None and self() is other())


def _described(value: Any, depth: int = 0) -> Any:
    """A setting, as something that is equal as long as the setting is the same; objects by reference and by content."""
    if _is_plain(value):
        return value
    if isinstance(value, torch.Tensor):
        # Many a network keeps the maps of its last run, which are no setting: each run would look like another network.
        return (_Reference(value), value._version) if value.ndim < 3 else value.ndim
    inside: Any = ()
    if depth < _DEEPEST:
        if isinstance(value, _HOLDERS) and len(value) > _MOST:
            inside = len(value)
        elif isinstance(value, dict):
            inside = [
                [key if type(key) in _PLAIN else _described(key, depth + 1) for key in value],
                _described(list(value.values()), depth),
            ]
        elif isinstance(value, _HOLDERS):
            inside = [one if type(one) in _PLAIN else _described(one, depth + 1) for one in value]
        elif not isinstance(value, (type, nn.Module, *_CODE)) and hasattr(value, "__dict__"):
            inside = _described(vars(value), depth + 1)
    if type(value) in (dict, list, tuple):
        return type(value), inside
    try:
        return _Reference(value), inside
    except TypeError:  # not everything can be referred to weakly
        return type(value), inside


def _described_of_class(value: Any) -> Any:
    """The same for what stands in a class: code, plain values and what holds them; of all else, what it is."""
    if type(value) is FunctionType:
        return _Reference(value)
    if _is_plain(value) or (isinstance(value, _HOLDERS) and value):
        return _described(value)
    code = value.fget if type(value) is property else getattr(value, "__func__", None)
    return type(value), _Reference(code) if type(code) is FunctionType else None
