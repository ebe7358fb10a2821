"""The page of all tables of the paper that were measured again: ours beside its own, and what was not met."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from urllib.parse import quote

from ..evaluation.reproduction import Reproduced, Row, words_of
from .page import Cell, table, write_page

MARGINS = (
    "Ours: on the same images, with 95 % intervals of the paired difference, bold where they leave zero out. The"
    " paper's: the difference of what it prints, which has no interval."
)


def write_reproduction(path: Path, tables: Sequence[Reproduced], *, settings: Mapping[str, str]) -> Path:
    """Write the page: a section for each table."""
    parts = [part for one in tables for part in _section(one)]
    return write_page(path, parts, title="The paper's tables, measured again", settings=settings)


def grid_of(found: Reproduced, *, margins: bool = False) -> tuple[list[str], list[list[Cell]]]:
    """The heads and the cells of a table's rows, or of its margins; columns that all rows leave empty are left out."""
    rows = found.margins if margins else found.rows
    trained, said = (any(getattr(row, part) for row in rows) for part in ("trained", "words"))
    measures = [one for one in found.measures if any(one.key in row.numbers for row in rows)]
    heads = ["method", "network", *(["trained by"] if trained else []), *(one.title for one in measures)]
    lines = []
    for row in rows:
        network = Cell(row.network, best=True) if row.ours else Cell(f"in the paper: {row.network}")
        cells = [Cell(row.method), network]
        cells += [Cell(row.trained)] if trained else []
        cells += [_number(row, one.key, one.unit, signed=margins) for one in measures]
        lines.append([*cells, *([Cell(row.words)] if said else [])])
    return [*heads, *([""] if said else [])], lines


def _number(row: Row, key: str, unit: str, *, signed: bool) -> Cell:
    number = row.numbers.get(key)
    if number is None:
        return Cell("")
    apart = number.low is not None and number.high is not None and (number.low > 0 or number.high < 0)
    return Cell(words_of(number, unit, signed=signed), best=signed and apart)


def _section(found: Reproduced) -> list[str]:
    parts = [f"<h2>{escape(found.title)}</h2>", table(*grid_of(found)), f"<p class=note>{escape(found.note)}</p>"]
    if found.margins:
        parts += ["<h3>One against another</h3>", table(*grid_of(found, margins=True)), f"<p class=note>{MARGINS}</p>"]
    if found.unmet:
        lines = "".join(f"<li><b>{escape(one.about)}</b>: {escape(one.words)}</li>" for one in found.unmet)
        parts.append(f"<h3>Not as in the paper</h3><ul>{lines}</ul>")
    if found.pages:
        links = "".join(f"<li><a href='./{quote(page)}'>{escape(page)}</a></li>" for page in found.pages)
        parts.append(f"<h3>Each run by itself</h3><ul>{links}</ul>")
    return parts
