"""Attention-based dropout: while a network learns, hide the most discriminative cells, or weigh all by importance.

Choe and Shim, CVPR 2019. The layer has no parameters and does nothing in evaluation, so a network that was trained with
it is used without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError

RATE, THRESHOLD = 0.75, 0.8  # as published: how often cells are dropped, and which share of the largest is too much


def self_attention(features: Tensor, *, channels: int = 1) -> Tensor:
    """The mean over channels: how strongly each cell answers, with an axis of one channel left."""
    return features.mean(dim=channels, keepdim=True)


def drop_mask(attention: Tensor, threshold: float) -> Tensor:
    """0 where a sample's attention reaches `threshold` times its largest, else 1."""
    largest = attention.amax(dim=tuple(range(1, attention.ndim)), keepdim=True)
    return (attention < threshold * largest).to(attention.dtype)


def attention_dropout(features: Tensor, *, rate: float, threshold: float, channels: int = 1) -> Tensor:
    """Features (B, C, H, W) times the drop mask, with probability `rate`, or else times sigmoid(attention).

    One draw from torch's generator decides for the whole batch. The mask is a constant for gradients, so they flow
    through the cells that are kept; those of the importance flow through the sigmoid as well.
    """
    if float(torch.rand(())) < rate:
        with torch.no_grad():
            mask = drop_mask(self_attention(features, channels=channels), threshold)
        return features * mask
    weighed: Tensor = _Weighed.apply(features, channels)
    return weighed


def attention_mean(features: Tensor, *, rate: float, threshold: float, channels: int = 1) -> Tensor:
    """The mean over the map of what `attention_dropout` gives, (B, C), which is not written down for it.

    Behind the last map, the largest that is trained, that is nearly all that the layer costs.
    """
    rows = features.movedim(channels, -1).flatten(1, 2)
    drops = float(torch.rand(())) < rate
    with torch.no_grad():
        attention = self_attention(rows, channels=-1)
        weight = drop_mask(attention, threshold) if drops else attention.sigmoid()
    mean: Tensor = _WeighedMean.apply(rows, weight, drops)
    return mean


class _WeighedMean(torch.autograd.Function):
    """mean over n rows of w · x, where w is given, or is the sigmoid of the mean of x over channels.

    Its gradient is one product: of w, with a second column w (1 − w) (g · x) / channels where w is that sigmoid, and of
    g / n over a row of ones.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, given: bool) -> Tensor:
        ctx.save_for_backward(weight, *(() if given else (rows,)))
        return torch.bmm(weight.mT, rows).squeeze(1) / rows.shape[1]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        weight, *saved = ctx.saved_tensors
        right = gradient.unsqueeze(1) / weight.shape[1]
        if not saved:
            return torch.bmm(weight, right), None, None
        inner = torch.bmm(saved[0], right.mT)
        slope = weight * (1 - weight) * inner / right.shape[2]
        return torch.bmm(torch.cat([weight, slope], 2), torch.cat([right, torch.ones_like(right)], 1)), None, None


class _Weighed(torch.autograd.Function):
    """x · sigmoid(mean of x over channels).

    Its gradient, g · s + mean(g · x) · s (1 − s), passes over the features half as often as that of its parts.
    """

    @staticmethod
    def forward(ctx: Any, features: Tensor, channels: int) -> Tensor:
        weight = self_attention(features, channels=channels).sigmoid()
        ctx.save_for_backward(features, weight)
        ctx.channels = channels
        return features * weight

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        features, weight = ctx.saved_tensors
        # On a processor sample by sample: the products of one stay in its cache, those of a batch are a new map.
        size = 1 if features.device.type == "cpu" else len(features)
        pieces = zip(gradient.split(size), features.split(size), strict=True)
        inner = torch.cat([torch.linalg.vecdot(g, x, dim=ctx.channels) for g, x in pieces]).unsqueeze(ctx.channels)
        slope = inner * weight * (1 - weight) / features.shape[ctx.channels]
        return (gradient * weight).add_(slope), None


class ADL(nn.Module):
    """The layer, to be put behind any other that gives a map.

    rate       how often the most discriminative cells are dropped; else all are weighed by importance
    threshold  cells that reach this share of the largest attention are dropped
    channels   the axis of the channels: 1, or 3 where they come last

    >>> features = torch.rand(2, 8, 7, 7)
    >>> torch.equal(ADL().eval()(features), features)
    True
    """

    def __init__(self, rate: float = RATE, threshold: float = THRESHOLD, *, channels: int = 1) -> None:
        super().__init__()
        _check(rate, threshold)
        self.rate, self.threshold, self.channels = rate, threshold, channels

    def forward(self, features: Tensor) -> Tensor:
        if not self.training:
            return features
        return attention_dropout(features, rate=self.rate, threshold=self.threshold, channels=self.channels)

    def extra_repr(self) -> str:
        return f"rate={self.rate}, threshold={self.threshold}"


class AttentionMean(nn.Module):
    """The layer before a mean over the map, and that mean, `mean`, in one; in evaluation it is the mean alone."""

    def __init__(self, mean: nn.Module, rate: float = RATE, threshold: float = THRESHOLD, *, channels: int = 1) -> None:
        super().__init__()
        _check(rate, threshold)
        self.mean = mean
        self.rate, self.threshold, self.channels = rate, threshold, channels

    def forward(self, features: Tensor) -> Tensor:
        if not self.training:
            mean: Tensor = self.mean(features)
            return mean
        return attention_mean(features, rate=self.rate, threshold=self.threshold, channels=self.channels)


@dataclass(frozen=True)
class _After:
    """A hook that puts what a module gives through the layer while that module is in training mode."""

    rate: float
    threshold: float
    channels: int

    def __call__(self, module: nn.Module, given: Any, output: Any) -> Any:
        if not module.training:
            return None
        return attention_dropout(output, rate=self.rate, threshold=self.threshold, channels=self.channels)


def put_adl(
    network: nn.Module,
    places: Sequence[str],
    *,
    rate: float = RATE,
    threshold: float = THRESHOLD,
    channels: int = 1,
) -> list[Any]:
    """Put the layer behind the modules of these names ("" is the network itself), and give handles that remove it.

    A hook in place of a module of its own: the names of the weights stay, and so does the code of the network.

    >>> network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())
    >>> [handle] = put_adl(network, ["1"], threshold=0.9)
    >>> handle.remove()
    """
    _check(rate, threshold)
    known = dict(network.named_modules())
    for place in places:
        if place not in known:
            near = [name for name in known if name and name.count(".") <= 1]
            raise InputError(
                f"There is no trained module {place!r} to put ADL behind: take one of {', '.join(near[-12:])}.",
                field="adl_at",
            )
    return [known[place].register_forward_hook(_After(rate, threshold, channels)) for place in places]


def _check(rate: float, threshold: float) -> None:
    for name, value in (("drop_rate", rate), ("drop_threshold", threshold)):
        if not 0 <= value <= 1:
            raise InputError(f"{name} is {value}: give a number from 0 to 1.", field=name)
