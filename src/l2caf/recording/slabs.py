"""Inputs that differ from one another in one slab each: what a network is shown to find out where its layers answer.

The base is the level of the batch with texture on it; in each further row the texture is drawn anew inside one slab
across one axis, and stays what it is elsewhere. Nothing of a particular picture is in it, so that what is found out
does not depend on which picture came first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

SLABS = 8  # across an axis
STRENGTH = 0.5  # of the texture, in standard deviations of the batch: enough to be felt, not so much as to saturate
COARSE = 32  # half of the texture's power is in blocks of this share of an axis, as pictures have it


class Base(Enum):
    """What is changed slab by slab."""

    TEXTURE = "texture"  # noise on the batch's level
    SAMPLE = "sample"  # the first sample, its slabs taken from its mirror image: for networks that refuse noise


@dataclass(frozen=True)
class Slabs:
    """Row 0 is the base; the others are listed in `changes` as (axis, slab).

    >>> slabs = Slabs.of(torch.rand(2, 3, 32, 32), (2, 3))
    >>> len(slabs), slabs.rows(0, 3).shape
    (17, torch.Size([3, 3, 32, 32]))
    """

    base: Tensor
    other: Tensor
    changes: tuple[tuple[int, int], ...]

    @classmethod
    def of(
        cls, batch: Tensor, axes: tuple[int, ...], base: Base = Base.TEXTURE, across: Iterable[int] | None = None
    ) -> Slabs:
        """Make them for the position axes of an input; `across` are those that slabs are cut across, if not all."""
        cut = axes if across is None else tuple(across)
        changes = tuple((axis, slab) for axis in cut for slab in range(slabs_across(batch.shape[axis])))
        if base is Base.SAMPLE:
            first = batch[:1]
            return cls(first, first.flip(axes), changes)
        one, other = _drawn(batch, axes) if not batch.is_floating_point() else _textures(batch, axes)
        return cls(one, other, changes)

    def __len__(self) -> int:
        return 1 + len(self.changes)

    def rows(self, start: int, stop: int) -> Tensor:
        """Some of the rows, as one batch."""
        return torch.cat([self._row(number) for number in range(start, stop)])

    def _row(self, number: int) -> Tensor:
        if number == 0:
            return self.base
        axis, slab = self.changes[number - 1]
        length = self.base.shape[axis]
        count = slabs_across(length)
        start, stop = slab * length // count, (slab + 1) * length // count
        row = self.base.clone()
        row.narrow(axis, start, stop - start).copy_(self.other.narrow(axis, start, stop - start))
        return row


def slabs_across(length: int) -> int:
    """How many slabs an axis is cut into; none where there is nothing to tell apart."""
    return min(SLABS, length) if length > 1 else 0


def _textures(batch: Tensor, axes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Two pictures of the same level and different texture."""
    values = batch.detach().float()
    finite = values.isfinite()
    values = torch.where(finite, values, 0.0)
    count = finite.sum(dim=(0, *axes), keepdim=True).clamp_min(1)
    level = values.sum(dim=(0, *axes), keepdim=True) / count
    spread = float((torch.where(finite, values - level, 0.0).square().sum() / finite.sum().clamp_min(1)).sqrt())
    if spread <= 1e-6 * max(float(level.abs().max()), 1e-30):
        spread = max(float(level.abs().max()), 1.0)
    generator = torch.Generator().manual_seed(0)

    def texture() -> Tensor:
        white = torch.randn(1, *batch.shape[1:], generator=generator)
        coarse = white.new_empty(())
        blocks = [max(1, -(-length // COARSE)) if axis in axes else 1 for axis, length in enumerate(batch.shape)]
        shape = [-(-length // block) for length, block in zip(batch.shape[1:], blocks[1:], strict=True)]
        coarse = torch.randn(1, *shape, generator=generator)
        for axis in axes:
            coarse = coarse.repeat_interleave(blocks[axis], dim=axis).narrow(axis, 0, batch.shape[axis])
        drawn = (white + coarse).to(batch.device) * (STRENGTH * spread / 2**0.5)
        return (level + drawn).to(batch.dtype)

    return texture(), texture()


def _drawn(batch: Tensor, axes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Two inputs of whole numbers, such as the indices of words: values of the batch, drawn at random."""
    generator = torch.Generator().manual_seed(0)
    values = batch.detach().reshape(-1)

    def draw() -> Tensor:
        chosen = torch.randint(len(values), (1, *batch.shape[1:]), generator=generator)
        return values[chosen.to(values.device)]

    return draw(), draw()
