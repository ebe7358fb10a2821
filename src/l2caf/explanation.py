"""`explain`: the front door."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import overload

from torch import Tensor, nn

from .filters import Filter, UnitL2
from .heatmap import Heatmap
from .methods.attention_filter import AttentionFilter
from .objectives.objective import Objective
from .recording.inputs import Inputs, Select
from .recording.layout import Layout
from .solvers.auto import Auto
from .solvers.solver import Solver


@overload
def explain(
    network: nn.Module,
    inputs: Inputs,
    *,
    objective: Objective | Callable[[Tensor], Tensor] | None = None,
    layer: str | nn.Module | None = None,
    call: int | None = None,
    filter: Filter | None = None,
    solver: Solver | None = None,
    select: Select = None,
    of: str | int | None = None,
    layout: Layout | None = None,
) -> Heatmap: ...


@overload
def explain(
    network: nn.Module,
    inputs: Inputs,
    *,
    objective: Objective | Callable[[Tensor], Tensor] | None = None,
    layer: str | nn.Module | Sequence[str | nn.Module] | None = None,
    call: int | Sequence[int] | None = None,
    filter: Filter | None = None,
    solver: Solver | None = None,
    select: Select = None,
    of: str | int | None = None,
    layout: Layout | None = None,
) -> Heatmap | tuple[Heatmap, ...]: ...


def explain(
    network: nn.Module,
    inputs: Inputs,
    *,
    objective: Objective | Callable[[Tensor], Tensor] | None = None,
    layer: str | nn.Module | Sequence[str | nn.Module] | None = None,
    call: int | Sequence[int] | None = None,
    filter: Filter | None = None,
    solver: Solver | None = None,
    select: Select = None,
    of: str | int | None = None,
    layout: Layout | None = None,
) -> Heatmap | tuple[Heatmap, ...]:
    """Show where a network looked.

    `network` is any `torch.nn.Module`, `inputs` a batch for it: a tensor, a tuple of arguments or a dict of named
    ones. With nothing else said, it finds the unit-L2 filter over the last layer with a spatial map that best keeps
    the network's output as it is.

    - `objective`: `ClassOblivious()` (the default), `Prediction()`, `ClassSpecific(c)`, `Similarity(to)`, or a function
      of the output that gives one number per sample, to be made small.
    - `layer`: a module or its dotted name; `call` says which of its calls, if there are several (the last). A list of
      layers, or of calls, gives a heatmap each, from one run of the network.
    - `filter`: `UnitL2()` (the default), `UnitL1()`, `Softmax()`, `Gaussian()`.
    - `solver`: `Auto()` (the default) takes the exact solution where there is one.
    - `select`: which part of what the network returns is explained, where that is not a tensor: a key, an index, or a
      function.
    - `of`: which input the map belongs to, where the network takes several: its place or name ("0", "pixel_values",
      "0.image" for one inside a dict). By default the first that a layer answers to; `heatmap.input` tells.
    - `layout`: how the layer is laid out, where that is not found by itself; it is checked on the data.

    The network is left as it was found.

    >>> import torch
    >>> network = torch.nn.Sequential(
    ...     torch.nn.Conv2d(3, 8, 3, stride=4),
    ...     torch.nn.ReLU(),
    ...     torch.nn.AdaptiveAvgPool2d(1),
    ...     torch.nn.Flatten(),
    ...     torch.nn.Linear(8, 10),
    ... )
    >>> heatmap = explain(network, torch.rand(2, 3, 32, 32))
    >>> heatmap.maps.shape, heatmap.layer, str(heatmap.solution.outcome[0])
    (torch.Size([2, 32, 32]), '1', 'exact')
    """
    method = AttentionFilter(objective, filter or UnitL2(), solver or Auto())
    return method(network, inputs, layer=layer, call=call, select=select, of=of, layout=layout)
