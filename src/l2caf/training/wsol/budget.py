"""How many iterations fit into what a person has: so many minutes, or a number of iterations."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import InputError
from ...files import write_json

if TYPE_CHECKING:
    from .job import WsolJob

PLAN = "plan.json"
TRIED = 3  # iterations that are timed; the fastest but one says how long all take
SPARE = 0.9  # of what is left, since other work may come between
_UNITS = {"h": 60.0, "m": 1.0, "min": 1.0, "s": 1 / 60}


@dataclass(frozen=True)
class Budget:
    """At most so long, or so many iterations; neither: as published.

    >>> Budget.parse("20m"), Budget.parse("500"), Budget.parse("")
    (Budget(minutes=20.0, iterations=None), Budget(minutes=None, iterations=500), Budget(minutes=None, iterations=None))
    """

    minutes: float | None = None
    iterations: int | None = None

    @classmethod
    def parse(cls, text: str) -> Budget:
        """Read what people write: 20m, 1.5h, 90s, or a number of iterations."""
        if not text:
            return cls()
        if text.isdecimal() and int(text) > 0:
            return cls(iterations=int(text))
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(h|min|m|s)", text.strip())
        if not found or not float(found[1]):
            raise InputError(
                f"{text!r} is no budget: give minutes or hours as 20m or 1.5h, or a number of iterations, as 500.",
                field="budget",
            )
        return cls(minutes=float(found[1]) * _UNITS[found[2]])


def plan_iterations(text: str, wanted: int, job: WsolJob, *, began: float) -> int:
    """The iterations of a run: as many as wanted, or as many as the budget has room for.

    Minutes are counted from `began`, before features were stored. The plan stays in the folder of the run: one that is
    resumed, on a machine that is faster now, follows the plan that it was made with.
    """
    from ..kept import current

    budget = Budget.parse(text)
    if budget.iterations is not None:
        return min(wanted, budget.iterations)
    if budget.minutes is None:
        return wanted
    found = _stored(text)
    if found is None:
        left = 60 * budget.minutes - (time.monotonic() - began)
        each = _seconds_per_iteration(job)
        found = max(1, int(SPARE * left / each))
    found = int(job.fabric.broadcast(min(wanted, found)))
    if job.fabric.is_global_zero and (kept := current()) is not None:
        write_json(kept.folder / PLAN, {"budget": text, "iterations": found})
    return found


def _seconds_per_iteration(job: WsolJob) -> float:
    """Time some, with all that they change undone; measuring on held-out pictures has its share."""
    from ..state import put, random_numbers_kept, state_of

    before, taken = state_of(job.module), []
    with random_numbers_kept(job.fabric.device):
        for iteration in range(TRIED):
            start = time.monotonic()
            job.fabric.backward(job.loss(iteration))
            taken.append(time.monotonic() - start)
        start = time.monotonic()
        job.measure()
        measuring = time.monotonic() - start
    job.optimizer.zero_grad()
    put(before, job.module)
    return sorted(taken)[1] + measuring / job.measure_every


def _stored(text: str) -> int | None:
    from ..kept import current

    kept = current()
    try:
        plan: dict[str, Any] = json.loads(Path(kept.folder / PLAN).read_text("utf-8")) if kept else {}
        return int(plan["iterations"]) if plan.get("budget") == text else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
