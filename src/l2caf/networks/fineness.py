"""Finer maps from a trained backbone: the last strides are taken out, and what follows is dilated to see as far.

Localisers have a cell for every 16 pixels; most backbones end at 32. It asks nothing of the network's code, and that
the map has become finer is checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError


def make_finer(network: nn.Module, stride: int, probe: Tensor) -> None:
    """Change a network (image → map) in place so that a cell of its map stands for `stride` pixels, or fewer.

    >>> network = nn.Sequential(nn.Conv2d(3, 4, 4, stride=4), nn.Conv2d(4, 4, 3, stride=2, padding=1))
    >>> make_finer(network, 4, torch.zeros(1, 3, 64, 64))
    >>> network(torch.zeros(1, 3, 64, 64)).shape
    torch.Size([1, 4, 16, 16])
    """
    wanted = probe.shape[-1] // stride
    for module, (before, after) in _widths(network, probe).items():
        if isinstance(module, nn.AvgPool2d | nn.MaxPool2d):
            if after < wanted:
                module.kernel_size, module.stride, module.padding = 1, 1, 0  # there is nothing left to pool
            continue
        if before < wanted:  # its neighbours are now twice, or four times, as far away
            _dilate(module, wanted // before)
        if after < wanted:
            module.stride = (1, 1)
    if _width(network, probe) < wanted:
        raise InputError(
            f"The backbone's map cannot be given a cell for every {stride} pixels, as it shrinks by more than"
            " convolutions and poolings: leave the stride at 32.",
            field="stride",
        )


def _dilate(module: nn.Conv2d, times: int) -> None:
    if max(module.kernel_size) == 1:
        return
    if isinstance(module.padding, tuple) and any(module.padding):
        module.padding = tuple(times * one for one in module.padding)
    module.dilation = tuple(times * one for one in module.dilation)


def _widths(network: nn.Module, probe: Tensor) -> dict[Any, tuple[int, int]]:
    """The widths of the maps that each convolution and pooling is given and gives."""
    seen: dict[Any, tuple[int, int]] = {}

    def note(module: Any, given: tuple[Tensor, ...], output: Tensor) -> None:
        if given[0].ndim == 4 and given[0].shape[-1] > 1:  # not the squeezed vectors of squeeze-and-excitation
            seen[module] = (given[0].shape[-1], output.shape[-1])

    _run(network, probe, note)
    return seen


def _run(network: nn.Module, probe: Tensor, note: Callable[..., None]) -> None:
    found = [module for module in network.modules() if isinstance(module, nn.Conv2d | nn.AvgPool2d | nn.MaxPool2d)]
    hooks = [module.register_forward_hook(note) for module in found]
    try:
        _width(network, probe)
    finally:
        for hook in hooks:
            hook.remove()


def _width(network: nn.Module, probe: Tensor) -> int:
    was = network.training
    with torch.no_grad():
        width = network.eval()(probe).shape[-1]
    network.train(was)
    return int(width)
