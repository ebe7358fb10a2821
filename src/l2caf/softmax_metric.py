"""The metric of softmax in plain arrays: how far apart two rows of scores are, to second order of the divergence."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .unit_sphere import Floats

LEAST = 1e-30  # so that the second order of a prediction beyond all doubt is still a number in single precision


class MetricArrays(NamedTuple):
    """S v = a (v - sum(u v)) with `sizes` a and a mean's weights `mean` u, both (B, m); `reach`, (B,), bounds |S v|."""

    sizes: Floats
    mean: Floats
    reach: Floats

    def push(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """S v, for (B, m) values."""
        return self.sizes * (values - (self.mean * values).sum(axis=-1, keepdims=True))

    def pull(self, directions: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """S^T d."""
        pulled = self.sizes * directions
        pulled -= pulled.sum(axis=-1, keepdims=True) * self.mean
        return pulled

    def of(self, sample: int) -> MetricArrays:
        """The metric of one sample, for (..., m) values."""
        return MetricArrays(*(one[sample] for one in self))


def softmax_metric(logits: Floats, temperature: float) -> MetricArrays:
    """The metric of a prediction.

    ||S v||^2 = v^T (diag(p) - p p^T) v / (2 T^2), from the other classes' point of view.

    Softmax depends on differences alone, so scores are taken relative to the best class's: w = v - v_best. With q the
    probability of all other classes and r = p / q their shares of it, the form is q (sum r w^2 - q (sum r w)^2), which
    is the squared length of S v = sqrt(q r) (w - c sum(r w)) / (sqrt(2) T), where 1 - c is the root of the best class's
    probability: nothing cancels, however small q is, while p of the best class and 1 soon round to the same number.
    Since the shares sum to 1, a mean of v is all that is taken off: with weight 1 - c at the best class, c r elsewhere.
    """
    finite = math.isfinite(logits.sum())
    scaled = (logits if finite else np.nan_to_num(logits, nan=0.0, posinf=0.0, neginf=0.0)) / temperature
    every, best = np.arange(len(scaled)), scaled.argmax(axis=1)
    top = scaled[every, best]
    scaled[every, best] = -np.inf
    second = scaled.max(axis=1)
    shares = np.exp(scaled - second[:, None])
    total = shares.sum(axis=1)
    shares /= total[:, None]
    odds = second - top + np.log(total)  # of all other classes together against the best, as a logarithm
    q, root = np.exp(odds - np.logaddexp(0.0, odds)), np.exp(-np.logaddexp(0.0, odds) / 2)
    size = np.sqrt(np.maximum(q / (2 * temperature**2), LEAST))
    drawn = q / (1 + root)
    mean = drawn[:, None] * shares
    mean[every, best] = 1 - drawn
    return MetricArrays(size[:, None] * np.sqrt(shares), mean, 2 * size)
