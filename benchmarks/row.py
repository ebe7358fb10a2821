"""The rows that every measurement gives; the stopwatch is the product's own."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from l2caf.evaluation.timing import Times, side_by_side

__all__ = ["Row", "Times", "side_by_side"]


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
