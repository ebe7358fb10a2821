"""Lists as text, line by line: what is wrong is said with the file and the number of the line."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import DatasetError


@dataclass(frozen=True)
class Line:
    """The fields of one line, and where it stands."""

    path: Path
    number: int
    fields: tuple[str, ...]
    unit: str = "line"

    def fault(self, text: str) -> DatasetError:
        """The error that says what is wrong with this line."""
        return DatasetError(f"'{self.path}', {self.unit} {self.number}: {text}.")

    def whole(self, position: int, what: str) -> int:
        """A field as a whole number."""
        text = self.fields[position].strip()
        try:
            return int(text)
        except ValueError:
            raise self.fault(f"{text!r} is no {what}; a whole number belongs there") from None

    def real(self, position: int, what: str) -> float:
        """A field as a finite number."""
        text = self.fields[position].strip()
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise self.fault(f"{text!r} is no {what}; a number belongs there")
        return value

    def box(self, x0: float, y0: float, x1: float, y1: float) -> tuple[float, float, float, float]:
        """A half-open box that has been checked to hold at least something."""
        if x1 <= x0 or y1 <= y0:
            raise self.fault(
                f"the box from ({x0:g}, {y0:g}) to ({x1:g}, {y1:g}) is empty; its end belongs after its start"
            )
        return x0, y0, x1, y1


def read_lines(path: Path, *, fields: int, separator: str | None = None) -> Iterator[Line]:
    """The lines of a file that are not blank, split into so many fields.

    The separator None stands for spaces; then the last field may hold spaces itself.
    """
    for number, text in enumerate(read_text(path).splitlines(), start=1):
        if not text.strip():
            continue
        split = text.split(None, fields - 1) if separator is None else text.split(separator)
        line = Line(path, number, tuple(part.strip() for part in split))
        if len(line.fields) != fields:
            raise line.fault(f"{len(line.fields)} fields instead of {fields}; repair or remove the line")
        yield line


def read_text(path: Path) -> str:
    """A text file, or the sentence that says why not."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DatasetError(f"'{path}' is no UTF-8 text; save it as UTF-8.") from error
    except FileNotFoundError as error:
        raise DatasetError(f"'{path}' does not exist; check the path.") from error
    except OSError as error:
        raise DatasetError(
            f"'{path}' cannot be read ({error.strerror}); check the path and its permissions."
        ) from error
