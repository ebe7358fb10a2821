"""`explain`: the front door."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, overload

from torch import Tensor, nn

from .deadline import time_limit
from .errors import InputError
from .filters import Filter
from .heatmap import Heatmap
from .methods.attention_filter import AUTO, UNIT_L2, AttentionFilter, Frames
from .methods.method import Method
from .methods.table import METHODS, MethodEntry
from .objectives.classes import ClassChoice, ClassSpecific
from .objectives.objective import Objective
from .recording.inputs import Inputs, Select
from .recording.layout import Layout
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
    method: str | Method | None = None,
    output: Select = None,
    of: str | int | None = None,
    layout: Layout | None = None,
    frames: Frames | None = None,
    timeout: float | None = None,
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
    method: str | Method | None = None,
    output: Select = None,
    of: str | int | None = None,
    layout: Layout | None = None,
    frames: Frames | None = None,
    timeout: float | None = None,
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
    method: str | Method | None = None,
    output: Select = None,
    of: str | int | None = None,
    layout: Layout | None = None,
    frames: Frames | None = None,
    timeout: float | None = None,
) -> Heatmap | tuple[Heatmap, ...]:
    """Show where a network looked.

    `network` is any `torch.nn.Module`, `inputs` a batch for it: a tensor, a tuple of arguments or a dict of named
    ones. With nothing else said, it finds the unit-L2 filter over the last layer with a spatial map that best keeps
    the network's output as it is.

    - `objective`: `ClassOblivious()` (the default), `Prediction()`, `ClassSpecific(c)`, `Similarity(to)`, or a function
      of the output that gives one number per sample, to be made small.
    - `layer`: a module or its dotted name; `call` says which of its calls, if there are several (the last, or where it
      is called once per frame of a clip, all of them as one map). A list of layers, or of calls, gives a heatmap each,
      from one run of the network.
    - `filter`: `UnitL2()` (the default), `UnitL1()`, `Softmax()`, `Gaussian()`, `UnitL2PerFrame()`.
    - `solver`: `Auto()` (the default) takes the exact solution where there is one.
    - `method`: another method, by its key as on the command line ("gradcam", "cam", "l2caf-class", …) or as an object
      (`GradCAM(281)`). A key about a class takes `objective=ClassSpecific(…)` for the classes, else each sample's best.
    - `output`: which part of what the network returns is explained, where that is not a tensor: a key, an index, or a
      function.
    - `of`: which input the map belongs to, where the network takes several: its place or name ("0", "pixel_values",
      "0.image" for one inside a dict). By default the first that a layer answers to; `heatmap.input` tells.
    - `layout`: how the layer is laid out, where that is not found by itself; it is checked on the data.
    - `frames`: of a clip, whose map has an axis of frames: "alone" (the default), a filter per frame, found while the
      others are off; "together", one filter over all frames. `filter=UnitL2PerFrame()` has them together, with a norm
      each. A layer that sees the frames one by one has such a map, be it in a loop or with the frames in the batch.
    - `timeout`: seconds after which a search ends with the best filter so far; the outcome is then `time_limit`. It is
      looked at before each evaluation, so that runs of the network are not cut short. Where the clock must not decide
      (the same input shall give the same map), limit the evaluations: `solver=Riemannian(evaluations=…)`.

    The network is left as it was found.

    >>> import torch
    >>> network = torch.nn.Sequential(
    ...     torch.nn.Conv2d(3, 8, 3, stride=4),
    ...     torch.nn.ReLU(),
    ...     torch.nn.AdaptiveAvgPool2d(1),
    ...     torch.nn.Flatten(),
    ...     torch.nn.Linear(8, 10),
    ... )
    >>> images = torch.rand(2, 3, 32, 32)
    >>> heatmap = explain(network, images)
    >>> heatmap.maps.shape, heatmap.layer, str(heatmap.solution.outcome[0])
    (torch.Size([2, 32, 32]), '1', 'exact')
    >>> explain(network, images, method="gradcam", timeout=60)
    Heatmap(2 samples of 32×32, layer '1', GradCAM, formula)
    """
    asked = _with_frames(_asked(method, objective, filter, solver), frames)
    if timeout is None:
        return asked(network, inputs, layer=layer, call=call, output=output, of=of, layout=layout)
    with time_limit(timeout):
        return asked(network, inputs, layer=layer, call=call, output=output, of=of, layout=layout)


def _asked(method: Any, objective: Any, filter: Filter | None, solver: Solver | None) -> Method:
    """The method that the front door's words stand for."""
    if method is None:
        return AttentionFilter(objective, UNIT_L2 if filter is None else filter, AUTO if solver is None else solver)
    if isinstance(method, str):
        return _by_key(METHODS[method], objective, filter, solver)
    if isinstance(method, type) and issubclass(method, Method):
        raise InputError(
            f"The method is the class {method.__name__}: give an object, {method.__name__}().", field="method"
        )
    if not isinstance(method, Method):
        raise InputError(
            f"The method is a {type(method).__name__}: give one of {METHODS.words()}, or an object such as GradCAM().",
            field="method",
        )
    for name, given in (("objective", objective), ("filter", filter), ("solver", solver)):
        if given is not None:
            raise InputError(
                f"The method {method.name} is given, and beside it the {name}: say it where the method is made, or"
                " leave it out.",
                field=name,
            )
    return method


def _with_frames(asked: Method, frames: Frames | None) -> Method:
    if frames is None:
        return asked
    if not isinstance(asked, AttentionFilter):
        raise InputError(
            f"The method {asked.name} is a formula, which has no choice of frames: leave it out.", field="frames"
        )
    return replace(asked, frames=frames)


def _about(entry: MethodEntry, objective: ClassSpecific) -> Method:
    """A method of the table about these classes."""
    made = entry.make()
    if isinstance(made, AttentionFilter) and isinstance(made.objective, ClassSpecific):
        return replace(made, objective=replace(objective, published=objective.published or made.objective.published))
    if isinstance(made, ClassChoice):
        return replace(made, **{name: getattr(objective, name) for name in ("which", "classes", "top", "labels")})
    classes: Any = objective.which if objective.classes is None else objective.classes
    return entry.make(classes=classes, top=objective.top, labels=objective.labels)


def _by_key(entry: MethodEntry, objective: Any, filter: Filter | None, solver: Solver | None) -> Method:
    """A method of the table, about the classes of a class-specific objective, with the parts that it lets choose."""
    if objective is not None and not (entry.about == "class" and isinstance(objective, ClassSpecific)):
        remedy = "ClassSpecific(…), or leave it out" if entry.about == "class" else "the one or the other"
        raise InputError(f"The method {entry.key} has an objective of its own: give {remedy}.", field="objective")
    made = entry.make() if objective is None else _about(entry, objective)
    for name, given in (("filter", filter), ("solver", solver)):
        if given is None:
            continue
        if not isinstance(made, AttentionFilter):
            raise InputError(f"The method {entry.key} is a formula and has no {name}: leave it out.", field=name)
        made = replace(made, **{name: given})  # type: ignore[arg-type]
    return made
