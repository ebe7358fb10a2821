"""Timing several things side by side, so that what disturbs one disturbs all."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Times:
    """Seconds a round of each contestant, round by round."""

    rounds: Mapping[str, list[float]]

    def seconds(self, one: str) -> float:
        """The median over the rounds."""
        return statistics.median(self.rounds[one])

    def milliseconds(self, one: str) -> float:
        return 1000 * self.seconds(one)

    def ratio(self, one: str, other: str) -> float:
        """The median over the rounds of one's time over the other's."""
        return statistics.median(self._ratios(one, other))

    def spread(self, one: str, other: str) -> str:
        """The quartiles of that ratio."""
        low, _, high = statistics.quantiles(self._ratios(one, other), n=4)
        return f"{low:.2f}-{high:.2f}"

    def _ratios(self, one: str, other: str) -> list[float]:
        return [a / b for a, b in zip(self.rounds[one], self.rounds[other], strict=True)]


def side_by_side(
    contestants: Mapping[str, Callable[[], Any]],
    *,
    rounds: int = 9,
    warm_up: int = 2,
    advance: Callable[[], None] = lambda: None,
) -> Times:
    """Time the contestants in turn, round after round; `advance` is called after every round.

    >>> sorted(side_by_side({"nothing": int, "something": dict}, rounds=3).rounds)
    ['nothing', 'something']
    """
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(warm_up + rounds):
        for name, run in contestants.items():
            began = time.perf_counter()
            run()
            if number >= warm_up:
                times[name].append(time.perf_counter() - began)
        advance()
    return Times(times)
