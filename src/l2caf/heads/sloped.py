"""`SlopedHead`: a head that is known to be curved, run once with its graph from the layer on.

A question that needs nothing but the slope (`Objective.is_slope`) costs one forward pass and the way back to the layer,
once or a few times. That the layer's positions are what they seem, and that the samples of a batch do not mix, was
found out by a recording of an earlier run with the same modules and the same kind of input.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import L2cafError
from ..recording.arranged import has_hooks
from ..recording.borrow import Call, forwards_replaced
from ..recording.inputs import Arguments, Select, select_output
from ..recording.layers import Layer, module_named
from ..recording.replay import OUTPUT
from .affine import AffineMap
from .endpoint import Endpoint
from .head import Head, Way
from .lean_graph import lean_graph
from .recorded import RecordedHead
from .tangent import Tangent


class SlopedHead(Head):
    """The untouched output, with its graph from a filter of ones; for all else it records in full."""

    has_slope = True

    def __init__(
        self,
        layer: Layer,
        features: Tensor,
        *,
        leaf: Tensor,
        graph: Tensor,
        size: tuple[int, ...],
        record: Callable[[], RecordedHead],
    ) -> None:
        self.layer = layer
        self.features = features
        self.output = graph.detach()
        self.size = size
        self._leaf, self._graph = leaf, graph
        self._record = record
        self._recorded: RecordedHead | None = None
        self._tangent = Tangent(leaf, graph)

    def reading(self, read: Callable[[Tensor], Tensor]) -> Head:
        def in_full() -> RecordedHead:
            view = self.in_full().reading(read)
            assert isinstance(view, RecordedHead)
            return view

        with torch.enable_grad():
            part = read(self._graph)
        view = SlopedHead(self.layer, self.features, leaf=self._leaf, graph=part, size=self.size, record=in_full)
        view.crops = self.crops
        return view

    def tangent(self, at: Call = OUTPUT) -> Tangent:
        return self._tangent if at == OUTPUT else self.in_full().tangent(at)

    def in_full(self) -> RecordedHead:
        if self._recorded is None:
            self._recorded = self._record()
        return self._recorded

    @property
    def evaluations(self) -> int:
        return 0 if self._recorded is None else self._recorded.evaluations

    @property
    def is_affine(self) -> bool:
        return False

    def alike(self, at: str | None, *, needs_scale: bool) -> list[Head]:
        return self.in_full().alike(at, needs_scale=needs_scale)

    def endpoint(self, at: str | None, *, needs_scale: bool) -> Endpoint:
        return Endpoint() if at is None else self.in_full().endpoint(at, needs_scale=needs_scale)

    def name_of(self, at: Call) -> str:
        return "output" if at == OUTPUT else self.in_full().name_of(at)

    def value(self, at: Call = OUTPUT) -> Tensor:
        return self.output if at == OUTPUT else self.in_full().value(at)

    def moved(self, at: Call = OUTPUT) -> Tensor:
        return self.in_full().moved(at)

    def filtered(self, weights: Tensor, at: Call = OUTPUT, *, way: Way = Way.CHEAPEST) -> Tensor:
        return self.in_full().filtered(weights, at, way=way)

    def recomputed(self, weights: Tensor, at: Call = OUTPUT) -> Tensor:
        return self.in_full().recomputed(weights, at)

    def why_not_affine(self, at: Call = OUTPUT) -> str | None:
        return self.in_full().why_not_affine(at)

    def fits(self, at: Call = OUTPUT) -> bool:
        return self.in_full().fits(at)

    def affine(self, at: Call = OUTPUT) -> AffineMap | None:
        return self.in_full().affine(at)

    def affine_part(self) -> AffineMap | None:
        return self.in_full().affine_part()

    def gradients(self, directions: Tensor) -> Tensor:
        return self.in_full().gradients(directions)

    def rerun(self, features: Tensor) -> Tensor:
        return self.in_full().rerun(features)


def run_with_graph(
    network: nn.Module, arguments: Arguments, select: Select, layer: Layer, record: Callable[[], RecordedHead]
) -> SlopedHead | None:
    """Run the network once, with a graph from the layer on; None where the run is not the one that is known."""
    module, arguments = module_named(network, layer.name), arguments.about(layer.input)
    shape = (arguments.batch, *layer.shape)
    if layer.call is None or layer.layout.frames is not None or layer.inputs_written or has_hooks(module):
        return None
    cut = _Cut(module.forward, layer, shape)
    with forwards_replaced({module: cut}, as_owner=True), torch.no_grad(), lean_graph():
        returned = arguments.call(network)
    if cut.features is None or cut.calls != layer.calls:
        return None
    try:
        output = select_output(returned, select, arguments.batch)
    except L2cafError:
        return None
    if not output.requires_grad:
        return None  # nothing of the filter reaches it, or a part of the network runs without gradients
    size = arguments.size_for(layer.layout)
    return SlopedHead(layer, cut.features, leaf=cut.leaf, graph=output, size=size, record=record)


class _Cut:
    """The layer's forward: from its planned call on, what it returned is weighed by ones that have a gradient."""

    def __init__(self, forward: Callable[..., Any], layer: Layer, shape: tuple[int, ...]) -> None:
        self.forward = forward
        self.layer = layer
        self.shape = shape
        self.features: Tensor | None = None
        self.calls = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        output = self.forward(*args, **kwargs)
        self.calls += 1
        if self.calls - 1 != self.layer.call or not isinstance(output, Tensor) or output.shape != self.shape:
            return output
        self.features = output
        positions = self.layer.layout.positions
        # From here on, until the run is over: what was computed before has no graph and keeps nothing.
        torch.set_grad_enabled(True)
        self.leaf = torch.ones(self.shape[0], positions, device=output.device, requires_grad=True)
        return self.layer.layout.weigh(output, self.leaf)
