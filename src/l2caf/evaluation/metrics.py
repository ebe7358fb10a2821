"""What counts as a hit: classification, localisation, pointing game; and how much of an image objects cover.

Every measure gives one value per image, so that its mean is the score and `intervals` can tell how sure it is.
N images, P predictions per image (best first), T thresholds; boxes x0, y0, x1, y1, half-open, in pixels.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InputError

Hits = NDArray[np.bool_]
Floats = NDArray[np.float64]

IOU_NEEDED = 0.5


def classified(predicted: ArrayLike, labels: ArrayLike, *, top: int = 1) -> Hits:
    """Tell whether the label (N,) is among the first `top` predictions (N, P).

    >>> classified([[3, 1], [2, 5]], [3, 5]).tolist(), classified([[3, 1], [2, 5]], [3, 5], top=2).tolist()
    ([True, False], [True, True])
    """
    return np.asarray(_right(predicted, labels, top).any(axis=1))


def located(ious: ArrayLike, *, needed: float = IOU_NEEDED) -> Hits:
    """Tell whether the box meets a ground-truth box, whatever was predicted (GT-known): `ious >= needed`."""
    return np.asarray(ious, np.float64) >= needed


def localised(
    predicted: ArrayLike, labels: ArrayLike, ious: ArrayLike, *, top: int = 1, needed: float = IOU_NEEDED
) -> Hits:
    """Tell whether an image is classified and located: top-1 or top-5 localisation, (N, ...) as the IoUs.

    `ious` (N, ...) are those of the map for the image's label, or of the one map of a class-oblivious method.
    That is all the measure looks at: of the five predictions' maps only the one of the right class can count.

    >>> localised([[3, 1], [2, 5]], [3, 5], [0.6, 0.7], top=2).tolist()
    [True, True]
    """
    hits = located(ious, needed=needed)
    right = classified(predicted, labels, top=top)
    if hits.shape[:1] != right.shape:
        raise InputError(f"IoUs of shape {hits.shape} are not those of {right.size} images; give (N, ...).")
    return hits & right.reshape(-1, *[1] * (hits.ndim - 1))


def localised_by_prediction(
    predicted: ArrayLike, labels: ArrayLike, ious: ArrayLike, *, top: int = 1, needed: float = IOU_NEEDED
) -> Hits:
    """Tell the same from a map for each prediction: `ious` (N, P, ...) to (N, ...).

    >>> localised_by_prediction([[3, 1]], [1], [[0.9, 0.2]], top=2).tolist()
    [False]
    """
    hits = located(ious, needed=needed)
    right = _right(predicted, labels, top)
    if hits.shape[:1] != right.shape[:1] or hits.ndim < 2 or hits.shape[1] < right.shape[1]:
        raise InputError(f"IoUs of shape {hits.shape} do not give one number for each of the top {top} predictions.")
    hits = hits[:, : right.shape[1]]
    return np.asarray((hits & right.reshape(*right.shape, *[1] * (hits.ndim - 2))).any(axis=1))


def pointed(heat: ArrayLike, truths: ArrayLike, *, tolerance: float = 0) -> bool:
    """Play the pointing game: is the maximum of the map (H, W) in a ground-truth box (n, 4), or nearly so?

    Nearly: no farther than `tolerance` pixels (often 15) from a pixel of the box. A pixel belongs to the box
    that holds its centre. Of equal maxima the first by rows counts.

    >>> pointed([[0, 0, 9]], [[0, 0, 1, 1]]), pointed([[0, 0, 9]], [[0, 0, 1, 1]], tolerance=2)
    (False, True)
    """
    values = np.asarray(heat, np.float64)
    if values.ndim != 2 or not values.size or np.isnan(values).any():
        raise InputError("The pointing game needs a map (H, W) with pixels and without NaN; leave this map out.")
    y, x = np.unravel_index(values.argmax(), values.shape)
    # The first pixel whose centre the box holds, and the first after it whose centre it does not.
    low_x, low_y, stop_x, stop_y = np.ceil(_boxes(truths) - 0.5).T
    across = np.maximum(np.maximum(low_x - x, x - (stop_x - 1)), 0)
    down = np.maximum(np.maximum(low_y - y, y - (stop_y - 1)), 0)
    has_pixels = (stop_x > low_x) & (stop_y > low_y)
    return bool((has_pixels & (np.hypot(across, down) <= tolerance)).any())


def foreground_ratio(truths: ArrayLike, *, width: float, height: float) -> float:
    """Give the share of an image that its ground-truth boxes (n, 4) cover together.

    >>> foreground_ratio([[0, 0, 5, 10], [0, 0, 10, 5]], width=10, height=10)
    0.75
    """
    if not (width > 0 and height > 0):
        raise InputError(f"An image of {width}×{height} pixels has no area; give its width and height.")
    boxes = np.clip(_boxes(truths), 0, [width, height, width, height])
    # Between neighbouring edges nothing changes: a cell of this uneven grid is covered whole or not at all.
    xs, ys = np.unique(boxes[:, 0::2]), np.unique(boxes[:, 1::2])
    left, right, top, bottom = boxes[:, 0, None], boxes[:, 2, None], boxes[:, 1, None], boxes[:, 3, None]
    across = (left <= xs[:-1]) & (xs[1:] <= right)
    down = (top <= ys[:-1]) & (ys[1:] <= bottom)
    covered = (down[:, :, None] & across[:, None, :]).any(axis=0)
    return float(np.diff(ys) @ covered @ np.diff(xs) / (width * height))


def foreground_histogram(ratios: ArrayLike, *, bins: int = 10) -> tuple[Floats, Floats]:
    """Sort images by foreground ratio: the share of images (bins,) between neighbouring edges (bins + 1,)."""
    values = np.asarray(ratios, np.float64)
    counts, edges = np.histogram(values, bins=bins, range=(0.0, 1.0))
    return counts / max(1, values.size), edges


def _right(predicted: ArrayLike, labels: ArrayLike, top: int) -> Hits:
    """Mark, among the first `top` predictions (N, top), the one that is the label."""
    ranked, real = np.asarray(predicted), np.asarray(labels)
    if ranked.ndim != 2 or real.shape != ranked.shape[:1]:
        raise InputError(
            f"Predictions of shape {ranked.shape} and labels of shape {real.shape} do not belong together; "
            "give (N, P) and (N,)."
        )
    if not 1 <= top <= ranked.shape[1]:
        raise InputError(f"The top {top} were asked of {ranked.shape[1]} predictions; give as many as are looked at.")
    return ranked[:, :top] == real[:, None]


def _boxes(truths: ArrayLike) -> Floats:
    boxes = np.asarray(truths, np.float64)
    if boxes.size == 0:
        return boxes.reshape(0, 4)
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise InputError(f"Ground-truth boxes have the shape (n, 4), not {boxes.shape}; give x0, y0, x1, y1 each.")
    return boxes
