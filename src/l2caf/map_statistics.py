"""Where a map lies, in a few numbers: how spread out it is, where its middle is, how much of it is on the object.

All are of the attention on each position, m = f^2 / sum(f^2) of what is shown: squares, since a filter is held to unit
L2 norm, so that of a filter without signs m is f^2 itself and sums to 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from .boxes import Boxes, as_boxes

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class MapStatistics:
    """Maps in numbers, an array (B,) each; NaN where a map shows nothing, and `on_object` where there is no box.

    entropy     0 for one position alone, 1 for all alike: -sum(m log m) / log n
    x, y        the middle of the attention, 0 to 1 from the left and from the top of the input
    border      the share of the attention that is nearer to an edge of the input than an eighth of its side
    on_object   the share of the attention inside the boxes
    """

    entropy: Floats
    x: Floats
    y: Floats
    border: Floats
    on_object: Floats

    def __len__(self) -> int:
        return len(self.entropy)

    @classmethod
    def joined(cls, parts: Sequence[MapStatistics]) -> MapStatistics:
        """Several one after another."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts] or [np.zeros(0)]) for name in NAMES))

    def means(self) -> dict[str, float]:
        """The mean of each over the maps that have one; what none has is left out."""
        values = {name: getattr(self, name) for name in NAMES}
        return {name: float(np.nanmean(one)) for name, one in values.items() if np.isfinite(one).any()}

    def row(self, index: int) -> dict[str, float | None]:
        """The numbers of one map, as JSON."""
        values = {name: float(getattr(self, name)[index]) for name in NAMES}
        return {name: round(value, DIGITS) if np.isfinite(value) else None for name, value in values.items()}


NAMES = tuple(field.name for field in fields(MapStatistics))
DIGITS = 6
EDGE = 1 / 8  # of the width and of the height, on either side


def attention_of(shown: npt.NDArray[Any]) -> Floats:
    """The attention on each position, (..., h, w): each map's sums to 1, but for one that shows nothing.

    `shown` is what is shown of the filter: its magnitude, or of one that keeps a sign what speaks for.

    >>> attention_of(np.array([[3.0, 4.0]])).round(2).tolist()
    [[0.36, 0.64]]
    """
    squares = np.square(np.asarray(shown, dtype=np.float64))
    total = squares.sum(axis=(-2, -1), keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Floats = np.where(np.isfinite(total) & (total > 0), squares / total, 0.0)
    return found


def statistics_of(attention: Floats, *, size: tuple[int, int], boxes: Sequence[Boxes] | None = None) -> MapStatistics:
    """The numbers of maps (B, h, w), as `attention_of` gives them; boxes are in pixels of the input, (height, width).

    >>> corner = attention_of(np.array([[[1.0, 0.0], [0.0, 0.0]]]))
    >>> statistics_of(corner, size=(100, 200), boxes=[np.array([[0, 0, 50, 50]])]).row(0)["on_object"]
    0.5
    """
    batch, height, width = attention.shape
    shows = attention.reshape(batch, -1).max(axis=1, initial=0.0) > 0
    blank = np.where(shows, 1.0, np.nan)
    logs = np.log(np.where(attention > 0, attention, 1.0))
    entropy = -(attention * logs).sum(axis=(1, 2)) / max(np.log(height * width), 1e-12)
    across, down = (np.arange(width) + 0.5) / width, (np.arange(height) + 0.5) / height
    inner = np.outer(_covered(height, EDGE, 1 - EDGE), _covered(width, EDGE, 1 - EDGE))
    on_object = np.full(batch, np.nan)
    for index, one in enumerate(boxes or ()):
        if shows[index] and len(one):
            inside = share_in_boxes(one, size=size, grid=(height, width))
            on_object[index] = (attention[index] * inside).sum()
    return MapStatistics(
        entropy * blank,
        (attention.sum(axis=1) @ across) * blank,
        (attention.sum(axis=2) @ down) * blank,
        (1 - (attention * inner).sum(axis=(1, 2))) * blank,
        on_object,
    )


def share_in_boxes(boxes: Boxes, *, size: tuple[int, int], grid: tuple[int, int]) -> Floats:
    """The share of each cell of a grid over the input that lies inside the boxes, (h, w).

    Boxes may overlap: what is in two of them counts once.

    >>> share_in_boxes(np.array([[0, 0, 3, 2], [2, 0, 4, 2]]), size=(4, 4), grid=(2, 2)).tolist()
    [[1.0, 1.0], [0.0, 0.0]]
    """
    checked = as_boxes(boxes)
    (height, width), (rows, columns) = size, grid
    # Between two neighbouring edges of boxes and cells, a place is either inside of a box or not.
    edges_x = _edges(checked[:, 0::2], width, columns)
    edges_y = _edges(checked[:, 1::2], height, rows)
    x, y = (edges_x[1:] + edges_x[:-1]) / 2, (edges_y[1:] + edges_y[:-1]) / 2
    inside = np.zeros((len(y), len(x)), dtype=bool)
    for x0, y0, x1, y1 in checked:
        inside |= ((y >= y0) & (y < y1))[:, None] & ((x >= x0) & (x < x1))[None]
    areas = inside * np.outer(np.diff(edges_y), np.diff(edges_x))
    found = np.zeros(grid)
    cell_x = np.minimum((x / width * columns).astype(int), columns - 1)
    cell_y = np.minimum((y / height * rows).astype(int), rows - 1)
    np.add.at(found, (cell_y[:, None], cell_x[None]), areas)
    return found * (rows * columns / (height * width))


def _edges(of_boxes: npt.NDArray[Any], length: int, cells: int) -> Floats:
    found: Floats = np.unique(np.clip(np.concatenate([of_boxes.ravel(), np.linspace(0, length, cells + 1)]), 0, length))
    return found


def _covered(cells: int, start: float, stop: float) -> Floats:
    """The share of each cell, of a row of them from 0 to 1, that lies between two places."""
    edges = np.linspace(0, 1, cells + 1)
    inside: Floats = np.clip(np.minimum(edges[1:], stop) - np.maximum(edges[:-1], start), 0, None) * cells
    return inside


def regridded(attention: Floats, grid: tuple[int, int]) -> Floats:
    """Maps (..., h, w) on another grid over the same input; what a cell had is spread evenly, and nothing is lost.

    >>> regridded(np.array([[1.0, 0.0, 0.0]]), (1, 2)).round(3).tolist()
    [[1.0, 0.0]]
    """
    down, across = (
        np.stack([_covered(cells, one / wanted, (one + 1) / wanted) for one in range(wanted)])
        for cells, wanted in zip(attention.shape[-2:], grid, strict=True)
    )
    found: Floats = down @ attention @ across.T
    return found
