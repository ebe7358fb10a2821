"""A threshold for each method, chosen on held-out pictures, and what it comes to on the pictures that are measured.

One threshold for all methods, the paper's 20 % of the maximum, favours those whose maps happen to be as broad as that
asks for. The best one on the measured pictures would be chosen with their boxes in view. So others choose:

    τ*(method) = the τ of the sweep with the highest GT-known accuracy on held-out pictures

of several equally good ones, the one nearest to the fixed one. The scores at τ* are those of the measured pictures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from ..errors import InputError
from .intervals import Interval, mean_interval, paired_difference
from .scores import Difference, MethodTable

CUT = ("loc_top1", "loc_top5", "gt_known")  # the measures that depend on where a map is cut


@dataclass(frozen=True)
class OwnThreshold:
    """One method at a threshold of its own; scores in per cent, gains in points.

    threshold   a share of the maximum
    held_out    GT-known on the pictures that chose it
    measures    on the measured pictures, at this threshold
    gains       the same less those at the fixed threshold, on the same pictures
    """

    threshold: float
    held_out: Interval
    measures: Mapping[str, Interval]
    gains: Mapping[str, Interval]

    def as_dict(self) -> dict[str, Any]:
        return {
            "threshold": self.threshold,
            "gt_known_held_out": self.held_out.as_dict(),
            **{measure: score.as_dict() for measure, score in self.measures.items()},
            "less_fixed": {measure: gain.as_dict() for measure, gain in self.gains.items()},
        }


@dataclass(frozen=True)
class OwnThresholds:
    """The thresholds of all methods.

    pictures      how many chose
    chosen_on     which, in words
    differences   between every two methods, each at its own threshold, on the measured pictures
    """

    pictures: int
    chosen_on: str
    methods: Mapping[str, OwnThreshold]
    differences: tuple[Difference, ...] = ()

    @property
    def measures(self) -> list[str]:
        """The measures that are given, in their usual order."""
        return list(next(iter(self.methods.values())).measures)

    def as_dict(self) -> dict[str, Any]:
        return {
            "pictures": self.pictures,
            "chosen_on": self.chosen_on,
            "methods": {name: found.as_dict() for name, found in self.methods.items()},
            "differences": [difference.as_dict() for difference in self.differences],
        }


def own_thresholds(
    held_out: Mapping[str, MethodTable],
    measured: Mapping[str, MethodTable],
    thresholds: Sequence[float],
    *,
    fixed: float,
    measures: Sequence[str],
    chosen_on: str,
) -> OwnThresholds:
    """Choose on the tables of held-out pictures, and score those of the measured ones, which must be others."""
    choosing, scored = (next(iter(tables.values())).images for tables in (held_out, measured))
    if both := sorted(set(choosing) & set(scored)):
        raise InputError(
            f"{len(both)} pictures, '{both[0]}' among them, would choose the threshold and be measured at it: hold out"
            " others.",
            field="threshold",
        )
    places = {name: best_place(table, thresholds, fixed=fixed) for name, table in held_out.items()}
    at_fixed = list(thresholds).index(fixed)
    cut = [measure for measure in CUT if measure in measures]
    found = {}
    for name, table in measured.items():
        own = {measure: table.hits(measure, places[name]) for measure in cut}
        found[name] = OwnThreshold(
            threshold=thresholds[places[name]],
            held_out=mean_interval(held_out[name].hits("gt_known", places[name])).in_percent(),
            measures={measure: mean_interval(hits).in_percent() for measure, hits in own.items()},
            gains={m: paired_difference(hits, table.hits(m, at_fixed)).in_percent() for m, hits in own.items()},
        )
    return OwnThresholds(len(choosing), chosen_on, found, tuple(_differences(measured, places, cut)))


def best_place(table: MethodTable, thresholds: Sequence[float], *, fixed: float) -> int:
    """The place of the threshold with the most boxes of IoU ≥ 0.5; of equal ones, the nearest to the fixed one."""
    hits = [int(table.hits("gt_known", place).sum()) for place in range(len(thresholds))]
    order = sorted(range(len(thresholds)), key=lambda place: (-hits[place], abs(thresholds[place] - fixed), place))
    return order[0]


def _differences(
    tables: Mapping[str, MethodTable], places: Mapping[str, int], measures: Sequence[str]
) -> list[Difference]:
    found = []
    for ours, theirs in combinations(tables, 2):
        for measure in measures:
            hits = [np.asarray(tables[name].hits(measure, places[name])) for name in (ours, theirs)]
            points = paired_difference(*hits)
            found.append(Difference(ours, theirs, measure, points.in_percent(), points.excludes_zero))
    return found
