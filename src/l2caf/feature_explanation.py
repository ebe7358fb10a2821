"""`explain_features`: for people who keep feature maps, not networks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .errors import ClassError, InputError
from .explanation import explain
from .features.exact import linear_of
from .features.stored import blocks, counted, stored
from .filters import Filter
from .heatmap import Heatmap
from .methods.method import Method
from .objectives.classes import ClassSpecific
from .objectives.objective import Objective
from .objectives.output import Similarity
from .progress import Progress, silent
from .recording.layout import Layout
from .solution import Solution
from .solvers.solver import Solver

LAYER = "features"


def explain_features(
    head: nn.Module | tuple[Any, Any],
    features: Any,
    *,
    objective: Objective | Callable[[Tensor], Tensor] | None = None,
    size: Sequence[int] | None = None,
    channels: int = 1,
    key: str | None = None,
    block: int = 32,
    filter: Filter | None = None,
    solver: Solver | None = None,
    method: str | Method | None = None,
    progress: Progress = silent,
) -> Heatmap:
    """Show which positions of feature maps mattered to what follows them.

    - `head`: what follows the features: a `torch.nn.Module`, or (W, b) as plain arrays for a mean over the positions
      and a linear layer, W (outputs, channels) and b (outputs,) or None.
    - `features`: an array or a tensor; the path of a `.npy`, `.npz` or `.safetensors` file, or of a folder of them,
      in the order of their names; or a list of these. Files are read in blocks of `block` maps.
    - `channels`: the axis of the channels, 1 of (maps, C, *grid), -1 of (maps, *grid, C), 0 where each array or file is
      one map (C, *grid). `key`: which array of a file, where it holds several.
    - `size`: of the input that the features were computed from, at which `maps` are given and drawn; by default their
      own grid.
    - `objective`, `filter`, `solver`, `method`: as for `l2caf.explain`.

    Without torch, `l2caf.features.exact.filters_of` answers the same from (features, W, b).

    >>> features = np.random.default_rng(0).random((3, 8, 7, 7)).astype(np.float16)
    >>> explain_features((np.eye(4, 8), np.zeros(4)), features, size=(224, 224))
    Heatmap(3 samples of 224×224, layer 'features', AttentionFilter, exact)
    """
    if isinstance(block, bool) or not isinstance(block, int) or block < 1:
        raise InputError(f"A block of {block!r} holds no map: give 1 or more.", field="block")
    network = nn.Sequential(OrderedDict([(LAYER, nn.Identity()), ("head", _head(head))]))
    network.train(head.training if isinstance(head, nn.Module) else False)
    first = next(network.parameters(), None)
    like = torch.empty(0) if first is None else first.detach()
    sources = stored(features, key=key)
    if not sources:
        raise InputError("There are no features to explain: give at least one map.", field="features")
    total, done = counted(sources, channels=channels), 0
    _check_objective(objective, total)
    found: list[Heatmap] = []
    for maps in blocks(sources, size=block, channels=channels):
        inputs = torch.from_numpy(_floats(maps)).to(like.device, like.dtype)
        _check_channels(head, inputs)
        grid = tuple(inputs.shape[2:])
        layout = Layout("channels_first", grid, along=tuple(range(2, inputs.ndim)))
        asked = _of_some(objective, done, done + len(inputs), total)
        options: dict[str, Any] = {"filter": filter, "solver": solver, "method": method, "layout": layout}
        heatmap = explain(network, inputs, objective=asked, layer=LAYER, **options)
        found.append(heatmap)
        done += len(inputs)
        progress("explaining", done, total)
    joined = _joined(found)
    return joined if size is None else replace(joined, size=_size(size, joined.size))


class MeanLinear(nn.Module):
    """W mean(A) + b."""

    def __init__(self, weight: Any, bias: Any) -> None:
        super().__init__()
        pooled = linear_of(_array(weight), None if bias is None else _array(bias))
        kind = np.float64 if pooled.weight.dtype == np.float64 else np.float32
        outputs, channels = pooled.weight.shape
        self.linear = nn.Linear(channels, outputs, dtype=torch.float64 if kind is np.float64 else torch.float32)
        with torch.no_grad():
            self.linear.weight.copy_(torch.from_numpy(pooled.weight.astype(kind)))
            self.linear.bias.copy_(torch.from_numpy(pooled.bias.astype(kind)))
        self.requires_grad_(False)

    def forward(self, features: Tensor) -> Tensor:
        scores: Tensor = self.linear(features.flatten(2).mean(dim=2))
        return scores


def _array(given: Any) -> Any:
    return given.detach().cpu().float().numpy() if isinstance(given, Tensor) else given


def _head(head: Any) -> nn.Module:
    if isinstance(head, nn.Module):
        return head
    if isinstance(head, tuple | list) and len(head) == 2:
        return MeanLinear(*head)
    raise InputError(
        f"The head is a {type(head).__name__}: give a torch.nn.Module that takes the features, or (W, b).", field="head"
    )


def _check_channels(head: Any, inputs: Tensor) -> None:
    if isinstance(head, nn.Module):
        return
    wanted = np.shape(head[0])[1]
    if inputs.shape[1] != wanted:
        raise InputError(
            f"The features have {inputs.shape[1]} channels, but W takes {wanted}: channels= says on which axis they"
            " are.",
            field="features",
        )


def _floats(maps: Any) -> Any:
    """A block in memory, writable, since torch takes no other; halves stay halves, which torch widens sooner."""
    known = maps.dtype in (np.float16, np.float32, np.float64) and maps.dtype.isnative
    return np.array(maps, dtype=maps.dtype if known else np.float32, order="C")


def _check_objective(objective: Any, total: int) -> None:
    if isinstance(objective, ClassSpecific) and objective.labels is not None and len(objective.labels) != total:
        raise ClassError(
            f"labels names {len(objective.labels)} classes for {total} maps: give one per map, or classes= for a map of"
            " each class."
        )


def _of_some(objective: Any, start: int, stop: int, total: int) -> Any:
    """An objective for some of the maps: what it holds for each is cut."""
    if isinstance(objective, ClassSpecific) and objective.labels is not None:
        return replace(objective, labels=objective.labels[start:stop])
    if isinstance(objective, Similarity) and np.ndim(objective.to) == 2 and len(objective.to) == total > 1:
        return replace(objective, to=objective.to[start:stop])
    return objective


def _size(size: Sequence[int], grid: tuple[int, ...]) -> tuple[int, ...]:
    if len(size) != len(grid) or not all(isinstance(one, int) and one > 0 for one in size):
        raise InputError(f"The size is {size!r}, but the maps have {len(grid)} axes: give as many lengths.")
    return tuple(size)


def _joined(found: list[Heatmap]) -> Heatmap:
    """The heatmaps of all blocks as one."""
    first = found[0]
    if len(found) == 1:
        return first
    solutions = [one.solution for one in found]

    def each_once(name: str) -> str:
        return "; ".join(dict.fromkeys(getattr(one, name) for one in solutions))

    def all_of(name: str) -> Any:
        return torch.cat([getattr(one, name) for one in solutions])

    solution = Solution(
        filter=all_of("filter"),
        loss=all_of("loss"),
        steps=all_of("steps"),
        evaluations=all_of("evaluations"),
        outcome=[outcome for one in solutions for outcome in one.outcome],  # type: ignore[arg-type]
        solver=each_once("solver"),
        reason=each_once("reason"),
        endpoint=each_once("endpoint"),
    )
    classes = [one.classes for one in found if one.classes is not None]
    return replace(
        first,
        weights=torch.cat([one.weights for one in found]),
        classes=torch.cat(classes) if classes else None,
        solution=solution,
    )
