"""`Problem`: K maps for each of B samples; all that a solver sees."""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .deadline import OutOfTime, is_limited, is_over
from .errors import MethodError
from .filters import Filter
from .heads.affine import AffineMap
from .heads.endpoint import Endpoint
from .heads.head import ROWS, Head
from .heads.head import Way as Way
from .heads.tangent import Tangent as Tangent
from .numerics import ALIKE, FEELS_SCALE, rows
from .objectives.objective import Loss, Spike
from .recording.replay import OUTPUT
from .unit_sphere import Floats


class Shares(NamedTuple):
    """Sums over the numbers of an output, (K, B): of what each adds to a linear loss, and of the magnitudes of that."""

    total: Tensor
    size: Tensor


class Met:
    """The best filter that each search met: (K, B, n) weights, their (K, B) losses, and how many were tried.

    Of one map it is a part of the whole, so that what its search meets is kept there.
    """

    def __init__(self, maps: int, batch: int, positions: int, device: torch.device) -> None:
        self.weights = torch.zeros(maps, batch, positions, device=device)
        self.losses = torch.full((maps, batch), torch.inf, dtype=torch.float64, device=device)
        self.tried = torch.zeros(maps, batch, dtype=torch.int64, device=device)

    def one(self, number: int) -> Met:
        part = object.__new__(Met)
        part.weights, part.losses, part.tried = (
            own[number : number + 1] for own in (self.weights, self.losses, self.tried)
        )
        return part

    @torch.no_grad()
    def note(self, weights: Tensor, losses: Tensor) -> None:
        losses = losses.detach().double()
        better = losses < self.losses
        self.losses.copy_(torch.where(better, losses, self.losses))
        self.weights.copy_(torch.where(better.unsqueeze(2), weights.detach().to(self.weights), self.weights))
        self.tried += 1


class Problem:
    """min over filters f of loss(o(f)), for K losses and every sample of a batch of B; filters are (K, B, n).

    o is the network's output, or the value of an earlier endpoint. `finite` tells which samples can be explained at
    all, `moved` for which any filter makes a difference, `informative` whether the endpoint has anything to tell.

    >>> import l2caf
    >>> from l2caf.objectives.objective import LeastSquares
    >>> network = torch.nn.Sequential(
    ...     torch.nn.Conv2d(3, 8, 4, stride=4), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    ... )
    >>> head = l2caf.record(network, torch.rand(2, 3, 32, 32)).head
    >>> problem = Problem(head, l2caf.UnitL2(), (LeastSquares(head.output),))
    >>> problem.maps, problem.batch, problem.grid, problem.value(torch.ones(1, 2, 64)).shape
    (1, 2, (8, 8), torch.Size([1, 2]))
    """

    def __init__(
        self,
        head: Head,
        filter: Filter,
        losses: tuple[Loss, ...],
        endpoint: Endpoint | None = None,
        *,
        way: Way = Way.CHEAPEST,
        met: Met | None = None,
    ) -> None:
        self.filter = filter
        self.evaluations = 0
        self._head = head
        self._endpoint = endpoint or Endpoint()
        self._way = way
        self.losses = tuple(loss.fitted(self.untouched) for loss in losses)
        # The best filters that are evaluated, where there is a limit of time.
        self.best_met = met or (Met(len(losses), self.batch, self.positions, self.device) if is_limited() else None)

    @property
    def verified(self) -> bool:
        """Whether the layer's positions are known to answer to the input beneath them."""
        return self._head.layer.verdict == "confirmed"

    @property
    def why_undecided(self) -> str:
        """What is known of the layer's positions, in words."""
        return self._head.layer.why

    @property
    def alike(self) -> Tensor:
        """For which samples the map is the same at every position, but for rounding: (B,)."""
        columns = self._head.columns.detach()
        spread = (columns.amax(dim=2) - columns.amin(dim=2)).amax(dim=1)
        return spread <= max(ALIKE, 4 * torch.finfo(columns.dtype).eps) * columns.abs().amax(dim=(1, 2))

    @property
    def maps(self) -> int:
        """K."""
        return len(self.losses)

    @property
    def batch(self) -> int:
        return self._head.batch

    @property
    def grid(self) -> tuple[int, ...]:
        return self._head.layout.shape

    @property
    def positions(self) -> int:
        return math.prod(self.grid)

    @property
    def device(self) -> torch.device:
        return self._head.features.device

    @property
    def endpoint(self) -> str:
        """The name of where the question is put."""
        return self._head.name_of(self._endpoint.at)

    @property
    def informative(self) -> bool:
        return self._endpoint.informative

    @property
    def finite(self) -> Tensor:
        return self._head.finite

    @property
    def all_finite(self) -> bool:
        """Whether all samples are."""
        return self._head.all_finite

    @property
    def moved(self) -> Tensor:
        return self._head.moved(self._endpoint.at)

    @cached_property
    def untouched(self) -> Tensor:
        """The endpoint's value with nothing filtered."""
        return self._head.value(self._endpoint.at).detach()

    @property
    def precision(self) -> float:
        """The relative rounding of the endpoint's numbers."""
        return torch.finfo(self.untouched.dtype).eps

    def one(self, number: int) -> Problem:
        """The problem of one of the maps alone."""
        met = None if self.best_met is None else self.best_met.one(number)
        losses = self.losses[number : number + 1]
        alone = Problem(self._head, self.filter, losses, self._endpoint, way=self._way, met=met)
        alone.evaluations = self.evaluations
        return alone

    @cached_property
    def approximated(self) -> Problem:
        """This problem with each loss to second order, where it has such a form."""
        approximations = [loss.approximation for loss in self.losses]
        if not any(approximations):
            return self
        losses = tuple(own or loss for own, loss in zip(approximations, self.losses, strict=True))
        return Problem(self._head, self.filter, losses, self._endpoint, way=self._way)

    def without_shortcuts(self) -> Problem:
        """The same problem with the head computed in full, for where what was fitted to it is not what it is."""
        return Problem(self._head, self.filter, self.losses, self._endpoint, way=Way.REPLAY, met=self.best_met)

    def value(self, weights: Tensor, *, way: Way | None = None, only: Tensor | None = None) -> Tensor:
        """The losses at (K, B, n) filters: (K, B), with their graph; `OutOfTime` where a limit is over.

        With `only`, (B,), the head may leave the other samples out; their losses are then those of nothing filtered.
        """
        if is_over():
            raise OutOfTime
        chosen = way or self._way
        if chosen is Way.WHOLE and self.endpoint != "output":
            raise MethodError("The vanilla form runs the whole network, so its loss is on the network's output only.")
        self.evaluations += 1
        at = self._endpoint.at
        fewer = only is not None and not bool(only.all()) and self.takes_rows
        found = [
            loss(self._of_rows(one, only) if fewer else self._head.filtered(one, at, way=chosen))
            for loss, one in zip(self.losses, weights, strict=True)
        ]
        losses = torch.stack(found)
        if self.best_met is not None:
            self.best_met.note(weights, losses if only is None else torch.where(only, losses, torch.inf))
        return losses

    @property
    def takes_rows(self) -> bool:
        """Whether some samples can be computed alone, and several filters per sample at once: `several`."""
        return self._head.takes_rows(self._endpoint.at, way=self._way)

    def several(self, weights: Tensor, only: Tensor) -> Tensor:
        """The losses of a problem of one map at (W, B, n) filters per sample, for those that `only`, (W, B), names.

        All at once where the head takes rows. The other losses are those of nothing filtered.
        """
        if not self.takes_rows:
            parts = zip(weights, only, strict=True)
            return torch.stack([self.value(one.unsqueeze(0), only=own)[0] for one, own in parts])
        at_once = max(1, ROWS // max(1, int(only.sum()) // len(weights)))
        if len(weights) > at_once:
            halves = zip(weights.split(at_once), only.split(at_once), strict=True)
            return torch.cat([self.several(part, own) for part, own in halves])
        if is_over():
            raise OutOfTime
        (loss,) = self.losses
        self.evaluations += len(weights)
        place = only.nonzero(as_tuple=True)
        outputs = self._head.filtered_rows(weights[place], place[1], self._endpoint.at)
        whole = self.untouched.expand(len(weights), *self.untouched.shape).index_put(place, outputs)
        losses = torch.stack([loss(own) for own in whole])
        if self.best_met is not None:
            for one, own in zip(weights, torch.where(only, losses, torch.inf), strict=True):
                self.best_met.note(one.unsqueeze(0), own.unsqueeze(0))
        return losses

    def _of_rows(self, weights: Tensor, only: Tensor | None) -> Tensor:
        """The endpoint with some samples filtered, and the others as they are."""
        assert only is not None
        rows = only.nonzero().flatten()
        return self.untouched.index_put((rows,), self._head.filtered_rows(weights[rows], rows, self._endpoint.at))

    @cached_property
    def tangent(self) -> Tangent:
        """The slope of the endpoint at the untouched filter, with the head computed in full."""
        self.evaluations += 1
        return self._head.tangent(self._endpoint.at)

    @property
    def has_known_slope(self) -> bool:
        """Whether an earlier run of this network confirmed that its gradients are those of its values."""
        return self._head.has_slope

    def confirmed(self, weights: Tensor) -> Tensor:
        """The losses at (K, B, n) filters, computed without use of any fitted map: a check on one."""
        shape = self.untouched.shape
        with torch.no_grad():
            outputs = self._head.recomputed(weights, self._endpoint.at)
            found = [loss(output.reshape(shape)).double() for loss, output in zip(self.losses, outputs, strict=True)]
        return torch.stack(found)

    @property
    def is_known(self) -> bool:
        """Whether the head was confirmed as what it is, on this batch, before the problem was posed."""
        return self._head.is_known and self.endpoint == "output"

    @torch.no_grad()
    def is_scale_invariant(self, *, by_slope: bool = False) -> bool:
        """Whether the uniform filter gives the untouched output already: to keep that then asks nothing.

        By slope: whether the tangent at the untouched filter does not feel the map's scale.
        """
        even = torch.full((self.maps, self.batch, self.positions), self.positions**-0.5, device=self.device)
        random = torch.randn(1, 1, self.positions, generator=torch.Generator().manual_seed(0)).to(even)
        if by_slope:
            scaled = self.tangent.along_untouched.square().sum(dim=1)
            moved = self.tangent.pulled_at_random.square().sum(dim=1)  # both are expected to be that of all of J
            return bool((scaled <= FEELS_SCALE * moved)[self.finite].all()) and bool(self.finite.any())
        at_even, at_random = self.value(even), self.value((random / random.norm()).expand_as(even))
        return bool((at_even <= FEELS_SCALE * at_random)[:, self.finite].all()) and bool(self.finite.any())

    def why_not_affine(self) -> str | None:
        """What stands against an affine map, or None."""
        return self._head.why_not_affine(self._endpoint.at)

    @property
    def holds_for_any_sign(self) -> bool:
        """Whether an affine map of the endpoint would hold for filters of any sign."""
        return self.endpoint != "output" or self._head.is_affine

    @property
    def fits(self) -> bool:
        """Whether an affine map is of a size that one can write out."""
        return self._head.fits(self._endpoint.at)

    def affine(self) -> AffineMap | None:
        """The endpoint as an affine map of the filter; None where the data contradict it."""
        return self._head.affine(self._endpoint.at)

    def affine_part(self) -> AffineMap | None:
        """The last affine value on the way to the output, for a start."""
        return self._head.affine_part()

    def gradients(self) -> Tensor:
        """The gradients of linear losses, which are the same at every filter: (K, B, n)."""
        spike = self.spike
        if spike is not None and self._endpoint.at == OUTPUT:
            along = self._head.gradients_along(*spike)
            if along is not None:
                return along
        directions = self.directions
        assert directions is not None
        if self._endpoint.at != OUTPUT:
            mapping = self.affine()
            assert mapping is not None
            return mapping.pull(directions.to(mapping.offset))
        return self._head.gradients(directions.to(self.untouched.dtype))

    @property
    def is_linear(self) -> bool:
        """Whether all losses are linear."""
        return all(loss.is_linear for loss in self.losses)

    @cached_property
    def directions(self) -> Tensor | None:
        """The directions of linear losses, (K, B, m); None where one of them is not linear."""
        found = [rows(loss.direction) for loss in self.losses if loss.direction is not None]
        return torch.stack(found) if len(found) == self.maps else None

    @cached_property
    def spike(self) -> Spike | None:
        """The directions of all losses in short, with (K, B) places, where each is such a one."""
        found = [loss.spike for loss in self.losses]
        first = found[0]
        if first is None or any(one is None or one[1:] != first[1:] for one in found):
            return None
        return Spike(torch.stack([one.places for one in found if one is not None]), first.at, first.elsewhere)

    @cached_property
    def shares(self) -> Shares | None:
        """What the numbers of the untouched endpoint add to linear losses, and how much they do in magnitude."""
        if not self.is_linear:
            return None
        untouched, spike = rows(self.untouched).double(), self.spike
        if spike is None:
            assert self.directions is not None
            shares = self.directions * untouched
            return Shares(shares.sum(dim=2), shares.abs().sum(dim=2))
        there, sizes = untouched.gather(1, spike.places.T).T, untouched.abs()
        total = spike.elsewhere * untouched.sum(dim=1) + (spike.at - spike.elsewhere) * there
        size = abs(spike.elsewhere) * sizes.sum(dim=1) + (abs(spike.at) - abs(spike.elsewhere)) * there.abs()
        return Shares(total, size)

    def keeps_output(self, loss: Loss) -> bool:
        """Whether a loss is zero where nothing is filtered: its target is the untouched value itself."""
        return loss.target is not None and loss.target.data_ptr() == self.untouched.data_ptr()

    def at_untouched(self) -> Tensor:
        """The losses with nothing filtered: (K, B)."""
        if self.shares is not None:
            return self.shares.total
        untouched = self.untouched.double()
        return torch.stack([loss(untouched) for loss in self.losses])

    def scale(self, loss: Loss) -> Floats:
        """How large the numbers are that a sum of squares is made of: the endpoint's, as its metric sees it, (B,)."""
        values = rows(self.untouched).cpu().double().numpy()
        metric = (loss.approximation or loss).metric
        with np.errstate(invalid="ignore", over="ignore"):
            if metric is None:
                return np.sqrt((values * values).sum(axis=1))
            found: Floats = metric.reach.cpu().numpy() * np.abs(values).max(axis=1)
            return found

    def energy(self) -> Tensor:
        """How strong each position is: (B, n)."""
        return self._head.energy()
