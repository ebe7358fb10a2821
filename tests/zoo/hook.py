"""The second judge: multiply the layer's output by the filter in a plain forward hook, and run the whole network."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .entry import Columns, call

RANDOM_FILTERS = 6
NEAR_FILTERS = 3


@dataclass(frozen=True)
class Comparison:
    """The losses of a filter: as reported, by a hook, and the best of uniform, random and neighbouring filters.

    `scale` is the squared length of what is kept: a loss is measured by it. None: the place where the loss is measured
    is no module's output, so a hook cannot see it.
    """

    reported: Tensor
    hooked: Tensor
    rivals: Tensor
    scale: Tensor

    def differs(self) -> bool:
        return bool(((self.reported - self.hooked).abs() > 1e-3 * self.hooked + 2e-5 * self.scale).any())

    def beaten(self) -> Tensor:
        """Which samples have a rival that is clearly better."""
        return self.rivals < self.hooked - 1e-3 * self.hooked - 2e-5 * self.scale

    def moves(self) -> bool:
        """Whether any filter moves what is kept."""
        return bool((torch.maximum(self.hooked, self.rivals) > 1e-10 * self.scale).any())


def multiplied(
    network: nn.Module,
    inputs: Any,
    *,
    layer: str,
    index: int,
    columns: Columns,
    weights: Tensor | None,
    endpoint: str,
    select: Any,
) -> Tensor | None:
    """What is kept, (B, m), with every position of the layer multiplied by its weight, (B, positions)."""
    calls = 0

    def multiply(_module: nn.Module, _inputs: Any, output: Tensor) -> Tensor | None:
        nonlocal calls
        calls += 1
        if calls - 1 != index or weights is None:
            return None
        # The indices of the elements, read as the layer is read, say which element belongs to which position.
        numbers = columns(torch.arange(output.numel(), device=output.device).reshape(output.shape))
        factors = torch.ones(output.numel(), dtype=output.dtype, device=output.device)
        factors[numbers] = weights.to(output)[:, None, :].expand(numbers.shape)
        return output * factors.reshape(output.shape)

    kept: list[Tensor] = []
    handles = [network.get_submodule(layer).register_forward_hook(multiply)]
    at = re.fullmatch(r"(\S+?)(?: \(call (\d+) of \d+\))?", endpoint)
    modules = dict(network.named_modules())
    try:
        if endpoint != "output":
            if at is None or at[1] not in modules:
                return None
            handles.append(modules[at[1]].register_forward_hook(lambda _m, _i, output: kept.append(output)))
        returned = call(network, inputs)
    finally:
        for handle in handles:
            handle.remove()
    if endpoint != "output":
        found = kept[int(at[2]) - 1 if at is not None and at[2] else -1]
    else:
        found = returned if select is None else select(returned) if callable(select) else returned[select]
    return found.detach().flatten(1).double()


def compare(
    network: nn.Module, inputs: Any, *, layer: str, index: int, columns: Columns, solution: Any, select: Any
) -> Comparison | None:
    """Measure the loss ||NT - FT(f)||^2 of the found filter and of its rivals; of frames, each while the others are
    off, their sum."""
    frames = len(solution.frames) or 1
    found = solution.filter.detach().reshape(len(solution.filter), frames, -1)
    batch, _, positions = found.shape
    generator = torch.Generator().manual_seed(21)

    def kept(weights: Tensor | None) -> Tensor | None:
        return multiplied(
            network,
            inputs,
            layer=layer,
            index=index,
            columns=columns,
            weights=weights,
            endpoint=solution.endpoint,
            select=select,
        )

    untouched = kept(None)
    if untouched is None or untouched.shape[0] % batch:
        return None
    untouched = untouched.reshape(batch, -1)

    def loss(weights: Tensor) -> Tensor:
        losses = []
        for frame in range(frames):
            alone = torch.ones_like(weights)
            alone[:, frame] = weights[:, frame]
            filtered = kept(alone.flatten(1))
            assert filtered is not None
            losses.append((filtered.reshape(batch, -1) - untouched).square().sum(dim=1))
        return torch.stack(losses).sum(dim=0)

    rivals = [torch.full_like(found, positions**-0.5)]
    for _ in range(RANDOM_FILTERS // 2):
        drawn = torch.randn(found.shape, generator=generator).to(found)
        rivals += [drawn, drawn.abs()]
    rivals += [
        found + 0.1 * positions**-0.5 * torch.randn(found.shape, generator=generator).to(found)
        for _ in range(NEAR_FILTERS)
    ]
    losses = torch.stack([loss(rival / rival.norm(dim=2, keepdim=True).clamp_min(1e-12)) for rival in rivals])
    return Comparison(
        solution.loss.detach().double().reshape(batch),
        loss(found),
        losses.min(dim=0).values,
        untouched.square().sum(dim=1),
    )
