"""What the zoo knows of a network: how to build it, and what somebody who knows its architecture says of its maps."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

Path = tuple[str, ...]  # ("0",) is the first argument, ("0", "image") an entry of it, ("pixel_values",) a named one
Columns = Callable[[Tensor], Tensor]  # a layer's output as (B, C, positions), positions in raster order of the grid


def first(features: Tensor) -> Tensor:
    """(B, C, *grid)."""
    return features.flatten(2)


def last(features: Tensor) -> Tensor:
    """(B, *grid, C)."""
    return features.flatten(1, -2).transpose(1, 2)


def tokens(prefix: int = 0, suffix: int = 0) -> Columns:
    """(B, prefix + positions + suffix, C)."""
    return lambda features: features[:, prefix : features.shape[1] - suffix].transpose(1, 2)


def reordered(inner: Columns, order: tuple[int, ...], shape: tuple[int, ...]) -> Columns:
    """Positions that lie in another order: `shape` as they lie, `order` as the axes of the grid want them."""
    return lambda features: inner(features).unflatten(2, shape).permute(0, 1, *[2 + axis for axis in order]).flatten(2)


def time_first(features: Tensor) -> Tensor:
    """(T, B, C), as recurrent networks have it where nobody asked for the batch first."""
    return features.permute(1, 2, 0)


def frames(count: int, inner: Columns = first) -> Columns:
    """The frames of a sample as rows of the batch, (B T, ...), with `inner` in each."""

    def columns(features: Tensor) -> Tensor:
        each = inner(features)
        return each.unflatten(0, (-1, count)).transpose(1, 2).flatten(2)

    return columns


@dataclass(frozen=True)
class Reading:
    """A right default layer: a pattern of its name, its grid, and how its output is read.

    `axes` are the axes of the explained input that the axes of the grid lie along (the last ones, if not told).
    `call` is the call of a module that is used several times. Without `default`, it is a layer that is read so, but is
    not the right one by default: where pixels are mixed too much to tell, the architecture says that it is a map.
    """

    layer: str
    grid: tuple[int, ...]
    columns: Columns = first
    input: Path = ("0",)
    axes: tuple[int, ...] = ()
    call: int | None = None
    default: bool = True

    def is_of(self, name: str, call: int | None, path: Path) -> bool:
        return bool(re.fullmatch(self.layer, name)) and path == self.input and (self.call is None or self.call == call)


@dataclass(frozen=True)
class Network:
    """One network of the zoo.

    `build` gives the network and its inputs, the same ones whenever it is called. `right` are the layers that are right
    by default; none means that no layer holds a map, and that the network must be refused. `also` is a pattern of other
    layers that are as right wherever the pixels confirm them: a dense predictor has many, all but its answer.
    `may_refuse`: to refuse it is as right. `held_out` says that it is not among the networks that the criterion of
    positions was made on. `trained`: its weights are not random. `why` is for whoever reads the table.
    """

    name: str
    source: str
    build: Callable[[], tuple[nn.Module, Any]]
    right: tuple[Reading, ...] = ()
    select: Any = None
    held_out: bool = True
    why: str = ""
    also: str = r"(?!)"  # none
    may_refuse: bool = False
    trained: bool = False


def look_up(inputs: Any, path: Path) -> Tensor:
    """The tensor at a path."""
    for place, key in enumerate(path):
        if isinstance(inputs, Tensor) and not place and key == "0":
            continue
        inputs = inputs[key] if isinstance(inputs, Mapping) else inputs[int(key)]
    return inputs


def put(inputs: Any, path: Path, value: Tensor) -> Any:
    """The inputs with another tensor at a path; the given ones stay as they are."""
    if not path or (isinstance(inputs, Tensor) and path == ("0",)):
        return value
    key, rest = path[0], path[1:]
    if isinstance(inputs, Mapping):
        return {**inputs, key: put(inputs[key], rest, value)}
    given = list(inputs)
    given[int(key)] = put(given[int(key)], rest, value)
    return type(inputs)(given)


def call(network: nn.Module, inputs: Any) -> Any:
    """Run the network, dropout and the like drawn alike each time."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if isinstance(inputs, Mapping):
            return network(**inputs)
        return network(*((inputs,) if isinstance(inputs, Tensor) else inputs))


def picture(*shape: int, seed: int = 0) -> Tensor:
    """Something like a photograph: blobs of several sizes and a little noise, over all axes but the first two."""
    generator = torch.Generator().manual_seed(seed)
    made = 0.3 * torch.randn(shape, generator=generator)
    size = shape[2:]
    mode = {1: "linear", 2: "bilinear", 3: "trilinear"}[len(size)]
    for coarse in (3, 7):
        blobs = torch.randn(*shape[:2], *[min(coarse, length) for length in size], generator=generator)
        made += 0.6 * F.interpolate(blobs, size, mode=mode, align_corners=False)
    return made


def clip(batch: int, count: int, *shape: int, seed: int = 0) -> Tensor:
    """Frames of pictures, (B, T, C, H, W), each a little different from the one before."""
    channels, *size = shape
    return picture(batch, channels, count, *size, seed=seed).transpose(1, 2).contiguous()


def seeded(make: Callable[[], nn.Module], *, seed: int = 0) -> nn.Module:
    """Build a network with weights from a seed, every weight that starts at zero drawn as well, ready to be used.

    What starts at zero (the last scale of a residual branch, a classifier) would leave a network that hardly looks at
    its input; a trained one is never like that.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = make()
        with torch.no_grad():
            for name, weight in network.named_parameters():
                if weight.is_floating_point() and weight.numel() and float(weight.abs().max()) < 1e-3:
                    scale = weight.ndim == 1 and ("gamma" in name or "weight" in name or "scale" in name)
                    weight.copy_(torch.full_like(weight, 0.5) if scale else torch.randn_like(weight) * 0.05)
    return network.eval()


def measured(network: nn.Module, inputs: Any) -> nn.Module:
    """The network with the statistics of its batch norms measured on its inputs.

    Batch norms that have seen nothing let a signal fade from block to block, until a layer changes less with the
    picture than it is rounded. A trained one is never like that, either.
    """
    norms = [module for module in network.modules() if isinstance(module, _BatchNorm) and module.track_running_stats]

    def measure(norm: nn.Module, given: tuple[Tensor, ...]) -> None:
        norm.train(given[0].numel() > given[0].shape[1])  # a single value has no spread

    hooks = [norm.register_forward_pre_hook(measure) for norm in norms]
    for norm in norms:
        norm.momentum = 1.0
    call(network, inputs)
    for norm, hook in zip(norms, hooks, strict=True):
        hook.remove()
        norm.eval().momentum = 0.1
    return network
