"""What a network gets from `l2caf.explain`, judged from outside: by its architecture, by pixels, and by a hook.

Nothing of l2caf is used but what anybody sees: the heatmap, and the layout that `usable_layers` reports for its layer.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import torch

import l2caf

from .entry import Network, Path, Reading, look_up
from .hook import compare
from .pixels import Answer, answer, outputs_of

SAYS_NOTHING = {"uniform", "unmoved", "non_finite", "uninformative"}


class Verdict(StrEnum):
    RIGHT = "right"
    OTHER_LAYER = "another layer"  # a map of the input, but not the layer that is right by default
    REFUSED_RIGHTLY = "refused rightly"
    REFUSED_WRONGLY = "refused wrongly"
    UNDECIDED = "undecided, and says so"
    UNCLEAR = "unclear"  # the judge cannot tell
    WRONG = "SILENTLY WRONG"
    CRASHED = "crashed"


@dataclass(frozen=True)
class Judged:
    """One row of the table."""

    network: Network
    verdict: Verdict
    note: str = ""
    layer: str = ""
    grid: tuple[int, ...] = ()
    input: str = ""
    outcome: str = ""
    answer: Answer | None = None
    seconds: float = 0.0


def judge(network: Network) -> Judged:
    """Build a network, explain it with nothing said, and judge what comes out."""
    built, inputs = network.build()
    began = time.perf_counter()
    try:
        heatmap = l2caf.explain(built, inputs, select=network.select)
        layout, index = _layout(built, inputs, heatmap, network.select)
    except l2caf.L2cafError as error:
        rightly = not network.right or network.may_refuse
        verdict = Verdict.REFUSED_RIGHTLY if rightly else Verdict.REFUSED_WRONGLY
        return Judged(network, verdict, f"{error}", seconds=time.perf_counter() - began)
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        verdict, note = Verdict.CRASHED, f"{type(error).__name__}: {error}"
        return Judged(network, verdict, note.splitlines()[0], seconds=time.perf_counter() - began)
    seconds = time.perf_counter() - began
    outcomes = sorted({str(outcome) for row in heatmap.solution.outcome for outcome in _flat(row)})
    path = tuple(re.findall(r"\w+", heatmap.input))
    row = Judged(
        network,
        Verdict.UNCLEAR,
        layer=heatmap.layer if not heatmap.call else f"{heatmap.layer} (call {heatmap.call + 1})",
        grid=tuple(layout.shape),
        input=heatmap.input,
        outcome=", ".join(outcomes),
        seconds=seconds,
    )
    return _judged(row, built, inputs, heatmap, layout, index, path)


def _judged(row: Judged, built: Any, inputs: Any, heatmap: Any, layout: Any, index: int, path: Path) -> Judged:
    network = row.network
    readings = [reading for reading in network.right if reading.is_of(heatmap.layer, index, path)]
    fault = _fault_of_size(heatmap, layout, inputs, path, _axes(network, inputs, path, layout))
    if not fault:
        row = replace(
            row,
            answer=answer(
                built,
                inputs,
                layer=heatmap.layer,
                index=index,
                columns=layout.columns,
                grid=tuple(layout.shape),
                path=path,
                axes=_axes(network, inputs, path, layout),
            ),
        )
        fault = _fault_of_loss(built, inputs, heatmap, layout, index, network.select)
    if not fault and readings and not any(_same(built, inputs, heatmap, layout, index, right) for right in readings):
        fault = f"its positions are not those of the {'×'.join(map(str, readings[0].grid))} grid that it has"
    answered = None if row.answer is None else row.answer.is_map
    if not fault and not readings and answered is False:
        fault = "its positions do not answer to the pixels beneath them"
    if fault:
        said = row.outcome == "undecided"
        return replace(row, verdict=Verdict.UNDECIDED if said else Verdict.WRONG, note=fault)
    if row.outcome == "undecided":
        return replace(row, verdict=Verdict.UNDECIDED)
    if readings:
        return replace(row, verdict=Verdict.RIGHT)
    if answered and network.right and re.fullmatch(network.also, heatmap.layer):
        return replace(row, verdict=Verdict.RIGHT)
    if answered:
        note = "" if network.right else "no map was thought possible"
        return replace(row, verdict=Verdict.OTHER_LAYER if network.right else Verdict.UNCLEAR, note=note)
    return replace(row, verdict=Verdict.UNCLEAR, note="the pixels do not tell")


def _flat(outcome: Any) -> list[Any]:
    return outcome if isinstance(outcome, list) else [outcome]


def _layout(built: Any, inputs: Any, heatmap: Any, select: Any) -> tuple[Any, int]:
    """The reported layout of the layer that was taken, and which call it was."""
    index = heatmap.call or 0
    for layer in l2caf.usable_layers(built, inputs, select=select):
        if layer.name == heatmap.layer and layer.call == index and layer.input == heatmap.input:
            return layer.layout, index
    head = l2caf.record(built, inputs, select=select).head
    return head.layout, index


def _axes(network: Network, inputs: Any, path: Path, layout: Any) -> tuple[int, ...]:
    """Which axes of the explained input the axes of the map lie along."""
    count = len(layout.shape)
    fitting = [right for right in network.right if right.input == path and len(right.axes) == count]
    for reading in sorted(fitting, key=lambda right: right.grid != tuple(layout.shape)):
        return reading.axes
    ndim = look_up(inputs, path).ndim
    return tuple(range(ndim - count, ndim))


def _fault_of_size(heatmap: Any, layout: Any, inputs: Any, path: Path, axes: tuple[int, ...]) -> str:
    """A map of another size than its input has along the map's axes."""
    explained = look_up(inputs, path)
    lengths = tuple(explained.shape[axis] for axis in axes)
    shown = tuple(heatmap.maps.shape[-len(axes) :])
    if "frame" in heatmap.axes:
        lengths, shown = lengths[1:], shown[1:]
    if tuple(heatmap.solution.filter.shape[1:]) != tuple(layout.shape):
        return f"a filter of {tuple(heatmap.solution.filter.shape[1:])} for a map of {tuple(layout.shape)}"
    return "" if lengths == shown else f"a map of {shown} for an input of {lengths}"


def _fault_of_loss(built: Any, inputs: Any, heatmap: Any, layout: Any, index: int, select: Any) -> str:
    solution = heatmap.solution
    found = compare(
        built, inputs, layer=heatmap.layer, index=index, columns=layout.columns, solution=solution, select=select
    )
    if found is None:
        return ""
    outcomes = [_flat(outcome)[0] for outcome in solution.outcome]
    if "non_finite" not in outcomes and found.differs():
        return f"its loss is {found.reported.tolist()}, but {found.hooked.tolist()} by a hook"
    exact = torch.tensor([str(outcome) == "exact" for outcome in outcomes])
    if bool((found.beaten().cpu() & exact).any()):
        return f"its exact loss of {found.hooked.tolist()} is beaten by {found.rivals.tolist()}"
    if bool(exact.any()) and not found.moves():
        return "nothing that is filtered moves the output, yet it is called exact"
    return ""


def _same(built: Any, inputs: Any, heatmap: Any, layout: Any, index: int, right: Reading) -> bool:
    """Whether a layer is read as it should be: the same elements at the same positions."""
    features = outputs_of(built, inputs, heatmap.layer, index)
    numbers = torch.arange(features.numel()).reshape(features.shape)
    read, should = layout.columns(numbers), right.columns(numbers)
    same_grid = tuple(layout.shape) == right.grid
    return same_grid and read.shape == should.shape and bool((read.sort(1).values == should.sort(1).values).all())
