"""`Region`: a part of an output that is image-like, and what in the layer's map makes it what it is.

Segmentation logits, a generator's picture, a decoder's reconstruction, a volume, a signal: such an output is far larger
than what is asked about. So the region is read off before anything is differentiated: its values, or of a channel one
mean per sample, are all that is ever written out as a function of the filter.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError, OutputError
from ..rendering.region import OutputRegion
from .objective import LeastSquares, Linear, Losses, Objective

CORNERS = {1: "start, stop", 2: "x0, y0, x1, y1", 3: "x0, y0, z0, x1, y1, z1"}


@dataclass(frozen=True, eq=False)
class Region(Objective):
    """min ||NT - FT(f)||^2 over a region of the output, or with a channel c, min -mean (FT_c - mean_i FT_i) there.

    The output is (B, K, *space) with one to three axes of space, or (B, *space) where it has no channels.

    where      a mask of the output's own size, (*space) or (B, *space), in which all that is not zero is inside; or a
               box, half-open and in pixels of the output: x0, y0, x1, y1, of a volume x0, y0, z0, x1, y1, z1, of a
               signal start, stop
    channel    raise this channel over the others; a list gives a map for each. An output with one channel is raised
               itself. Without it the region is kept as it is, all channels together
    predicted  only where the network itself predicts the channel: it is the largest of them, or where it is alone,
               above 0 (above 0.5 in an output that lies between 0 and 1). Without `where`, all of that

    Channels that are shares of one (a softmax) are read as their logarithms, less the mean over the channels: these are
    the scores that the softmax was made of, and move also where the shares are 0 and 1 to the last digit.

    A head that is scale-invariant keeps every region as it is at the uniform filter, and the question would have no
    answer; there, the region is raised along its own values instead, min -NT . FT(f) / |region|.

    >>> output = torch.arange(16.0).reshape(1, 1, 4, 4)
    >>> Region((1, 0, 3, 1)).reading(output)(output).tolist()
    [[1.0, 2.0]]
    >>> Region((1, 0, 3, 1), channel=0).reading(output)(output).tolist()
    [[1.5]]
    >>> Region(channel=0).mask(output).sum().item()
    15
    """

    where: Any = None
    channel: Any = None
    predicted: bool = False

    def __post_init__(self) -> None:
        if self.where is None and self.channel is None:
            raise InputError(
                "A region is needed: give a mask of the output's size, a box such as (10, 20, 40, 60), or the channel"
                " whose prediction is meant.",
                field="region",
            )
        if self.predicted and self.channel is None:
            raise InputError("What is predicted is a channel: give channel= too.", field="channel")
        if self.where is not None:
            object.__setattr__(self, "where", _as_tensor(self.where))

    def mask(self, output: Tensor) -> Tensor:
        """Where the region lies in an output: (B, *space)."""
        scores = self._by_channel(output)
        space = tuple(scores.shape[2:])
        if self.where is None:
            inside = torch.ones(len(output), *space, dtype=torch.bool, device=output.device)
        elif _is_box(self.where, len(space)):
            inside = _boxed(self.where, space).to(output.device).expand(len(output), *space)
        else:
            inside = _masked(self.where, len(output), space).to(output.device)
        if self.where is None or self.predicted:
            inside = inside & self._predicted(scores)
        empty = ~inside.flatten(1).any(dim=1)
        if bool(empty.any()):
            raise InputError(self._nothing(int(empty.nonzero()[0]), len(output)), field="region")
        return inside

    def reading(self, output: Tensor) -> Callable[[Tensor], Tensor]:
        """What of an output is asked about, as a function of outputs of this size: (B, m)."""
        mask = self.mask(output).flatten(1)
        # Masks may differ between samples: what lies in any is read, and is zero where it is not the sample's own.
        places = mask.any(dim=0).nonzero().flatten()
        own = mask[:, places]
        whole = bool(own.all())
        channels = None if self.channel is None else self._channels(self._by_channel(output).shape[1])
        is_softmax = _sums_to_one(self._by_channel(output).flatten(2)[:, :, places])

        def values(given: Tensor) -> Tensor:
            """(B, K, places)."""
            found = self._by_channel(given).flatten(2)[:, :, places]
            if is_softmax:
                found = found.clamp_min(torch.finfo(found.dtype).tiny).log()
                found = found - found.mean(dim=1, keepdim=True)
            return found if whole else found * own.unsqueeze(1)

        def means(given: Tensor) -> Tensor:
            """One number per channel that is asked about: (B, number of channels)."""
            assert channels is not None
            inside = values(given)
            inside = inside if inside.dtype in (torch.float32, torch.float64) else inside.float()
            mean = inside.sum(dim=2) / own.sum(dim=1, keepdim=True)
            return (mean - mean.mean(dim=1, keepdim=True) if mean.shape[1] > 1 else mean)[:, channels]

        return (lambda given: values(given).flatten(1)) if channels is None else means

    def losses(self, output: Tensor) -> Losses:
        """The losses of what `reading` gave."""
        if self.channel is None:
            return Losses((LeastSquares(output),))
        listed, several = _listed(self.channel)
        hot = torch.eye(len(listed), dtype=output.dtype, device=output.device)
        classes = torch.tensor(listed, device=output.device).expand(len(output), -1)
        losses = tuple(Linear(-one.expand_as(output)) for one in hot)
        return Losses(losses, several=several, classes=classes, signed=True)

    def shown(self, output: Tensor) -> OutputRegion:
        """The region on a picture of the output."""
        values = self._by_channel(output).float().cpu().nan_to_num(0.0, 0.0, 0.0)
        return OutputRegion.of(self.mask(output).cpu().numpy(), values.numpy())

    @property
    def is_slope(self) -> bool:
        return True

    @property
    def instead(self) -> Objective | None:
        return _Along() if self.channel is None else None

    def _by_channel(self, output: Tensor) -> Tensor:
        """An output as (B, K, *space)."""
        axes = self._axes(output.ndim)
        if axes is None or output.ndim - axes not in (1, 2) or not 1 <= axes <= 3:
            raise OutputError(
                f"The output has shape {tuple(output.shape)}, which has no such region: a region needs"
                " (batch, channels, *space) with one to three axes of space; choose such an output with output=.",
                field="region",
            )
        return output.unsqueeze(1) if output.ndim - axes == 1 else output

    def _axes(self, dimensions: int) -> int | None:
        """How many axes of space are meant: as many as the box has corners for, or the mask has axes."""
        if self.where is None:
            return dimensions - 2
        if self.where.ndim == 1 and self.where.dtype != torch.bool and len(self.where) in (2, 4, 6):
            by_box = len(self.where) // 2
            if dimensions - by_box in (1, 2):
                return by_box
        if dimensions == 2 and self.where.ndim > 1:
            return None  # a picture's mask, and the output is a row of scores or a signal
        # A mask per sample has an axis more.
        return next((axes for axes in (dimensions - 2, dimensions - 1) if self.where.ndim in (axes, axes + 1)), None)

    def _channels(self, count: int) -> list[int]:
        listed, _ = _listed(self.channel)
        if not listed:
            raise InputError("No channel is given: name at least one.", field="channel")
        for one in listed:
            if not 0 <= one < count:
                known = f"{count} channels, 0 to {count - 1}" if count > 1 else "one channel, 0"
                raise InputError(f"Channel {one} is out of range: the output has {known}.", field="channel")
        return listed

    def _predicted(self, scores: Tensor) -> Tensor:
        """Where any of the channels is predicted: (B, *space)."""
        channels = self._channels(scores.shape[1])
        if scores.shape[1] == 1:
            is_share = bool((scores >= 0).all()) and bool((scores <= 1).all())
            return scores[:, 0] > (0.5 if is_share else 0.0)
        best = scores.argmax(dim=1)
        return torch.stack([best == one for one in channels]).any(dim=0)

    def _nothing(self, sample: int, batch: int) -> str:
        which = f" of sample {sample}" if batch > 1 else ""
        if self.where is not None and not self.predicted:
            return f"The mask{which} is empty: give one with a value inside."
        here = "" if self.where is None else " in this place"
        return f"Channel {self.channel} is predicted nowhere{here}{which}: give a mask or a box in its stead."


@dataclass(frozen=True)
class _Along(Objective):
    """min -NT . FT(f): raise what is read along its own values; not deaf where a head is scale-invariant."""

    def losses(self, output: Tensor) -> Losses:
        return Losses((Linear(-output / output[0].numel()),), signed=True)


def _as_tensor(where: Any) -> Tensor:
    try:
        tensor = torch.as_tensor(where).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"A {type(where).__name__} is no region: give a mask of the output's size, or a box of whole numbers.",
            field="region",
        ) from error
    if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
        raise InputError(
            "The region has NaN or infinity in it: give a mask of zeros and ones, or a box.", field="region"
        )
    return tensor


def _sums_to_one(values: Tensor) -> bool:
    """Whether the channels of (B, K, places) values are shares of one."""
    if values.shape[1] == 1 or not bool((values >= 0).all()):
        return False
    return bool(((values.sum(dim=1) - 1).abs() <= 16 * torch.finfo(values.dtype).eps).all())


def _is_box(where: Tensor, axes: int) -> bool:
    return where.ndim == 1 and where.dtype != torch.bool and len(where) == 2 * axes


def _boxed(box: Tensor, space: tuple[int, ...]) -> Tensor:
    """A box as a mask; corners are x, y, z, and the last axis of the output is x."""
    numbers, axes = box.tolist(), len(space)
    said = f"The box {tuple(numbers)}"
    if any(number != int(number) for number in numbers):
        raise InputError(
            f"The corners of {said[4:]} are not whole numbers: give {CORNERS[axes]} in pixels of the output.",
            field="region",
        )
    low, high = ([int(one) for one in part][::-1] for part in (numbers[:axes], numbers[axes:]))
    for first, last, length in zip(low, high, space, strict=True):
        if not 0 <= first < last <= length:
            size = " x ".join(map(str, space[::-1]))
            fault = "is empty" if first >= last else "lies outside of the output"
            raise InputError(
                f"{said} {fault}: give {CORNERS[axes]} within {size} pixels of the output, half-open.", field="region"
            )
    inside = torch.zeros(space, dtype=torch.bool)
    inside[tuple(slice(first, last) for first, last in zip(low, high, strict=True))] = True
    return inside


def _masked(where: Tensor, batch: int, space: tuple[int, ...]) -> Tensor:
    """A mask for every sample."""
    shape = tuple(where.shape)
    if shape not in (space, (1, *space), (batch, *space)):
        size = " x ".join(map(str, space))
        each = f", or one for each of the {batch} inputs" if batch > 1 else ""
        raise InputError(
            f"The mask has shape {shape}, but the output is {size}: give one of that shape{each}.", field="region"
        )
    return (where != 0).expand(batch, *space)


def _listed(channel: Any) -> tuple[list[int], bool]:
    """One channel or several, and whether it was a list."""
    if hasattr(channel, "tolist"):
        channel = channel.tolist()
    several = isinstance(channel, (list, tuple, range))
    try:
        if any(isinstance(one, bool) for one in (channel if several else [channel])):
            raise TypeError
        return [operator.index(one) for one in (channel if several else [channel])], several
    except TypeError as error:
        raise InputError(
            f"{channel!r} is no channel: give a whole number, or a list of them.", field="channel"
        ) from error
