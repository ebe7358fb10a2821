"""`PlannedHead`: a head that is known from an earlier run, so that features and output are all that it needs."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from ..errors import InputError
from ..numerics import AGREE, agree, rows
from ..recording.borrow import Call
from ..recording.layers import Layer
from ..recording.replay import OUTPUT
from .affine import AffineMap, PooledMap
from .endpoint import Endpoint
from .head import Head, Way
from .pooled import PooledLinear
from .recorded import RecordedHead

ROUNDING = 1e-6  # of the largest mean: by how much two ways to add up the same numbers may differ


class PlannedHead(Head):
    """A mean over the positions and a linear map, verified on this batch: W mean(A) + b is the output just given.

    Asked for what only a recording can tell (a replay, a named endpoint), it records in full.
    """

    is_known = True

    def __init__(
        self,
        layer: Layer,
        features: Tensor,
        output: Tensor,
        *,
        size: tuple[int, ...],
        pooled: PooledLinear,
        record: Callable[[], RecordedHead],
    ) -> None:
        self.layer = layer
        self.features = features
        self.output = output
        self.size = size
        self.pooled = pooled
        self._record = record
        self._recorded: RecordedHead | None = None

    @cached_property
    def mapping(self) -> PooledMap:
        """The output as an affine map of the filter."""
        return PooledMap(self.pooled, self.columns)

    def of_batch(self, features: Tensor, output: Tensor) -> PlannedHead:
        """The same head for another batch, whose map and output are known; whoever has them has checked them."""

        def record() -> RecordedHead:
            raise InputError(
                "Only the map and the output of this batch are known, and this question needs the network: explain it"
                " with l2caf.explain."
            )

        return PlannedHead(self.layer, features, output, size=self.size, pooled=self.pooled, record=record)

    def is_confirmed(self, means: Tensor | None = None) -> bool:
        """Whether the head as it is known gives the output that the network gave.

        `means` are what its own linear layer made the output of, where that is known: if they are the means of the map,
        nothing is left to compute.
        """
        own = self.columns.mean(dim=2)
        if means is not None and means.shape == own.shape and means.dtype == own.dtype:
            wrong, largest = float(torch.dist(own, means, math.inf)), float(torch.linalg.vector_norm(own, math.inf))
            # A sum that is finite has no NaN or infinity in it.
            if wrong <= ROUNDING * largest and math.isfinite(float(self.output.sum())):
                self.all_finite = True
                return True
        predicted, given = self.pooled.of_mean(own), rows(self.output)
        # Written out, since this runs on every call: the largest difference against the largest number.
        wrong, largest = float((predicted - given).abs().amax()), float(given.abs().amax())
        if math.isfinite(wrong) and math.isfinite(largest):
            # No product of a NaN or an infinity is finite, not even that with zero, so there is none in the means.
            self.all_finite = True
            return wrong <= AGREE * max(largest, 1e-30)
        # Samples with NaN are left aside later, but if there are no others, nothing is confirmed.
        return agree(predicted, given) and bool(self.finite.any())

    @property
    def evaluations(self) -> int:
        return 0 if self._recorded is None else self._recorded.evaluations

    @property
    def is_affine(self) -> bool:
        return True

    def in_full(self) -> RecordedHead:
        if self._recorded is None:
            self._recorded = self._record()
        return self._recorded

    def alike(self, at: str | None, *, needs_scale: bool) -> list[Head]:
        return [self] if at is None else self.in_full().alike(at, needs_scale=needs_scale)

    def endpoint(self, at: str | None, *, needs_scale: bool) -> Endpoint:
        return Endpoint() if at is None else self.in_full().endpoint(at, needs_scale=needs_scale)

    def name_of(self, at: Call) -> str:
        return "output" if at == OUTPUT else self.in_full().name_of(at)

    def value(self, at: Call = OUTPUT) -> Tensor:
        return self.output if at == OUTPUT else self.in_full().value(at)

    def moved(self, at: Call = OUTPUT) -> Tensor:
        if at != OUTPUT:
            return self.in_full().moved(at)
        bias = self.pooled.bias
        moved = (self.output.reshape(self.batch, -1) != bias).any(dim=1)
        if bool(moved.all()):
            return moved
        random = torch.rand(self.batch, self.positions, generator=torch.Generator().manual_seed(0))
        pushed = self.mapping.push(random.to(self.columns))
        return moved | (pushed != 0).any(dim=1)

    def filtered(self, weights: Tensor, at: Call = OUTPUT, *, way: Way = Way.CHEAPEST) -> Tensor:
        if at != OUTPUT or way is not Way.CHEAPEST:
            return self.in_full().filtered(weights, at, way=way)
        return self.mapping(weights.to(self.columns.dtype)).reshape(self.output.shape)

    def recomputed(self, weights: Tensor, at: Call = OUTPUT) -> Tensor:
        return self.in_full().recomputed(weights, at) if at != OUTPUT else self.mapping(weights.to(self.columns.dtype))

    def why_not_affine(self, at: Call = OUTPUT) -> str | None:
        return None if at == OUTPUT else self.in_full().why_not_affine(at)

    def fits(self, at: Call = OUTPUT) -> bool:
        return at == OUTPUT or self.in_full().fits(at)

    def affine(self, at: Call = OUTPUT) -> AffineMap | None:
        return self.mapping if at == OUTPUT else self.in_full().affine(at)

    def affine_part(self) -> AffineMap | None:
        return self.mapping

    def gradients(self, directions: Tensor) -> Tensor:
        return self.mapping.pull(directions)

    def gradients_along(self, places: Tensor, at: float, elsewhere: float) -> Tensor | None:
        return self.mapping.pull_spikes(places, at, elsewhere)

    def rerun(self, features: Tensor) -> Tensor:
        means = self.layout.columns(features).mean(dim=2)
        output: Tensor = self.pooled.of_mean(means).reshape(self.output.shape)
        return output
