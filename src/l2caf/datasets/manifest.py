"""A table of one's own images: `file,label,x0,y0,x1,y1`."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..boxes import as_boxes
from ..errors import DatasetError
from .annotations import Line, Missing, present, read_text
from .dataset import Dataset, Sample, index_of_names

COLUMNS = ("file", "label", "x0", "y0", "x1", "y1")
_EDGES = COLUMNS[2:]


def read(
    path: str | os.PathLike[str],
    *,
    classes: Sequence[str] | None = None,
    inclusive: bool = False,
    missing: Missing = "error",
) -> Dataset:
    """A CSV file, or a folder with `manifest.csv` in it.

    The first row names the columns, in any order: `file` (relative to the CSV), and if they are known `label`
    and all of `x0`, `y0`, `x1`, `y1`. Several rows of one file are several boxes; a row may leave its box or
    its label empty. A label is an index, or a name: one of those in `classes`, or, where none are given, any; the
    names are then collected and numbered in the order of the alphabet. Boxes are half-open, in pixels of
    the image upright: the columns x0 .. x1 - 1 belong to the object. `inclusive` says that x1 and y1 are the
    last pixels instead, as in many public annotations.
    """
    table = _table(Path(path))
    rows = list(_rows(table))
    names = tuple(classes or ()) or _collected(rows)
    labels = index_of_names(names)
    entries: dict[str, _Entry] = {}
    for row in rows:
        entry = entries.setdefault(row.file, _Entry())
        entry.add(row, labels=labels, last=1 if inclusive else 0)
    samples = [
        Sample(table.parent / file, name=file, label=entry.label, boxes=as_boxes(entry.boxes))
        for file, entry in entries.items()
    ]
    kept, gone = present(samples, listed_in=table, missing=missing)
    return Dataset(f"manifest '{table.name}'", kept, dict(enumerate(names)), gone)


@dataclass(frozen=True)
class _Row:
    file: str
    label: str
    edges: tuple[str, ...]
    line: Line


@dataclass
class _Entry:
    """What the rows of one file say together."""

    label: int | None = None
    boxes: list[tuple[float, float, float, float]] = field(default_factory=list)

    def add(self, row: _Row, *, labels: dict[str, int], last: int) -> None:
        if row.label:
            label = _label(row, labels)
            if self.label not in (None, label):
                raise row.line.fault(f"'{row.file}' has the label {self.label} above, but {label} here; keep one")
            self.label = label
        if any(row.edges):
            line = Line(row.line.path, row.line.number, row.edges)
            x0, y0, x1, y1 = (line.real(place, f"{edge} of a box") for place, edge in enumerate(_EDGES))
            self.boxes.append(line.box(x0, y0, x1 + last, y1 + last))


def _collected(rows: Sequence[_Row]) -> tuple[str, ...]:
    """The names that stand as labels; none where some are numbers."""
    found = {row.label for row in rows if row.label}
    return () if any(label.isdecimal() for label in found) else tuple(sorted(found))


def _label(row: _Row, labels: dict[str, int]) -> int:
    if row.label in labels:
        return labels[row.label]
    if row.label.isdecimal():
        label = int(row.label)
        if labels and label >= len(labels):
            raise row.line.fault(f"there is no class {label}, there are {len(labels)}, counted from 0")
        return label
    if labels:
        raise row.line.fault(f"{row.label!r} is none of the {len(labels)} class names given")
    raise row.line.fault(f"the label {row.label!r} is no index from 0 on; give one, or the names of all classes")


def _table(path: Path) -> Path:
    table = path / "manifest.csv" if path.is_dir() else path
    if not table.is_file():
        raise DatasetError(f"The manifest '{table}' does not exist; give a CSV file or the folder of manifest.csv.")
    return table


def _rows(table: Path) -> Iterator[_Row]:
    reader = csv.reader(io.StringIO(read_text(table), newline=""), skipinitialspace=True)
    try:
        header = [name.strip().casefold() for name in next(reader, [])]
        _check_header(header, Line(table, 1, ()))
        for fields in reader:
            line = Line(table, reader.line_num, tuple(text.strip() for text in fields))
            if any(line.fields):
                yield _row(line, header)
    except csv.Error as error:
        raise Line(table, reader.line_num, ()).fault(f"this is no CSV ({error}); repair the line") from error


def _row(line: Line, header: list[str]) -> _Row:
    if len(line.fields) > len(header):
        raise line.fault(f"{len(line.fields)} fields under {len(header)} columns; quote names with a comma")
    values = dict(zip(header, line.fields, strict=False))  # what is left out at the end is empty
    if not values["file"]:
        raise line.fault("the file is empty; name one")
    edges = tuple(values.get(edge, "") for edge in _EDGES)
    return _Row(values["file"], values.get("label", ""), edges, line)


def _check_header(header: list[str], line: Line) -> None:
    if "file" not in header:
        raise line.fault(f"there is no column 'file'; let the first row be {','.join(COLUMNS)}")
    edges = [edge for edge in _EDGES if edge in header]
    if edges and len(edges) < len(_EDGES):
        absent = next(edge for edge in _EDGES if edge not in header)
        raise line.fault(f"a box needs the column {absent!r} too; let the first row be {','.join(COLUMNS)}")
