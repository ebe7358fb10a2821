"""The exact filter of a mean and a linear map, from plain arrays: no network, no torch.

With A the features as (B, C, n), W (m, C) and b (m,), the filtered output is FT(f) = W A f / n + b, so that with
J = W A / n every question has its optimum on the unit sphere in closed form (`unit_sphere.py`). J is not written out:
its products are products with A and with W.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ..errors import ClassError, InputError
from ..heads.pooled import PooledLinear
from ..softmax_metric import MetricArrays, softmax_metric
from ..solution import Outcome
from ..unit_sphere import CERTAIN, FEW, FLAT, Floats, by_eigenvalues, in_span

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Filters:
    """`weights` (B, *grid), signed; `scores` (B, m), the untouched output; how each search ended; the classes (B,)."""

    weights: Floats
    scores: Array
    outcome: list[Outcome]
    classes: npt.NDArray[np.int64] | None = None


def filters_of(
    features: Array,
    weight: Array,
    bias: Array | None = None,
    *,
    about: Literal["output", "class", "prediction"] = "output",
    classes: int | Sequence[int] | None = None,
    temperature: float = 2.0,
) -> Filters:
    """The unit filter over the positions of each map, (B, C, *grid), that answers a question about W mean(A) + b.

    "output" keeps all scores as they are (class-oblivious), "class" raises `classes` (one for all maps or one per map;
    by default each map's best) above the others, "prediction" keeps what softmax of the scores says.

    >>> features = np.zeros((1, 2, 2, 2))
    >>> features[0, :, 0, 1] = 5.0, 1.0
    >>> features[0, 0, 1, 0] = 1.0
    >>> filters_of(features, np.eye(2)).weights.round(2).tolist()
    [[[0.0, 0.98], [0.2, 0.0]]]
    """
    if about not in ("output", "class", "prediction"):
        raise InputError(f"about is {about!r}: take output, class or prediction.", field="about")
    if classes is not None and about != "class":
        raise InputError(f"Classes are given, but the question is about the {about}: take about='class'.")
    head = linear_of(weight, bias)
    features = np.asarray(features)
    if features.ndim < 3 or features.shape[1] != head.weight.shape[1]:
        raise InputError(
            f"The features have the shape {features.shape}, but W takes {head.weight.shape[1]} channels: give (maps,"
            f" {head.weight.shape[1]}, …).",
            field="features",
        )
    columns = features.reshape(*features.shape[:2], -1)
    kind = np.float64 if columns.dtype == np.float64 else np.float32
    problem = _Pooled(columns.astype(kind, copy=False), PooledLinear(head.weight.astype(kind), head.bias.astype(kind)))
    with np.errstate(invalid="ignore", over="ignore"):
        scores = problem.head.of_mean(problem.columns.mean(axis=2))
        finite = np.isfinite(scores).all(axis=1) & np.isfinite(problem.columns.sum(axis=(1, 2)))
    problem.columns = np.where(finite[:, None, None], problem.columns, 0) if not finite.all() else problem.columns
    chosen = _chosen(classes, scores) if about == "class" else None
    if chosen is not None:
        weights = _raised(problem, chosen)
    else:
        target = np.where(finite[:, None], scores - problem.head.bias, 0)
        metric = softmax_metric(scores.astype(float), temperature) if about == "prediction" else None
        weights = _kept(problem, target, metric)
    weights[~finite] = 0
    grid = features.shape[2:]
    return Filters(weights.reshape(-1, *grid), scores, _outcomes(weights, finite), chosen)


def linear_of(weight: Any, bias: Any = None) -> PooledLinear:
    """W and b, checked."""
    weight = np.asarray(weight)
    bias = np.zeros(weight.shape[:1]) if bias is None else np.asarray(bias)
    if weight.ndim != 2 or bias.shape != weight.shape[:1] or {weight.dtype.kind, bias.dtype.kind} - set("fiu"):
        raise InputError(
            f"The head is W of shape {weight.shape} and b of {bias.shape}: give (W, b) with W (outputs, channels) and"
            " b (outputs,).",
            field="head",
        )
    if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
        raise InputError("The head (W, b) holds NaN or infinity: give finite numbers.", field="head")
    return PooledLinear(weight, bias)


@dataclass
class _Pooled:
    """J = W A / n as products."""

    columns: Array
    head: PooledLinear

    def push(self, weights: Array) -> Array:
        means = (self.columns @ weights.astype(self.columns.dtype)[..., None])[..., 0] / self.columns.shape[2]
        pushed: Array = self.head.push(means)
        return pushed

    def pull(self, directions: Array) -> Array:
        pulled = self.head.pull(directions.astype(self.columns.dtype))
        return (pulled[:, None] @ self.columns)[:, 0] / self.columns.shape[2]

    def written_out(self, samples: Array) -> Array:
        return (self.head.weight.astype(float) @ self.columns[samples].astype(float)) / self.columns.shape[2]


def _raised(problem: _Pooled, chosen: Array) -> Floats:
    """Along -J^T a with a = -2 (e_c - 1 / m): the optimum of a linear loss; the logit itself where it is alone."""
    weight = problem.head.weight.astype(float)
    rows = weight[chosen] - (weight.mean(axis=0) if len(weight) > 1 else 0.0)
    raised: Floats = (rows.astype(problem.columns.dtype)[:, None] @ problem.columns)[:, 0].astype(float)
    length = np.sqrt((raised * raised).sum(axis=1, keepdims=True))
    return np.where(length > 0, raised / np.maximum(length, 1e-300), problem.columns.shape[2] ** -0.5)


def _kept(problem: _Pooled, target: Array, metric: MetricArrays | None) -> Floats:
    """Least squares: by a few products, and what these leave open by eigenvalues."""
    precision = float(np.finfo(problem.columns.dtype).eps)

    def seen(values: Array) -> Array:
        return values if metric is None else metric.push(values)

    def pulled(values: Array) -> Floats:
        return problem.pull(values if metric is None else metric.pull(values)).astype(float)

    wanted = seen(target)
    weights = np.zeros((len(target), problem.columns.shape[2]))
    missing = np.ones(len(target), bool)
    if min(problem.columns.shape[2], target.shape[1]) > FEW:
        found = in_span(pulled(wanted), lambda direction: pulled(seen(problem.push(direction))), CERTAIN * precision)
        weights, missing = found.weights, ~found.certain
    for sample in np.flatnonzero(missing):
        jacobian = problem.written_out(np.array([sample]))
        if metric is not None:
            jacobian = np.swapaxes(metric.of(int(sample)).push(np.swapaxes(jacobian, 1, 2)), 1, 2)
        weights[sample] = by_eigenvalues(jacobian, precision=precision, fill=metric is None)[0]
    return weights


def _chosen(classes: int | Sequence[int] | None, scores: Array) -> npt.NDArray[np.int64]:
    if classes is None:
        return np.nan_to_num(scores, nan=-np.inf).argmax(axis=1)
    chosen = np.asarray(classes)
    if chosen.dtype.kind not in "iu" or chosen.shape not in ((), (len(scores),)):
        raise ClassError(
            f"{classes!r} names no class for each of {len(scores)} maps: give a whole number, or one per map.",
            field="class",
        )
    chosen = np.broadcast_to(chosen, (len(scores),)).astype(np.int64)
    outside = chosen[(chosen < 0) | (chosen >= scores.shape[1])]
    if len(outside):
        raise ClassError(f"Class {outside[0]} is out of range: the head has {scores.shape[1]} classes.", field="class")
    return chosen


def _outcomes(weights: Floats, finite: npt.NDArray[np.bool_]) -> list[Outcome]:
    least, most = weights.min(axis=1), weights.max(axis=1)
    even = most - least <= FLAT * np.maximum(most, -least)
    return [
        Outcome.NON_FINITE if not sound else Outcome.UNIFORM if flat else Outcome.EXACT
        for sound, flat in zip(finite.tolist(), even.tolist(), strict=True)
    ]
