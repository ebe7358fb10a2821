"""What became of a table of the paper when it was measured again: our rows and its own, and what was not as it was.

Nothing here measures. A table says what stands in its columns (`Measure`), and holds rows of ours and of the paper's;
margins are rows too, of one method less another, since they are what the paper claims.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .intervals import Interval
from .scores import Difference


@dataclass(frozen=True)
class Measure:
    """A column; `unit` is per cent, seconds, times (a ratio), or a share from 0 to 1."""

    key: str
    title: str
    unit: str = "%"


@dataclass(frozen=True)
class Number:
    """A value, and where it was measured its interval; the paper prints none.

    >>> Number(0.5).low is None
    True
    """

    value: float
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, score: Interval) -> Number:
        return cls(score.value, score.low, score.high)

    def as_dict(self) -> dict[str, float]:
        known = {"value": self.value, "low": self.low, "high": self.high}
        return {name: number for name, number in known.items() if number is not None}


@dataclass(frozen=True)
class Row:
    """One line of a table.

    method     what made the maps, or one less the other
    network    ours by its name in the catalogue, theirs as the paper calls it
    trained    by what loss or recipe; empty where nothing was trained
    ours       or the paper's
    numbers    by the keys of the measures; what was not measured is missing
    words      what is said of it beside the numbers
    """

    method: str
    network: str
    numbers: Mapping[str, Number]
    ours: bool = True
    trained: str = ""
    words: str = ""

    def as_dict(self) -> dict[str, Any]:
        known = {"method": self.method, "network": self.network, "trained": self.trained, "ours": self.ours}
        return {**known, "numbers": {key: one.as_dict() for key, one in self.numbers.items()}, "words": self.words}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Row:
        numbers = {key: Number(**number) for key, number in document["numbers"].items()}
        return cls(**{**document, "numbers": numbers})


@dataclass(frozen=True)
class Unmet:
    """One thing that was not as in the paper: of its data, networks, weights, training, or how it measured."""

    about: str
    words: str

    def as_dict(self) -> dict[str, str]:
        return {"about": self.about, "words": self.words}


@dataclass(frozen=True)
class Reproduced:
    """A table of the paper, measured again.

    table     its key
    title     what it shows
    note      how the numbers are to be read
    margins   one method less another, ours paired on the same images, the paper's the difference of what it prints
    unmet     what was not as in the paper
    pages     files with more about it, relative to the folder of all tables
    """

    table: str
    title: str
    note: str
    measures: tuple[Measure, ...]
    rows: tuple[Row, ...]
    margins: tuple[Row, ...] = ()
    unmet: tuple[Unmet, ...] = ()
    pages: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "title": self.title,
            "note": self.note,
            "measures": [{"key": one.key, "title": one.title, "unit": one.unit} for one in self.measures],
            "rows": [row.as_dict() for row in self.rows],
            "margins": [row.as_dict() for row in self.margins],
            "not_met": [one.as_dict() for one in self.unmet],
            "pages": list(self.pages),
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Reproduced:
        """Read what `as_dict` gave."""
        return cls(
            table=document["table"],
            title=document["title"],
            note=document["note"],
            measures=tuple(Measure(**one) for one in document["measures"]),
            rows=tuple(map(Row.from_dict, document["rows"])),
            margins=tuple(map(Row.from_dict, document["margins"])),
            unmet=tuple(Unmet(**one) for one in document["not_met"]),
            pages=tuple(document["pages"]),
        )


def paper_margins(rows: Iterable[Row], pairs: Sequence[tuple[str, str]], keys: Sequence[str]) -> list[Row]:
    """Of the paper's rows, one method less the other on the same network, wherever it has both.

    >>> rows = [Row("CAM", "VGG", {"loc": Number(40.0)}, ours=False), Row("ours", "VGG", {"loc": Number(41.5)})]
    >>> paper_margins(rows, [("ours", "CAM")], ["loc"])[0].numbers["loc"].value
    1.5
    """
    found: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        found.setdefault((row.trained, row.network), {})[row.method] = row
    made = []
    for (trained, network), methods in found.items():
        for first, second in pairs:
            if first in methods and second in methods:
                ours, theirs = methods[first].numbers, methods[second].numbers
                numbers = {
                    key: Number(round(ours[key].value - theirs[key].value, 4))
                    for key in keys
                    if key in ours and key in theirs
                }
                made.append(Row(less(first, second), network, numbers, ours=False, trained=trained))
    return made


def margin(differences: Iterable[Difference], first: str, second: str, keys: Mapping[str, str]) -> dict[str, Number]:
    """One method less another as an evaluation has it, whichever way round; `keys` from its measures to ours."""
    found = {}
    for one in differences:
        if one.measure not in keys or {one.ours, one.theirs} != {first, second}:
            continue
        value, low, high = one.points.value, one.points.low, one.points.high
        turned = Number(value, low, high) if one.ours == first else Number(-value, -high, -low)
        found[keys[one.measure]] = turned
    return found


def less(first: str, second: str) -> str:
    """What a margin is called.

    >>> less("L2-CAF", "CAM")
    'L2-CAF − CAM'
    """
    return f"{first} − {second}"


def ordered(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Rows of one method and training together, in the order in which these first come up, ours before the paper's."""
    rows = list(rows)
    trained, methods = ([*dict.fromkeys(part)] for part in ((r.trained for r in rows), (r.method for r in rows)))
    return tuple(sorted(rows, key=lambda row: (trained.index(row.trained), methods.index(row.method), not row.ours)))


def words_of(number: Number, unit: str, *, signed: bool = False) -> str:
    """A number with its interval, as a person reads it.

    >>> words_of(Number(53.21, 50.1, 56.28), "%"), words_of(Number(1.05), "%", signed=True), words_of(Number(0.31), "s")
    ('53.2 (50.1 to 56.3)', '+1.05', '0.310 s')
    """
    sign, shown = "+" if signed else "", [number.value]
    if number.low is not None and number.high is not None:
        shown += [number.low, number.high]

    def written(value: float) -> str:
        if unit == "s":
            digits = max(0, 2 - math.floor(math.log10(value))) if value > 0 else 2
            return f"{value:{sign}.{min(digits, 5)}f}"
        # What the paper prints is shown as it prints it; of a number with an interval more digits say nothing.
        return f"{value:{sign}.{2 if unit == 'share' or (unit == '%' and number.low is None) else 1}f}"

    value, *ends = map(written, shown)
    end = {"s": " s", "times": "×"}.get(unit, "")
    return f"{value}{end}" + (f" ({ends[0]} to {ends[1]})" if ends else "")
