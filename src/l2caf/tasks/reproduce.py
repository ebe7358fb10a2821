"""Measure tables of the paper again, by the tasks that people have themselves, and make one page of all of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..datasets import LAYOUTS
from ..datasets.search import DEPTH, find
from ..errors import InputError
from ..evaluation.reproduction import Reproduced
from ..files import write_json
from ..progress import Progress, silent
from ..reports.reproduction import write_reproduction
from ..runs.lock import alone_in
from .reproduce_steps import ReproduceRequest, Steps
from .reproduce_tables import ALL, TABLES

__all__ = ["ReproduceRequest", "Reproduction", "reproduce"]

TABLE, RESULTS, REPORT = "table.json", "results.json", "report.html"


@dataclass(frozen=True)
class Reproduction:
    """The tables that were asked for, the page of all that the folder holds, and what could not be measured."""

    tables: tuple[Reproduced, ...]
    report: Path
    left_out: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "tables": {one.table: one.as_dict() for one in self.tables},
            "left_out": list(self.left_out),
            "report": str(self.report),
        }


def reproduce(request: ReproduceRequest, *, progress: Progress = silent) -> Reproduction:
    """Train or take what is there, measure, and write the page; the same request again resumes one that was stopped.

    Of all tables, those whose data are missing are left out; one that was asked for by name is refused.
    """
    found = {} if request.data is None else find(request.data)
    wanted, left_out = [], []
    for key in TABLES if ALL in request.tables else dict.fromkeys(request.tables):
        if words := _missing(key, found, request.data):
            if ALL not in request.tables:
                raise InputError(words, field="data")
            left_out.append(words)
        else:
            wanted.append(key)
    if request.weights is not None and (trained := [key for key in wanted if TABLES[key].trains]):
        raise InputError(
            f"A file of weights is for a network that is measured as it is, and {trained[0]} trains its own: leave one"
            " of them out.",
            field="weights",
        )
    made = []
    with alone_in(request.out):
        for key in wanted:
            measure: Callable[[Steps], Reproduced] = TABLES[key].load()
            made.append(measure(Steps(request, key, found, progress)))
            write_json(request.out / key / TABLE, made[-1].as_dict())
            report = _summed_up(request.out)  # now, since the next table may take hours
    return Reproduction(tuple(made), report, tuple(left_out))


def _missing(key: str, found: dict[str, Path], data: Path | None) -> str:
    """What a table lacks, in a sentence; empty where it has what it needs."""
    needs = TABLES[key].needs
    if not needs or any(kind in found for kind in needs):
        return ""
    where = "no folder of data was given" if data is None else f"'{data}' has none, {DEPTH} levels deep"
    known = " or ".join(f"{LAYOUTS[kind].title} (known by {LAYOUTS[kind].known_by[0]})" for kind in needs)
    return f"{TABLES[key].title.partition(':')[0]} needs {known}, and {where}: give the folder that holds it."


def _summed_up(out: Path) -> Path:
    """Write the document and the page of all tables that the folder holds."""
    tables = [one for one in map(_read, (out / key / TABLE for key in TABLES)) if one is not None]
    write_json(out / RESULTS, {"tables": {one.table: one.as_dict() for one in tables}})
    settings = {"tables": ", ".join(one.table for one in tables)}
    return write_reproduction(out / REPORT, tables, settings=settings)


def _read(path: Path) -> Reproduced | None:
    """A table that was measured; one that is not there or damaged is measured again when it is asked for."""
    try:
        return Reproduced.from_dict(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
