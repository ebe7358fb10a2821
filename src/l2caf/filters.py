"""The filters: families of weights over the positions of a map, each held to its own constraint."""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .errors import InputError


class Filter(abc.ABC):
    """A family of weights f over a grid of positions, reached through free parameters p.

    `weights` maps parameters (B, P) to weights (B, positions) that obey the constraint, differentiably and for
    any grid with one, two or three axes. A solver looks at a few properties only.

    >>> class Positive(Filter):
    ...     def weights(self, parameters, grid):
    ...         return parameters.square() / parameters.square().norm(dim=1, keepdim=True)
    ...
    ...     def start(self, batch, grid, generator=None):
    ...         return torch.ones(batch, math.prod(grid))
    >>> Positive().weights(torch.tensor([[1.0, 0.0]]), (2,)).tolist()
    [[1.0, 0.0]]
    """

    on_unit_sphere: bool = False  # all unit weights, of either sign, and nothing else: what closed forms need
    over_frames: bool = False  # constrained across the frames of a clip, which then have one filter together
    parameters_are_weights: bool = False  # any weights, scaled, are parameters too: so a start can be given as weights

    @property
    def name(self) -> str:
        return type(self).__name__

    @abc.abstractmethod
    def weights(self, parameters: Tensor, grid: tuple[int, ...]) -> Tensor:
        """Return the constrained weights, (B, positions)."""

    @abc.abstractmethod
    def start(self, batch: int, grid: tuple[int, ...], generator: torch.Generator | None = None) -> Tensor:
        """Return parameters to start from: random with a generator, the most uniform filter without one."""

    def retract(self, parameters: Tensor) -> Tensor:
        """Return the representative of the same weights that is best to go on from."""
        return parameters


def _uniform(batch: int, positions: int, generator: torch.Generator | None) -> Tensor:
    if generator is None:
        return torch.ones(batch, positions)
    return torch.rand(batch, positions, generator=generator)


@dataclass(frozen=True)
class UnitL2(Filter):
    """f = p / ||p||_2: many modes, either sign; the filter of the paper.

    >>> UnitL2().weights(torch.tensor([[3.0, -4.0]]), (2,)).tolist()
    [[0.6000000238418579, -0.800000011920929]]
    """

    on_unit_sphere = True
    parameters_are_weights = True

    def weights(self, parameters: Tensor, grid: tuple[int, ...]) -> Tensor:
        return parameters / parameters.norm(dim=1, keepdim=True).clamp_min(_TINY)

    def start(self, batch: int, grid: tuple[int, ...], generator: torch.Generator | None = None) -> Tensor:
        return _uniform(batch, math.prod(grid), generator)

    def retract(self, parameters: Tensor) -> Tensor:
        return parameters / parameters.norm(dim=1, keepdim=True).clamp_min(_TINY)


@dataclass(frozen=True)
class UnitL2PerFrame(Filter):
    """f_t = p_t / ||p_t||_2 for each frame t of a clip: all frames are filtered together, each with a norm of its own.

    >>> UnitL2PerFrame().weights(torch.tensor([[3.0, 4.0, 0.0, 2.0]]), (2, 1, 2)).tolist()
    [[0.6000000238418579, 0.800000011920929, 0.0, 1.0]]
    """

    over_frames = True
    parameters_are_weights = True

    def weights(self, parameters: Tensor, grid: tuple[int, ...]) -> Tensor:
        if len(grid) < 3:
            raise InputError(
                "UnitL2PerFrame has a norm for each frame of a clip, and this map has no frames: take UnitL2().",
                field="filter",
            )
        frames = parameters.unflatten(1, (grid[0], -1))
        return (frames / frames.norm(dim=2, keepdim=True).clamp_min(_TINY)).flatten(1)

    def start(self, batch: int, grid: tuple[int, ...], generator: torch.Generator | None = None) -> Tensor:
        return _uniform(batch, math.prod(grid), generator)

    def retract(self, parameters: Tensor) -> Tensor:
        return parameters / parameters.norm(dim=1, keepdim=True).clamp_min(_TINY)


@dataclass(frozen=True)
class UnitL1(Filter):
    """f = p / ||p||_1: sparser than the unit L2 norm, either sign.

    >>> UnitL1().weights(torch.tensor([[3.0, -1.0]]), (2,)).tolist()
    [[0.75, -0.25]]
    """

    parameters_are_weights = True

    def weights(self, parameters: Tensor, grid: tuple[int, ...]) -> Tensor:
        return parameters / parameters.abs().sum(dim=1, keepdim=True).clamp_min(_TINY)

    def start(self, batch: int, grid: tuple[int, ...], generator: torch.Generator | None = None) -> Tensor:
        return _uniform(batch, math.prod(grid), generator)

    def retract(self, parameters: Tensor) -> Tensor:
        return parameters / parameters.norm(dim=1, keepdim=True).clamp_min(_TINY)


@dataclass(frozen=True)
class Softmax(Filter):
    """f = softmax(p): positive, sums to one, tends to a single position.

    >>> Softmax().weights(torch.zeros(1, 4), (2, 2)).tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """

    def weights(self, parameters: Tensor, grid: tuple[int, ...]) -> Tensor:
        return parameters.softmax(dim=1)

    def start(self, batch: int, grid: tuple[int, ...], generator: torch.Generator | None = None) -> Tensor:
        return _uniform(batch, math.prod(grid), generator)


@dataclass(frozen=True)
class Gaussian(Filter):
    """f(x) proportional to exp(-|x - p|^2 / 2 sigma^2), summing to one: a single bump whose centre p is free.

    The spread is `sigma` of a seventh of the grid along each axis: with sigma = 1 that is one cell of the 7 x 7
    map for which the paper sets the covariance to the identity, and the same share of the picture on any other grid.

    >>> int(Gaussian().weights(torch.tensor([[0.5, 0.5]]), (7, 7)).argmax())  # the middle of 49
    24
    """

    sigma: float = 1.0

    def __post_init__(self) -> None:
        number = isinstance(self.sigma, (int, float)) and not isinstance(self.sigma, bool)
        if not number or not 0 < self.sigma < math.inf:
            raise InputError(f"The sigma of a Gaussian is {self.sigma!r}: give a number above 0, such as 1.")

    def weights(self, parameters: Tensor, grid: tuple[int, ...]) -> Tensor:
        places = torch.stack(
            torch.meshgrid(*(torch.arange(cells, dtype=parameters.dtype) for cells in grid), indexing="ij"),
            dim=-1,
        ).reshape(1, -1, len(grid))
        spread = self.sigma * torch.tensor(grid, dtype=parameters.dtype) / 7
        # The centre is a share of the grid, so that one step means as much on a coarse grid as on a fine one.
        centre = parameters * torch.tensor(grid, dtype=parameters.dtype, device=parameters.device) - 0.5
        distance = (places.to(parameters.device) - centre.unsqueeze(1)) / spread.to(parameters.device)
        return (-0.5 * distance.square().sum(dim=-1)).softmax(dim=1)

    def start(self, batch: int, grid: tuple[int, ...], generator: torch.Generator | None = None) -> Tensor:
        if generator is None:
            return torch.full((batch, len(grid)), 0.5)
        return torch.rand(batch, len(grid), generator=generator)


_TINY = 1e-30
