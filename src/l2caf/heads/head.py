"""`Head`: what follows the layer, as a function of the filter."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..numerics import rows
from ..preprocessing import Crop
from ..recording.borrow import Call
from ..recording.layers import Layer
from ..recording.layout import Layout
from ..recording.replay import OUTPUT
from .affine import AffineMap
from .endpoint import Endpoint
from .tangent import Tangent

if TYPE_CHECKING:
    from .recorded import RecordedHead


ROWS = 512  # samples that are computed at once where a head takes several filters for each


class Way(Enum):
    """How the filtered output is computed."""

    CHEAPEST = "cheapest"  # by whatever the data confirmed: an affine map, a part of the head
    REPLAY = "replay"  # all that follows the layer: the paper's fast form
    WHOLE = "whole"  # the whole network: the paper's vanilla form


class Head(abc.ABC):
    """What follows the layer, for one batch: FT(f) = head(A * f), and the cheapest verified way to it.

    `features` is the layer's output A, `output` the untouched output NT = head(A), `size` the input's size along the
    axes of the grid. Filters are (B, n) or, where said so, (K, B, n) for K maps per sample.

    >>> import l2caf
    >>> network = torch.nn.Sequential(
    ...     torch.nn.Conv2d(3, 8, 4, stride=4), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    ... )
    >>> head = l2caf.record(network, torch.rand(2, 3, 32, 32)).head
    >>> head.columns.shape, head.is_affine
    (torch.Size([2, 8, 64]), True)
    >>> bool(torch.allclose(head.filtered(torch.ones(2, 64)), head.output, atol=1e-5))
    True
    """

    layer: Layer
    features: Tensor
    output: Tensor
    size: tuple[int, ...]
    crops: tuple[Crop, ...] | None = None  # where the inputs lie on their photographs, where that is known
    samples: Tensor | None = None  # which samples this is a view for, (B,); None for all

    @property
    def layout(self) -> Layout:
        """The axes of the map."""
        return self.layer.layout

    @property
    def batch(self) -> int:
        return self.output.shape[0]

    @property
    def positions(self) -> int:
        return self.layer.layout.positions

    @cached_property
    def columns(self) -> Tensor:
        """The map as (B, C, n), whatever its layout."""
        return self.layer.layout.columns(self.features)

    @cached_property
    def finite(self) -> Tensor:
        """Which samples have neither NaN nor infinity at the layer and in the output: (B,)."""
        if self._sums_are_finite:
            return torch.ones(self.batch, dtype=torch.bool, device=self.output.device)
        features = rows(self.features).isfinite().all(dim=1).reshape(self.batch, -1).all(dim=1)
        return features & rows(self.output).isfinite().all(dim=1)

    @cached_property
    def all_finite(self) -> bool:
        """Whether it is all samples, as good as always, which is soon told."""
        return self.samples is None and self._sums_are_finite

    @property
    def _sums_are_finite(self) -> bool:
        return math.isfinite(float(self.features.sum() + self.output.sum()))

    def energy(self) -> Tensor:
        """How strong each position is, (B, n): a start for a search where the loss has no slope."""
        return self.columns.float().square().sum(dim=1).nan_to_num(0.0, 0.0, 0.0)

    has_slope: bool = False  # known to be curved, and run once with its graph
    is_known: bool = False  # known from an earlier run and confirmed on this batch: nothing was fitted to this one

    @property
    @abc.abstractmethod
    def evaluations(self) -> int:
        """How often what follows the layer was computed."""

    @property
    @abc.abstractmethod
    def is_affine(self) -> bool:
        """Whether the output is affine in the filter, for filters of any sign."""

    @abc.abstractmethod
    def in_full(self) -> RecordedHead:
        """This head, recorded, for what a plan cannot answer."""

    def reading(self, read: Callable[[Tensor], Tensor]) -> Head:
        """The same head with a part or a function of the output in its place."""
        return self.in_full().reading(read)

    def tangent(self, at: Call = OUTPUT) -> Tangent:
        """The slope of an endpoint at the untouched filter, with the head computed in full."""
        untouched = torch.ones(self.batch, self.positions, device=self.features.device)
        return Tangent.of(lambda weights: self.filtered(weights, at, way=Way.REPLAY), untouched)

    def frames(self) -> list[Head]:
        """Views of this head, each with one frame of the clip filtered and the others as they are."""
        return self.in_full().frames()

    def each_frame(self) -> Head | None:
        """The same for all frames at once: the batch as many times as it has frames; None where that cannot be run."""
        return self.in_full().each_frame()

    @abc.abstractmethod
    def alike(self, at: str | None, *, needs_scale: bool) -> list[Head]:
        """Views of this head, each for samples that share an endpoint and a way to be solved; mostly one for all."""

    @abc.abstractmethod
    def endpoint(self, at: str | None, *, needs_scale: bool) -> Endpoint:
        """Where a question is put: at a named module, at the output, or before it where it is scale-invariant."""

    @abc.abstractmethod
    def name_of(self, at: Call) -> str:
        """The name of an endpoint."""

    @abc.abstractmethod
    def value(self, at: Call = OUTPUT) -> Tensor:
        """The untouched value of an endpoint."""

    @abc.abstractmethod
    def moved(self, at: Call = OUTPUT) -> Tensor:
        """For which samples any filter makes a difference: (B,)."""

    @abc.abstractmethod
    def filtered(self, weights: Tensor, at: Call = OUTPUT, *, way: Way = Way.CHEAPEST) -> Tensor:
        """The value of an endpoint with every position of the map weighed, for filters (B, n)."""

    def takes_rows(self, at: Call = OUTPUT, *, way: Way = Way.CHEAPEST) -> bool:
        """Whether an endpoint can be computed for some rows of the batch alone, as often as wanted: `filtered_rows`."""
        return False

    def filtered_rows(self, weights: Tensor, rows: Tensor, at: Call = OUTPUT) -> Tensor:
        """The value of an endpoint for filters (R, n) on the samples that `rows` (R,) names."""
        raise NotImplementedError

    @abc.abstractmethod
    def recomputed(self, weights: Tensor, at: Call = OUTPUT) -> Tensor:
        """The same for (K, B, n) filters, as (K, B, m), without use of any fitted map: a check on one."""

    @abc.abstractmethod
    def why_not_affine(self, at: Call = OUTPUT) -> str | None:
        """What stands against an affine map of an endpoint, or None; nothing is computed for it."""

    @abc.abstractmethod
    def fits(self, at: Call = OUTPUT) -> bool:
        """Whether an affine map of an endpoint is of a size that one can keep."""

    @abc.abstractmethod
    def affine(self, at: Call = OUTPUT) -> AffineMap | None:
        """An endpoint as an affine map, or None where the data contradict it or it would not fit."""

    @abc.abstractmethod
    def affine_part(self) -> AffineMap | None:
        """The last value on the way to the output that is affine in the filter and through which all passes."""

    @abc.abstractmethod
    def gradients(self, directions: Tensor) -> Tensor:
        """The gradient in f of directions . FT(f) for an affine head: (K, B, m) gives (K, B, n)."""

    def gradients_along(self, places: Tensor, at: float, elsewhere: float) -> Tensor | None:
        """The same for directions that are one number at (K, B) places and another elsewhere; None: write them out."""
        return None

    @abc.abstractmethod
    def rerun(self, features: Tensor) -> Tensor:
        """The output with another map at the layer, with its graph."""
