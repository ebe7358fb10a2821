"""From a heatmap to boxes: mask at a share of the maximum, connected components, tight boxes, IoU.

Boxes are x0, y0, x1, y1 in pixels, half-open: the box of the single pixel (x, y) is x, y, x + 1, y + 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from .boxes import Floats, best_iou
from .errors import InputError

Ints = NDArray[np.int64]
# Masks are labelled together up to so many pixels: it spreads the cost of a call, yet stays in the cache.
_PIXELS_AT_ONCE = 1 << 19


@dataclass(frozen=True, slots=True)
class Components:
    """The connected components of all masks of a sweep, in order of mask, then of their first pixel.

    `boxes` (n, 4); `areas` (n,) in pixels; `masks` (n,): which mask each belongs to, counted through `shape`,
    the shape (..., T) of all masks.
    """

    boxes: Ints
    areas: Ints
    masks: Ints
    shape: tuple[int, ...]

    def largest(self) -> Ints:
        """Give the box of each mask's largest component (..., T, 4); 0, 0, 0, 0 where a mask is empty.

        Of equally large ones it is the one whose first pixel comes first, row by row.
        """
        by_size = np.lexsort((-self.areas, self.masks))  # stable: ties keep their order
        masks, first = np.unique(self.masks[by_size], return_index=True)
        chosen = np.zeros((*self.shape, 4), np.int64)
        chosen.reshape(-1, 4)[masks] = self.boxes[by_size[first]]
        return chosen

    def split(self) -> list[Ints]:
        """Give the boxes of each mask apart: one array (n, 4) per mask, as counted through `shape`."""
        count = int(np.prod(self.shape))
        return np.split(self.boxes, np.searchsorted(self.masks, np.arange(1, count)))[:count]

    def by_size(self) -> list[Ints]:
        """Give the boxes of each mask apart, as `split` does, that of the largest component first."""
        count = int(np.prod(self.shape))
        areas = np.split(self.areas, np.searchsorted(self.masks, np.arange(1, count)))[:count]
        return [boxes[np.argsort(-own, kind="stable")] for boxes, own in zip(self.split(), areas, strict=True)]

    def greatest(self, scores: ArrayLike) -> Floats:
        """Give the greatest of the components' scores (n,) in each mask (..., T); 0 where a mask is empty."""
        best = np.zeros(self.shape)
        np.maximum.at(best.reshape(-1), self.masks, scores)
        return best


@dataclass(frozen=True, slots=True)
class Overlap:
    """How well the boxes at each threshold meet the ground truth: IoUs of shape (..., T).

    `largest`: of the largest component's box; `best`: the highest among the boxes of all components.
    """

    largest: Floats
    best: Floats


def components_of(heat: ArrayLike, thresholds: Sequence[float] = (0.2,)) -> Components:
    """Find the 8-connected components of `heat >= t * heat.max()` for all maps (..., H, W) and thresholds t.

    The rows of all masks are cut into runs, runs that touch become the edges of one graph, and the graph is
    labelled in one pass: the work follows the outlines, not the pixels. A map without a positive value has no
    components. The comparison is made in the map's own precision.

    >>> components_of([[3, 0, 2, 2]], [0.5, 0.7]).boxes.tolist()
    [[0, 0, 1, 1], [2, 0, 4, 1], [0, 0, 1, 1]]
    """
    maps, shares = _checked(heat, thresholds)
    height, width = maps.shape[-2:]
    shape = (*maps.shape[:-2], shares.size)
    stack = maps.reshape(int(np.prod(maps.shape[:-2])), height, width)
    peaks = stack.max(axis=(1, 2), initial=0)[:, None]
    # No pixel reaches infinity: so a map without a positive value has empty masks.
    cuts = np.where(peaks > 0, shares * peaks, np.inf)
    masks = [(pixels, cut) for pixels, row in zip(stack, cuts, strict=True) for cut in row]
    together = max(1, _PIXELS_AT_ONCE // ((height + 1) * (width + 1)))
    parts = [
        _label(masks[start : start + together], first=start, size=(height, width))
        for start in range(0, len(masks), together)
    ]
    boxes, areas, belongs = (np.concatenate(part) for part in zip(_nothing(), *parts, strict=True))
    return Components(boxes, areas, belongs, shape)


def components_of_volume(heat: ArrayLike, threshold: float = 0.2) -> Ints:
    """Put a box around every 26-connected component of `heat >= t * heat.max()` of one map (D, H, W).

    Boxes are x0, y0, z0, x1, y1, z1, half-open, where x is the last axis: (n, 6). That of the largest comes first, and
    of equally large ones that whose first voxel comes first. A map without a positive value has none.

    >>> components_of_volume([[[3, 0], [0, 0]], [[0, 0], [0, 1]]], 0.5).tolist()
    [[0, 0, 0, 1, 1, 1]]
    """
    from scipy.ndimage import find_objects, label

    values, (share,) = _checked(heat, [threshold])
    if values.ndim != 3:
        raise InputError(f"The map of a volume has three axes, but the shape is {values.shape}; give one map.")
    if not values.size or values.max() <= 0:
        return np.empty((0, 6), np.int64)
    labels, count = label(values >= share * values.max(), np.ones((3, 3, 3)))
    sizes = np.bincount(labels.reshape(-1), minlength=count + 1)[1:]
    found = [
        [*(one.start for one in place[::-1]), *(one.stop for one in place[::-1])] for place in find_objects(labels)
    ]
    return np.array(found, np.int64)[np.argsort(-sizes, kind="stable")]


def boxes_of(heat: ArrayLike, thresholds: Sequence[float] = (0.2,)) -> Ints:
    """Put a box around the largest component at each threshold: (..., H, W) to (..., T, 4).

    A threshold is a share of the map's maximum, in [0, 1]. A constant positive map gives the whole image, one
    without a positive value (or without pixels) the empty box 0, 0, 0, 0; NaN or infinity is an `InputError`.

    >>> boxes_of([[0, 0, 0], [0, 1, 9], [0, 1, 0]], [0.1, 0.5]).tolist()
    [[1, 1, 3, 3], [2, 1, 3, 2]]
    """
    return components_of(heat, thresholds).largest()


def all_boxes_of(heat: ArrayLike, thresholds: Sequence[float] = (0.2,)) -> list[Ints]:
    """Put a box around every component of one map (H, W): an array (n, 4) for each threshold.

    >>> [boxes.tolist() for boxes in all_boxes_of([[3, 0, 2, 2]], [0.5, 0.7])]
    [[[0, 0, 1, 1], [2, 0, 4, 1]], [[0, 0, 1, 1]]]
    """
    components = components_of(heat, thresholds)
    if len(components.shape) > 1:
        raise InputError("Several maps were given where one is meant; call `components_of` for a stack of maps.")
    return components.split()


def overlap_of(heat: ArrayLike, truths: ArrayLike, *, thresholds: Sequence[float] = (0.2,)) -> Overlap:
    """Compare the boxes of an image's maps (..., H, W) with its ground-truth boxes (n, 4), at each threshold.

    >>> overlap_of([[3, 0, 2, 2]], [[2, 0, 4, 1]], thresholds=[0.5]).best.tolist()
    [1.0]
    """
    components = components_of(heat, thresholds)
    every = components.greatest(best_iou(components.boxes, truths))
    return Overlap(largest=best_iou(components.largest(), truths), best=every)


def _checked(heat: ArrayLike, thresholds: Sequence[float]) -> tuple[NDArray[Any], NDArray[Any]]:
    maps = np.asarray(heat)
    if maps.dtype not in (np.float32, np.float64):
        maps = maps.astype(np.float32 if maps.dtype == np.float16 else np.float64)
    if maps.ndim < 2:
        raise InputError(f"A map has height and width, but the shape is {maps.shape}; give an array (..., H, W).")
    if not np.isfinite(maps).all():
        raise InputError("The map holds NaN or infinite values; leave this map out or replace them.")
    shares = np.asarray(thresholds, maps.dtype)
    if shares.ndim != 1 or not ((shares >= 0) & (shares <= 1)).all():
        raise InputError(
            f"Thresholds are shares of the maximum, between 0 and 1; {thresholds!r} is not a list of them."
        )
    return maps, shares


def _label(
    masks: Sequence[tuple[NDArray[Any], float]], *, first: int, size: tuple[int, int]
) -> tuple[Ints, Ints, Ints]:
    """Give boxes, areas and masks (counted from `first`) of the components of `pixels >= cut`, in order."""
    height, width = size
    # One empty column and row after each mask keep runs from touching across its borders.
    pitch = width + 1
    padded = np.zeros((len(masks), height + 1, pitch), np.bool_)
    for mask, (pixels, cut) in zip(padded, masks, strict=True):
        np.greater_equal(pixels, cut, out=mask[:height, :width])
    starts, stops = _runs(padded.reshape(-1))
    if not starts.size:
        return _nothing()
    count, component = _connect(starts, stops, pitch)

    row, left = np.divmod(starts, pitch)
    mask_of, top = np.divmod(row, height + 1)
    boxes = np.empty((count, 4), np.int64)
    boxes[:, 0] = width
    boxes[:, 2] = 0
    np.minimum.at(boxes[:, 0], component, left)
    np.maximum.at(boxes[:, 2], component, left + (stops - starts))
    # Runs come row by row, and of several values for one place the last one stays.
    boxes[component[::-1], 1] = top[::-1]
    boxes[component, 3] = top + 1
    areas = np.bincount(component, stops - starts, count).astype(np.int64)
    first_run = np.empty(count, np.int64)
    first_run[component[::-1]] = np.arange(component.size)[::-1]
    order = np.argsort(first_run)
    return boxes[order], areas[order], mask_of[first_run[order]] + first


def _runs(flags: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Starts and stops (exclusive) of the runs of True; the last flag must be False."""
    edges = np.flatnonzero(flags[1:] != flags[:-1]) + 1
    if flags[:1].any():
        edges = np.concatenate(([0], edges))
    return np.ascontiguousarray(edges[::2]), np.ascontiguousarray(edges[1::2])


def _connect(starts: Ints, stops: Ints, pitch: int) -> tuple[int, NDArray[np.int32]]:
    """Number the components: a run touches (corners count) a stretch of the sorted runs of the next row."""
    begin = np.searchsorted(stops, starts + pitch, "left")
    touching = np.searchsorted(starts, stops + pitch, "right") - begin
    ends = np.cumsum(touching)
    neighbours = np.arange(ends[-1]) + np.repeat(begin - (ends - touching), touching)
    bounds = np.concatenate(([0], ends))
    graph = csr_array((np.ones(neighbours.size), neighbours, bounds), shape=(starts.size, starts.size))
    return connected_components(graph, directed=False)


def _nothing() -> tuple[Ints, Ints, Ints]:
    return np.empty((0, 4), np.int64), np.empty(0, np.int64), np.empty(0, np.int64)
