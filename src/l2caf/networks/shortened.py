"""A network that ends at one of its inner layers: what comes later is replaced by modules that do nothing.

It asks nothing of the network's code. That it gives the map of that layer is checked, never assumed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError
from ..recording.borrow import forwards_replaced, watching

AUTO = "auto"
FINENESS = 16  # pixels of the input per cell: finer maps know little of objects, coarser ones little of places


def shortened(network: nn.Module, layer: str, probe: Tensor) -> nn.Module:
    """The network itself, changed so that it ends at this layer; "auto" is the last one of 16 pixels per cell.

    >>> network = nn.Sequential(nn.Conv2d(3, 4, 16, stride=16), nn.Conv2d(4, 8, 2, stride=2))
    >>> shortened(network, "0", torch.zeros(1, 3, 64, 64))(torch.zeros(1, 3, 64, 64)).shape
    torch.Size([1, 4, 4, 4])
    """
    outputs: dict[str, Any] = {}
    _watch(network, probe, outputs.__setitem__)
    if layer not in outputs:
        known = [name for name, output in outputs.items() if _is_map(output) and name.count(".") <= 1]
        raise InputError(
            f"The backbone has no layer {layer!r} to end at: take {AUTO}, or one of {', '.join(known[:12])}.",
            field="layer",
        )
    order = [*outputs]
    later = [name for name in order[order.index(layer) + 1 :] if not layer.startswith(f"{name}.")]
    for name in later:
        if not any(name.startswith(f"{other}.") for other in later):
            parent, _, child = name.rpartition(".")
            network.get_submodule(parent)._modules[child] = nn.Identity()
    _check(network, layer, outputs[layer], probe)
    return network


def layer_for_places(network: nn.Module, probe: Tensor) -> str:
    """The last large part of a network whose map has a cell for every 16 pixels, or the finest there is after it.

    That is `layer3` of a ResNet and `blocks.4` of an EfficientNet.
    """
    outputs: dict[str, Any] = {}
    _watch(network, probe, outputs.__setitem__)
    maps = {name: output.shape[-1] for name, output in outputs.items() if _is_map(output) and name.count(".") <= 1}
    fine = [name for name, width in maps.items() if FINENESS * width >= probe.shape[-1]]
    stages = [name for name in fine if any(True for _ in network.get_submodule(name).children())]
    if not stages:
        raise InputError("The backbone has no map that is fine enough to tell places: name its layer.", field="layer")
    return stages[-1]


def _check(network: nn.Module, layer: str, wanted: Any, probe: Tensor) -> None:
    with torch.no_grad():
        try:
            made = network(probe)
            same = made.shape == wanted.shape and torch.allclose(made, wanted, rtol=1e-4, atol=1e-5)
        except (RuntimeError, TypeError, ValueError, AttributeError, IndexError):
            same = False
    if not same or not _is_map(wanted):
        raise InputError(
            f"The backbone cannot end at {layer}, which gives no map (B, C, H, W) of its own: take a whole stage.",
            field="layer",
        )


def _is_map(output: Any) -> bool:
    return isinstance(output, Tensor) and output.ndim == 4 and min(output.shape[2:]) > 1


def _watch(network: nn.Module, probe: Tensor, see: Callable[[str, Any], None]) -> None:
    """Run the network, and be told of every module by name when it is done."""
    names = {module: name for name, module in network.named_modules() if name}
    watched = watching(names, returned=lambda call, output: see(names[call.module], output))
    with torch.no_grad(), forwards_replaced(watched):
        network(probe)
