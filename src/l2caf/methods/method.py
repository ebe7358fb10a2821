"""`Method`: from a network and inputs to a `Heatmap`; the context is kept here, the formula in each method."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

from torch import Tensor, nn

from ..errors import MethodError
from ..heads.head import Head
from ..heatmap import Heatmap
from ..recorder import record_on
from ..recording.borrow import borrowed, unwrap
from ..recording.inputs import Inputs, Select
from ..recording.layout import Layout
from ..rendering.region import OutputRegion
from ..solution import Outcome, Solution

Where = str | nn.Module | None


@dataclass(frozen=True)
class Maps:
    """What a method's formula gives: signed weights, (B, *grid) or (B, K, *grid), and what they stand for.

    >>> import torch
    >>> Maps(torch.rand(2, 7, 7)).keeps_sign, Maps(torch.rand(2, 3, 7, 7), several=True).weights.ndim
    (False, 4)
    """

    weights: Tensor
    keeps_sign: bool = False
    classes: Tensor | None = None
    solution: Solution | None = None
    several: bool = False  # whether there is an axis of K maps
    region: OutputRegion | None = None  # of the output, where the question is about one


class Method(abc.ABC):
    """Shows where a network looked.

    Called with a network and inputs it runs the network once. `on` takes a head that was prepared already, so that
    several methods can share one run.

    A method of one's own gives the formula:

    >>> import torch
    >>> class Strength(Method):
    ...     def formula(self, head):
    ...         return Maps(head.columns.norm(dim=1).unflatten(1, head.layout.shape))
    >>> network = torch.nn.Sequential(
    ...     torch.nn.Conv2d(3, 8, 4, stride=4), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    ... )
    >>> Strength()(network, torch.rand(1, 3, 32, 32))
    Heatmap(1 sample of 32×32, layer '0', Strength, formula)
    """

    @property
    def name(self) -> str:
        return type(self).__name__

    @property
    def by_slope(self) -> bool:
        """Whether the gradient of the untouched output is all that this needs of a head that is known to be curved."""
        return False

    @overload
    def __call__(
        self,
        network: nn.Module,
        inputs: Inputs,
        *,
        layer: Where = None,
        call: int | None = None,
        output: Select = None,
        of: str | int | None = None,
        layout: Layout | None = None,
    ) -> Heatmap: ...

    @overload
    def __call__(
        self,
        network: nn.Module,
        inputs: Inputs,
        *,
        layer: str | nn.Module | Sequence[str | nn.Module] | None = None,
        call: int | Sequence[int] | None = None,
        output: Select = None,
        of: str | int | None = None,
        layout: Layout | None = None,
    ) -> Heatmap | tuple[Heatmap, ...]: ...

    def __call__(
        self,
        network: nn.Module,
        inputs: Inputs,
        *,
        layer: str | nn.Module | Sequence[str | nn.Module] | None = None,
        call: int | Sequence[int] | None = None,
        output: Select = None,
        of: str | int | None = None,
        layout: Layout | None = None,
    ) -> Heatmap | tuple[Heatmap, ...]:
        """Explain a batch; `layer` defaults to the last one with a map, `output` picks what to explain.

        `of` says which input a map is to belong to, where there are several; `layout` how the layer is laid out.
        Several layers, or several calls of one, give a heatmap each, from one run of the network.
        """
        with borrowed(unwrap(network)) as loan:
            recording = record_on(
                loan, network, inputs, layer=layer, call=call, output=output, of=of, layout=layout, slope=self.by_slope
            )
            found = tuple(self.on(head) for head in recording.heads)
        return found if recording.several else found[0]

    def on(self, head: Head) -> Heatmap:
        """Explain the batch that this head was made for."""
        maps = self.formula(head)
        if not type(self).__module__.startswith("l2caf."):
            self._check(maps, head)
        layer = head.layer
        weights = maps.weights if head.all_finite else _nothing_where(~head.finite, maps.weights)
        return Heatmap(
            weights=weights,
            size=head.size,
            layer=layer.name,
            method=self.name,
            axes=("sample", *(["map"] if maps.several else []), *layer.layout.axes),
            call=layer.call if layer.calls > 1 else None,
            input=layer.input,
            crops=head.crops,
            keeps_sign=maps.keeps_sign,
            classes=maps.classes,
            region=maps.region,
            solution=_noted(maps.solution or self._said(head, weights, several=maps.several), layer.note),
        )

    def _check(self, maps: object, head: Head) -> None:
        """Refuse what a formula of the user's own gives and is no map of this layer."""
        grid = head.layout.shape
        if isinstance(maps, Maps):
            shape = maps.weights.shape
            if shape[:1] == (head.batch,) and shape[2 if maps.several else 1 :] == grid:
                return
        got = f"weights of shape {tuple(maps.weights.shape)}" if isinstance(maps, Maps) else f"a {type(maps).__name__}"
        ours = ", ".join(map(str, grid))
        raise MethodError(
            f"The formula of {self.name} gives {got}: return Maps with weights ({head.batch}, {ours}), or with"
            f" several=True ({head.batch}, K, {ours})."
        )

    def _said(self, head: Head, weights: Tensor, *, several: bool) -> Solution:
        """What is to be said of a formula's maps: of samples that are not finite, that nothing moves, or that a layer
        whose positions are not verified shows."""
        empty = ~weights.flatten(2 if several else 1).any(dim=-1)
        usual = Outcome.FORMULA if head.layer.verdict == "confirmed" else Outcome.UNDECIDED

        def outcome(finite: bool, nothing: bool) -> Outcome:
            return Outcome.NON_FINITE if not finite else Outcome.UNMOVED if nothing else usual

        said: Any = [
            [outcome(finite, one) for one in nothing] if several else outcome(finite, nothing)
            for finite, nothing in zip(head.finite.tolist(), empty.tolist(), strict=True)
        ]
        return Solution.of_formula(self.name, weights, said)

    @abc.abstractmethod
    def formula(self, head: Head) -> Maps:
        """Compute the maps at the layer's grid."""


def _noted(solution: Solution, note: str) -> Solution:
    """A solution with what is to be said of its layer."""
    return replace(solution, reason="; ".join(filter(None, (solution.reason, note)))) if note else solution


def _nothing_where(not_finite: Tensor, weights: Tensor) -> Tensor:
    """Empty the maps of samples that met NaN or infinity: what is left of them would mislead."""
    return weights.masked_fill(not_finite.reshape(-1, *[1] * (weights.ndim - 1)), 0.0)
