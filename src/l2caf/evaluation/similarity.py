"""How alike two maps are: rank correlation, structural similarity, and histograms of oriented gradients.

All three are 1 for equal maps and near 0 for unrelated ones. A map without any variation (an empty one, say)
has neither ranks nor gradients: it is like another such map (1) and unlike every map that varies (0).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from ..errors import InputError

Floats = npt.NDArray[np.floating]

SMALLEST = 24  # pixels per side: three cells of eight, one block of gradients
_STILL = 1e-6  # a map that varies by less than this is flat


def rank_correlation(one: Floats, other: Floats) -> float:
    """Spearman's rank correlation of the pixels.

    >>> ramp = np.linspace(0, 1, 1024).reshape(32, 32)
    >>> rank_correlation(ramp, ramp**3)
    1.0
    """
    from scipy.stats import spearmanr

    _check(one, other)
    flat = _where_flat(one, other)
    return flat if flat is not None else float(spearmanr(one.ravel(), other.ravel()).statistic)


def structural_similarity(one: Floats, other: Floats) -> float:
    """SSIM in windows of 7 × 7; maps in [0, 1], or in [-1, 1] where any value is negative.

    >>> ramp = np.linspace(0, 1, 1024).reshape(32, 32)
    >>> structural_similarity(ramp, ramp), structural_similarity(ramp, 1 - ramp) < 0.6
    (1.0, True)
    """
    from skimage.metrics import structural_similarity as ssim

    _check(one, other)
    span = 2.0 if min(one.min(), other.min()) < 0 else 1.0
    return float(ssim(one.astype(np.float64), other.astype(np.float64), data_range=span))


def gradient_similarity(one: Floats, other: Floats) -> float:
    """Pearson's correlation of the histograms of oriented gradients (9 orientations, cells of 8 × 8).

    >>> ramp = np.linspace(0, 1, 1024).reshape(32, 32)
    >>> round(gradient_similarity(ramp, 0.5 * ramp), 6)
    1.0
    """
    from skimage.feature import hog

    _check(one, other)
    flat = _where_flat(one, other)
    if flat is not None:
        return flat
    first, second = hog(one.astype(np.float64)), hog(other.astype(np.float64))
    if min(np.ptp(first), np.ptp(second)) < _STILL:
        return 1.0 if np.allclose(first, second) else 0.0
    return float(np.corrcoef(first, second)[0, 1])


SIMILARITIES: Mapping[str, Callable[[Floats, Floats], float]] = {
    "rank": rank_correlation,
    "ssim": structural_similarity,
    "hog": gradient_similarity,
}
"""The measures by their short names."""

SIMILARITY_TITLES: Mapping[str, str] = {"rank": "rank correlation", "ssim": "SSIM", "hog": "HOG similarity"}


def _check(one: Floats, other: Floats) -> None:
    if one.shape != other.shape or one.ndim != 2 or min(one.shape) < SMALLEST:
        raise InputError(
            f"Maps of shapes {one.shape} and {other.shape} cannot be compared: give two of one shape,"
            f" {SMALLEST} × {SMALLEST} or larger."
        )
    if not (np.isfinite(one).all() and np.isfinite(other).all()):
        raise InputError("A map with NaN or infinity in it cannot be compared: leave it out.")


def _where_flat(one: Floats, other: Floats) -> float | None:
    """The answer where a map has no variation, else None."""
    still = [float(np.ptp(one)) < _STILL, float(np.ptp(other)) < _STILL]
    return 1.0 if all(still) else 0.0 if any(still) else None
