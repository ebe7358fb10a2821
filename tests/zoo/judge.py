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

from .entry import Network, Path, Reading, call, look_up, measured
from .hook import Comparison, compare
from .pixels import Answer, answer, outputs_of


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
    layout: str = ""
    input: str = ""
    outcome: str = ""
    answer: Answer | None = None
    seconds: float = 0.0


def judge(network: Network) -> Judged:
    """Build a network, explain it with nothing said, and judge what comes out."""
    built, inputs = network.build()
    if not network.trained:
        measured(built, inputs)
    call(built, inputs)  # a network that does not run is a fault of the zoo
    began = time.perf_counter()
    try:
        heatmap = l2caf.explain(built, inputs, output=network.select)
        seconds = time.perf_counter() - began
        layout, index = _layout(built, inputs, heatmap, network.select)
    except l2caf.L2cafError as error:
        rightly = not network.right or network.may_refuse
        verdict = Verdict.REFUSED_RIGHTLY if rightly else Verdict.REFUSED_WRONGLY
        return Judged(network, verdict, f"{error}", seconds=time.perf_counter() - began)
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        verdict, note = Verdict.CRASHED, f"{type(error).__name__}: {error}"
        return Judged(network, verdict, note.splitlines()[0], seconds=time.perf_counter() - began)
    outcomes = sorted({str(outcome) for row in heatmap.solution.outcome for outcome in _flat(row)})
    path = tuple(re.findall(r"\w+", heatmap.input))
    row = Judged(
        network,
        Verdict.UNCLEAR,
        layer=heatmap.layer if not heatmap.call else f"{heatmap.layer} (call {heatmap.call + 1})",
        grid=tuple(layout.shape),
        layout=_in_words(layout),
        input=heatmap.input,
        outcome=", ".join(outcomes),
        seconds=seconds,
    )
    return _judged(row, built, inputs, heatmap, layout, index, path)


def _judged(row: Judged, built: Any, inputs: Any, heatmap: Any, layout: Any, index: int, path: Path) -> Judged:
    network = row.network
    readings = [reading for reading in network.right if reading.is_of(heatmap.layer, index, path)]
    grid, axes, fault = _along(network, inputs, heatmap, path, tuple(layout.shape))
    if tuple(heatmap.solution.filter.shape[1:]) != tuple(layout.shape):
        fault = f"a filter of {tuple(heatmap.solution.filter.shape[1:])} for a map of {tuple(layout.shape)}"
    where = {"layer": heatmap.layer, "index": index, "columns": layout.columns}
    if not fault:
        row = replace(row, answer=answer(built, inputs, **where, grid=grid, path=path, axes=axes))
        fault = _fault_of_loss(
            compare(built, inputs, **where, solution=heatmap.solution, select=network.select), heatmap
        )
    read = [right for right in readings if not fault and _same(built, inputs, heatmap, layout, index, right)]
    if not fault and readings and not read:
        fault = f"its positions are not those of the {'×'.join(map(str, readings[0].grid))} grid that it has"
    answered = None if row.answer is None else row.answer.is_map
    if not fault and not readings and answered is False:
        fault = "its positions do not answer to the input beneath them"
    if row.outcome == "undecided":
        return replace(row, verdict=Verdict.UNDECIDED, note=fault)
    if fault:
        return replace(row, verdict=Verdict.WRONG, note=fault)
    if any(right.default for right in read) or (answered and re.fullmatch(network.also, heatmap.layer)):
        return replace(row, verdict=Verdict.RIGHT)
    if read or (answered and network.right):
        return replace(row, verdict=Verdict.OTHER_LAYER)
    return replace(row, note="no map was thought possible" if answered else "the pixels do not tell")


def _in_words(layout: Any) -> str:
    """How the positions lie in the layer's output."""
    words = {
        "channels_first": "(B, C, grid)",
        "channels_last": "(B, grid, C)",
        "tokens": " + ".join(part for part in (str(layout.prefix or ""), "tokens", str(layout.suffix or "")) if part),
    }[layout.kind]
    words += "" if layout.frames is None else f", {layout.frames} frames as rows"
    return words + ("" if layout.order is None else f", order {layout.order}")


def _flat(outcome: Any) -> list[Any]:
    return outcome if isinstance(outcome, list) else [outcome]


def _layout(built: Any, inputs: Any, heatmap: Any, select: Any) -> tuple[Any, int]:
    """The reported layout of the layer that was taken, and which call it was."""
    index = heatmap.call or 0
    for layer in l2caf.usable_layers(built, inputs, output=select):
        if layer.name == heatmap.layer and layer.call == index and layer.input == heatmap.input:
            return layer.layout, index
    head = l2caf.record(built, inputs, output=select).head
    return head.layout, index


def _along(
    network: Network, inputs: Any, heatmap: Any, path: Path, shape: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    """The grid of a map, the axes of the explained input that it lies along, and what is wrong with its size.

    Axes of one cell may be left out. A map must have the size that its input has along its axes.
    """
    explained = look_up(inputs, path)
    shown = tuple(heatmap.maps.shape[-len(shape) :])
    long = [axis for axis, cells in enumerate(shape) if cells > 1]
    ways = [(shape, shown), (tuple(shape[axis] for axis in long), tuple(shown[axis] for axis in long))]
    told = sorted((right for right in network.right if right.input == path), key=lambda right: right.grid != shape)
    fault = f"a map of {shown} for an input of {tuple(explained.shape)}"
    found = None
    for grid, sizes in ways:
        usual = tuple(range(explained.ndim - len(grid), explained.ndim))
        for axes in [right.axes for right in told if right.axes] or [usual]:
            lengths = tuple(explained.shape[axis] for axis in axes)
            if len(axes) != len(grid) or min(axes) < 1:
                continue
            if lengths == sizes or ("frame" in heatmap.axes and lengths[1:] == sizes[1:]):  # frames are not resized
                return grid, axes, ""
            found = found or (grid, axes, fault)
    return found or (shape, (), fault)


def _fault_of_loss(found: Comparison | None, heatmap: Any) -> str:
    if found is None:
        return ""
    outcomes = [str(_flat(outcome)[0]) for outcome in heatmap.solution.outcome]
    if "non_finite" not in outcomes and found.differs():
        return f"its loss is {_numbers(found.reported)}, but {_numbers(found.hooked)} by a hook"
    exact = torch.tensor([outcome == "exact" for outcome in outcomes])
    if bool((found.beaten().cpu() & exact).any()):
        return f"its exact loss of {_numbers(found.hooked)} is beaten by {_numbers(found.rivals)}"
    if bool(exact.any()) and not found.moves():
        return "nothing that is filtered moves the output, yet it is called exact"
    return ""


def _numbers(losses: torch.Tensor) -> str:
    return ", ".join(f"{loss:.4g}" for loss in losses.tolist())


def _same(built: Any, inputs: Any, heatmap: Any, layout: Any, index: int, right: Reading) -> bool:
    """Whether a layer is read as it should be: the same elements at the same positions."""
    features = outputs_of(built, inputs, heatmap.layer, index)
    numbers = torch.arange(features.numel()).reshape(features.shape)
    read, should = layout.columns(numbers), right.columns(numbers)
    same_grid = _without_ones(layout.shape) == _without_ones(right.grid)
    return same_grid and read.shape == should.shape and bool((read.sort(1).values == should.sort(1).values).all())


def _without_ones(shape: Any) -> tuple[int, ...]:
    return tuple(length for length in shape if length > 1)
