"""`Method`: from a network and inputs to a `Heatmap`; the context is kept here, the formula in each method."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ..heads.head import Head
from ..heatmap import Heatmap
from ..recorder import record
from ..recording.inputs import Inputs, Select


@dataclass(frozen=True)
class Maps:
    """What a method's formula gives: (B, *grid) or (B, K, *grid) signed weights, and what they stand for."""

    weights: Tensor
    keeps_sign: bool = False
    classes: Tensor | None = None
    solution: Any = None


class Method(abc.ABC):
    """Shows where a network looked.

    Called with a network and inputs it runs the network once. `on` takes a head that was prepared already, so that
    several methods can share one run.
    """

    @property
    def name(self) -> str:
        return type(self).__name__

    def __call__(
        self,
        network: nn.Module,
        inputs: Inputs,
        *,
        layer: str | nn.Module | None = None,
        call: int | None = None,
        select: Select = None,
    ) -> Heatmap:
        """Explain a batch; `layer` defaults to the last one with a map, `select` picks the output to explain."""
        with record(network, inputs, layer=layer, call=call, select=select) as recording:
            return self.on(recording.head)

    def on(self, head: Head) -> Heatmap:
        """Explain the batch that this head was recorded on."""
        maps = self.formula(head)
        return Heatmap(
            weights=_nothing_where(~head.finite, maps.weights),
            size=head.size,
            layer=head.layer.name,
            method=self.name,
            keeps_sign=maps.keeps_sign,
            classes=maps.classes,
            solution=maps.solution,
        )

    @abc.abstractmethod
    def formula(self, head: Head) -> Maps:
        """Compute the maps at the layer's grid."""


def _nothing_where(not_finite: Tensor, weights: Tensor) -> Tensor:
    """Empty the maps of samples that met NaN or infinity: what is left of them would mislead."""
    return weights.masked_fill(not_finite.reshape(-1, *[1] * (weights.ndim - 1)), 0.0)
