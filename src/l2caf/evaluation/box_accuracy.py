"""MaxBoxAcc and MaxBoxAccV2: box accuracy at the threshold that suits a method best.

Choe et al., "Evaluation for Weakly Supervised Object Localization: Protocol, Metrics, and Datasets". With B
the ground-truth boxes of an image, and box(τ) what is boxed of its map when it is cut at the threshold τ,

    BoxAcc(τ, δ)  = share of images where IoU(box(τ), B) >= δ
    MaxBoxAcc     = max_τ BoxAcc(τ, 0.5)                                  box(τ): the largest component
    MaxBoxAccV2   = mean over δ in {0.3, 0.5, 0.7} of max_τ BoxAcc(τ, δ)  box(τ): every component

where the IoU of several boxes is that of the best pair. τ is one number for all images, chosen on these very
images and for each δ anew, so the score is that of the best threshold of the sweep, not one to expect of a
threshold fixed beforehand. The label is taken as known.

The benchmark scales a map to [0, 1] by its least and greatest value before it is cut; `localization` cuts at
a share of the greatest, which is the same for maps whose least value is 0. From others subtract it first. The
benchmark's program also rounds maps to 256 levels, cuts with > instead of >=, and takes boxes as inclusive;
the definition does not, and neither do we.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InputError
from .intervals import LEVEL, RESAMPLES, Interval, interval_of

Floats = NDArray[np.float64]

V1_NEEDED = (0.5,)
V2_NEEDED = (0.3, 0.5, 0.7)


@dataclass(frozen=True, slots=True)
class BoxAccuracy:
    """The score, and what lies behind it for D demands on the IoU and T thresholds.

    `curves` (D, T): BoxAcc at each threshold; `best` (D,): the place of the best threshold of each curve, the
    first of several.
    """

    value: float
    curves: Floats
    best: tuple[int, ...]


def max_box_acc(ious: ArrayLike) -> BoxAccuracy:
    """Compute MaxBoxAcc from the IoUs (N, T) of the largest component's box (`Overlap.largest`).

    >>> max_box_acc([[0.6, 0.1], [0.4, 0.8], [0.9, 0.2]]).value.__round__(3)
    0.667
    """
    return box_accuracy(ious, needed=V1_NEEDED)


def max_box_acc_v2(ious: ArrayLike) -> BoxAccuracy:
    """Compute MaxBoxAccV2 from the highest IoUs (N, T) among all components' boxes (`Overlap.best`).

    >>> max_box_acc_v2([[0.6, 0.1], [0.4, 0.8]]).value.__round__(3)
    0.667
    """
    return box_accuracy(ious, needed=V2_NEEDED)


def box_accuracy(ious: ArrayLike, *, needed: Sequence[float]) -> BoxAccuracy:
    """Compute the mean, over the demands on the IoU, of the share of hits at the best threshold."""
    curves = box_hits(ious, needed).mean(axis=0)
    return BoxAccuracy(float(best_share(curves[None])[0]), curves, tuple(curves.argmax(axis=1).tolist()))


def box_accuracy_interval(
    ious: ArrayLike,
    *,
    needed: Sequence[float] = V1_NEEDED,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    seed: int = 0,
) -> Interval:
    """Give the score with its interval; every draw of images chooses its threshold, as the score does."""
    return interval_of(best_share, box_hits(ious, needed), resamples=resamples, level=level, seed=seed)


def box_accuracy_difference(
    ours: ArrayLike,
    theirs: ArrayLike,
    *,
    needed: Sequence[float] = V1_NEEDED,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    seed: int = 0,
) -> Interval:
    """Give the score of ours − that of theirs on the same images; each draw chooses both thresholds anew."""
    first, second = box_hits(ours, needed), box_hits(theirs, needed)
    if first.shape != second.shape:
        raise InputError(
            f"IoUs of shapes {first.shape[::2]} and {second.shape[::2]} cannot be paired; "
            "give both on the same images and thresholds."
        )

    def difference(means: Floats) -> Floats:
        return best_share(means[:, 0]) - best_share(means[:, 1])

    both = np.stack([first, second], axis=1)
    return interval_of(difference, both, resamples=resamples, level=level, seed=seed)


def box_hits(ious: ArrayLike, needed: Sequence[float]) -> NDArray[np.bool_]:
    """Tell for each image, demand and threshold (N, D, T) whether the box is good enough."""
    table = np.asarray(ious, np.float64)
    if table.ndim != 2 or 0 in table.shape:
        raise InputError(f"IoUs are needed for each image and threshold (N, T), but the shape is {table.shape}.")
    if not len(needed):
        raise InputError("No IoU was asked for; give at least one demand, such as 0.5.")
    return table[:, None, :] >= np.asarray(needed, np.float64)[:, None]


def best_share(shares: Floats) -> Floats:
    """From shares of hits (R, D, T) to scores (R,)."""
    return shares.max(axis=2).mean(axis=1)
