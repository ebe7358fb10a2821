"""How much of the input does a position answer to? A map is local where that is a part of it, around its own place.

Where positions answer may follow their places (`positions.py`) though each of them answers to nearly all of the input,
a little more on its own side: kernels as large as the map, with zeros around it, do that. What is hot in such a map is
not where the network looked. With w_ak as there, nothing taken off:

    slope_g  = of the centres sum_k u_k w_ak / sum_k w_ak on the positions' places along axis g: 1 where they go along
               with their places, 0 where each stays in the middle
    follows  = 1 - prod_g (1 - slope_g)
    share_g  = mean over positions of (sum_k w_ak)^2 / (K sum_k w_ak^2): what part of the axis they answer to
    share    = prod_g share_g
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# Trained networks at their own size have 0.93 and more, at half of it 0.48. Of two layers whose maps occlusion
# contradicts, the one has 0.12, the other, of which some use may be left, 0.40; the layer before them, which it
# confirms, 0.83. The least of right layers with random weights is 0.28.
LEAST_FOLLOWING = 0.2
CLEARLY_FOLLOWING = 0.5  # below this a map is drawn, and what is known is said


@dataclass(frozen=True)
class Locality:
    """How far the positions of a map keep to their places, and the share of the input that each answers to."""

    follows: float
    share: float

    @classmethod
    def of(cls, axes: Iterable[tuple[Floats, Floats]]) -> Locality:
        """From how strongly positions answer, (slabs, positions), and their places in [0, 1], for each axis.

        >>> places = np.array([0.125, 0.375, 0.625, 0.875])
        >>> Locality.of([(np.eye(4), places)]), Locality.of([(np.ones((4, 4)), places)])
        (Locality(follows=1.0, share=0.25), Locality(follows=0.0, share=1.0))
        """
        still, share = 1.0, 1.0
        for answers, places in axes:
            total = answers.sum(axis=0)
            parts = np.where(total > 0, answers, 1.0) / np.where(total > 0, total, len(answers))
            middle = (np.arange(len(parts)) + 0.5) / len(parts)
            offset = places - places.mean()
            slope = float((middle @ parts) @ offset) / float(offset @ offset)
            still *= min(max(1 - slope, 0.0), 1.0)
            share *= float((1 / (len(parts) * (parts * parts).sum(axis=0))).mean())
        return cls(1 - still, share)

    @property
    def is_local(self) -> bool:
        return self.follows >= LEAST_FOLLOWING

    @property
    def is_clear(self) -> bool:
        return self.follows >= CLEARLY_FOLLOWING

    def __str__(self) -> str:
        return f"each of its positions answers to {math.floor(100 * self.share + 0.5)} % of the input"
