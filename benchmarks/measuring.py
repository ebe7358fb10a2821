"""Side-by-side timing and the rows that every measurement gives."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Row:
    """One promise and what became of it; `met` is None for a figure that is only shown."""

    what: str
    measured: str
    bar: str = ""
    met: bool | None = None
    details: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Times:
    """Seconds a round of each contestant, round by round."""

    rounds: Mapping[str, list[float]]

    def ratio(self, one: str, other: str) -> float:
        """Return the median over the rounds of one's time over the other's."""
        return statistics.median(self._ratios(one, other))

    def spread(self, one: str, other: str) -> str:
        low, _, high = statistics.quantiles(self._ratios(one, other), n=4)
        return f"{low:.2f}-{high:.2f}"

    def milliseconds(self, one: str) -> float:
        return 1000 * statistics.median(self.rounds[one])

    def _ratios(self, one: str, other: str) -> list[float]:
        return [a / b for a, b in zip(self.rounds[one], self.rounds[other], strict=True)]


def side_by_side(contestants: Mapping[str, Callable[[], Any]], *, rounds: int = 9, warm_up: int = 2) -> Times:
    """Time the contestants in turn, round after round."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(warm_up + rounds):
        for name, run in contestants.items():
            began = time.perf_counter()
            run()
            if number >= warm_up:
                times[name].append(time.perf_counter() - began)
    return Times(times)
