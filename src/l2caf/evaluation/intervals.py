"""How sure a score is: bootstrap intervals over images, for one method and for the difference of two.

Images are drawn anew with replacement, many times, and the score is computed each time; the middle 95 % of
those scores are the interval (the percentile method). The same seed draws the same images.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InputError

Floats = NDArray[np.float64]

RESAMPLES = 2000
LEVEL = 0.95
# As many draws as are held at once; a fixed number, so that a seed means the same on every machine.
_DRAWS_AT_ONCE = 1 << 21


@dataclass(frozen=True, slots=True)
class Interval:
    """A score and the interval around it."""

    value: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """Whether a difference is significant: its interval does not contain 0."""
        return self.low > 0 or self.high < 0

    def in_percent(self) -> Interval:
        """The same of shares, in per cent with four digits."""
        return Interval(*(round(100 * number, 4) for number in (self.value, self.low, self.high)))

    def as_dict(self) -> dict[str, float]:
        return {"value": self.value, "low": self.low, "high": self.high}

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def mean_interval(values: ArrayLike, *, resamples: int = RESAMPLES, level: float = LEVEL, seed: int = 0) -> Interval:
    """Give the mean over images (N,) with its interval.

    >>> mean_interval([1, 0, 1, 1]).value
    0.75
    """
    return interval_of(_only, _images(values, 1), resamples=resamples, level=level, seed=seed)


def paired_difference(
    ours: ArrayLike, theirs: ArrayLike, *, resamples: int = RESAMPLES, level: float = LEVEL, seed: int = 0
) -> Interval:
    """Give mean(ours) − mean(theirs) with its interval, for two methods on the same images in the same order.

    Both are seen on the same draws: what makes an image hard for both does not widen the interval.

    >>> paired_difference([1, 1, 1, 0], [0, 0, 0, 0]).value
    0.75
    """
    first, second = _images(ours, 1), _images(theirs, 1)
    if first.shape != second.shape:
        raise InputError(
            f"{first.size} images of one method and {second.size} of the other cannot be paired; "
            "give the values of both on the same images, in the same order."
        )
    return interval_of(_only, first - second, resamples=resamples, level=level, seed=seed)


def interval_of(
    statistic: Callable[[Floats], Floats],
    values: ArrayLike,
    *,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    seed: int = 0,
) -> Interval:
    """Give any score that is computed from means over images, with its interval.

    `values` (N, ...) has one entry per image; `statistic` turns means (R, ...) of R draws into R scores.

    >>> interval_of(lambda means: means.max(axis=1), [[0, 1], [1, 1], [0, 0]]).value.__round__(3)
    0.667
    """
    table = _images(values)
    if not 0 < level < 1:
        raise InputError(f"A level of {level} is no share; give one between 0 and 1, such as 0.95.")
    value = statistic(table.mean(axis=0, keepdims=True))[0]
    scores = statistic(resampled_means(table, resamples=resamples, seed=seed))
    low, high = np.quantile(scores, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(value), float(low), float(high))


def resampled_means(values: ArrayLike, *, resamples: int = RESAMPLES, seed: int = 0) -> Floats:
    """Give the means (R, ...) over R draws of N images from N, with replacement."""
    table = _images(values)
    if resamples < 1:
        raise InputError(f"{resamples} resamples give no interval; ask for at least 1, better 1,000 or more.")
    count = len(table)
    flat = table.reshape(count, -1)
    rng = np.random.default_rng(seed)
    together = max(1, _DRAWS_AT_ONCE // count)
    means = np.empty((resamples, flat.shape[1]))
    for start in range(0, resamples, together):
        rows = min(together, resamples - start)
        drawn = rng.integers(0, count, (rows, count)) + np.arange(rows)[:, None] * count
        times = np.bincount(drawn.reshape(-1), minlength=rows * count).reshape(rows, count)
        means[start : start + rows] = times.astype(np.float64) @ flat / count
    return means.reshape(resamples, *table.shape[1:])


def _only(means: Floats) -> Floats:
    return means


def _images(values: ArrayLike, dimensions: int | None = None) -> Floats:
    table = np.asarray(values, np.float64)
    if table.ndim == 0 or (dimensions is not None and table.ndim != dimensions):
        raise InputError(f"One value per image is needed, but the shape is {table.shape}; give an array (N,).")
    if not len(table):
        raise InputError("There are no images to take a mean of; give at least one.")
    if not np.isfinite(table).all():
        raise InputError("Some values are NaN or infinite; leave out the images that have no value.")
    return table
