"""A trunk cut in two at one of its modules: what comes before stays as it is, what comes after is trained.

The frozen part need not run again for a picture that it has seen, which is what makes training on a processor
bearable. The cut asks nothing of the network's code: the part after it is the network itself with every module that
was done before the cut replaced by one that does nothing. That this gives the same map is checked, never assumed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError
from ..recording.borrow import Call, forwards_replaced, watching

EVERYTHING = "trunk"
NOTHING = "none"
AUTO = "auto"
LEAST_STAGE = 0.05  # of all parameters: a last normalisation is no stage


class _Reached(Exception):  # noqa: N818 - no error: the way out of a network half-way
    def __init__(self, features: Tensor) -> None:
        self.features = features


class Cut:
    """The two parts of a trunk, which share its parameters.

    at      the dotted name of the last module of the frozen part; "none" leaves nothing frozen, "trunk" all
    upper   the part after it, with the names of the trunk's own parameters
    """

    def __init__(self, trunk: nn.Module, at: str, probe: Tensor) -> None:
        self.trunk = trunk
        self.at = at
        if at == NOTHING:
            self.upper: nn.Module = trunk
        elif at == EVERYTHING:
            self.upper = nn.Identity()
        else:
            self.upper = _after(trunk, at, probe)
            self._check(probe)

    def lower(self, images: Tensor) -> Tensor:
        """The map at the cut, (B, C, H, W), without gradients."""
        if self.at == NOTHING:
            return images
        with torch.no_grad():
            if self.at == EVERYTHING:
                return self.trunk(images)
            try:
                with forwards_replaced(watching([self.trunk.get_submodule(self.at)], returned=_leave)):
                    self.trunk(images)
            except _Reached as reached:
                return reached.features
        raise InputError(f"The network never comes to {self.at}: freeze it at another module.", field="freeze")

    def _check(self, probe: Tensor) -> None:
        with torch.no_grad():
            whole = self.trunk(probe)
            try:
                same = torch.allclose(whole, self.upper(self.lower(probe)), rtol=1e-4, atol=1e-5)
            except (RuntimeError, TypeError, ValueError):  # a part that was skipped is needed after all
                same = False
        if not same:
            raise InputError(
                f"The network cannot be cut at {self.at}, since what follows needs more than its map: "
                f"freeze it at a whole stage, or take {EVERYTHING} or {NOTHING}.",
                field="freeze",
            )


def auto_cut(trunk: nn.Module, probe: Tensor) -> str:
    """The end of the last stage but one, so that the last stage is trained: a fifth or so of the computation.

    That is `layer3` of a ResNet, `stages.2` of a ConvNeXt, `blocks.5` of an EfficientNet.
    """
    found = stages(trunk, probe)
    heavy = [place for place, name in enumerate(found) if _weight(trunk, name) >= LEAST_STAGE * _weight(trunk, "")]
    before_last = reversed(found[: heavy[-1]]) if heavy else ()
    for name in before_last:
        try:
            Cut(trunk, name, probe)
        except InputError:
            continue
        return name
    return EVERYTHING


def stages(trunk: nn.Module, probe: Tensor) -> list[str]:
    """The large parts in the order in which they are done: the trunk's own, or those of a module that holds all."""
    maps = _maps(trunk, probe)
    for name, child in trunk.named_children():
        inside = [f"{name}.{inner}" for inner, _ in child.named_children() if f"{name}.{inner}" in maps]
        if len({maps[place][-2:] for place in inside}) >= 3:  # it spans several sizes of map, so it is no stage itself
            return inside
    return [name for name in maps if "." not in name]


def _weight(trunk: nn.Module, name: str) -> int:
    return sum(value.numel() for value in trunk.get_submodule(name).parameters())


def resolve(freeze: str, trunk: nn.Module, probe: Tensor, *, has_accelerator: bool) -> str:
    """Where to cut: as named; "auto" trains all of the trunk where there is an accelerator, else its last stage."""
    if freeze == AUTO:
        return NOTHING if has_accelerator else auto_cut(trunk, probe)
    if freeze in (NOTHING, EVERYTHING):
        return freeze
    if freeze not in dict(trunk.named_modules()) or not freeze:
        names = [name for name in _maps(trunk, probe) if name.count(".") <= 1]
        raise InputError(
            f"There is no module {freeze!r} to freeze up to: take {AUTO}, {NOTHING}, {EVERYTHING}, or one of "
            f"{', '.join(names[:12])}.",
            field="freeze",
        )
    return freeze


def _after(trunk: nn.Module, at: str, probe: Tensor) -> nn.Module:
    done = _finished_before(trunk, at, probe)
    # The copy has modules of its own, to be replaced, and the very parameters and buffers of the trunk.
    shared: dict[int, Any] = {id(tensor): tensor for tensor in (*trunk.parameters(), *trunk.buffers())}
    upper = copy.deepcopy(trunk, shared)
    for name in done:
        parent, _, child = name.rpartition(".")
        upper.get_submodule(parent)._modules[child] = nn.Identity()
    return upper


def _finished_before(trunk: nn.Module, at: str, probe: Tensor) -> list[str]:
    """The modules that are done when `at` is, without those inside of others of them."""
    order: list[str] = []
    _watch(trunk, probe, lambda name, _: order.append(name))
    done = set(order[: order.index(at) + 1]) if at in order else set()
    return [name for name in done if not any(name.startswith(f"{other}.") for other in done)]


def _maps(trunk: nn.Module, probe: Tensor) -> dict[str, tuple[int, ...]]:
    """The shapes of the maps of all modules, in the order in which they are done."""
    shapes: dict[str, tuple[int, ...]] = {}

    def note(name: str, output: Any) -> None:
        if isinstance(output, Tensor) and output.ndim == 4:
            shapes[name] = tuple(output.shape)

    _watch(trunk, probe, note)
    return shapes


def _watch(trunk: nn.Module, probe: Tensor, see: Callable[[str, Any], None]) -> None:
    """Run the trunk, and be told of every module by name when it is done."""
    names = {module: name for name, module in trunk.named_modules() if name}
    watched = watching(names, returned=lambda call, output: see(names[call.module], output))
    with torch.no_grad(), forwards_replaced(watched):
        trunk(probe)


def _leave(_call: Call, output: Tensor) -> None:
    raise _Reached(output)
