"""Lists of annotations: lines with their numbers, files that must be there, and what is missing."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from ..errors import DatasetError, InputError
from .dataset import Sample


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


Missing: TypeAlias = Literal["error", "skip"]
"""What to do with listed images that are not on disk."""


def existing_folder(root: str | os.PathLike[str], *, what: str) -> Path:
    """The folder that was given, if it is one."""
    path = Path(root)
    if not path.exists():
        raise DatasetError(f"'{path}' does not exist; give the folder that holds {what}.")
    if not path.is_dir():
        raise DatasetError(f"'{path}' is a file; give the folder that holds {what}.")
    return path


def find_file(name: str, folders: Iterable[Path], *, what: str) -> Path:
    """The first of the folders that holds the file."""
    folders = list(folders)
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    raise DatasetError(
        f"'{name}' of {what} is missing: it was looked for in {listed(folders)}; "
        "unpack it there, or give the folder that holds it."
    )


def find_folder(names: Sequence[str], root: Path, *, what: str) -> Path:
    """The first of the names that is a folder below root."""
    for name in names:
        if (root / name).is_dir():
            return root / name
    raise DatasetError(
        f"The folder '{names[0]}' of {what} is missing: it was looked for at "
        f"{listed([root / name for name in names])}; unpack it there."
    )


def listed(paths: Sequence[Path]) -> str:
    """Paths in one sentence.

    >>> listed([Path("a"), Path("b"), Path("c")])
    "'a', 'b' and 'c'"
    """
    quoted = [f"'{path}'" for path in paths]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"


def present(
    samples: Sequence[Sample], *, listed_in: Path, missing: Missing
) -> tuple[tuple[Sample, ...], tuple[str, ...]]:
    """The samples whose files are there, and the names of the others; any other is an error, if so asked."""
    if missing not in ("error", "skip"):
        raise InputError(f"Missing images can be 'error' or 'skip', not {missing!r}: take one of the two.")
    if not samples:
        raise DatasetError(f"'{listed_in}' leaves no image to read; check its content and the choice of a part.")
    folders = {folder: _files_in(folder) for folder in {sample.path.parent for sample in samples}}
    kept = tuple(sample for sample in samples if sample.path.name in folders[sample.path.parent])
    gone = [sample for sample in samples if sample.path.name not in folders[sample.path.parent]]
    if gone and (missing == "error" or not kept):
        hint = ", or remove them from that list (in Python, missing='skip' leaves them out)" if kept else ""
        raise DatasetError(
            f"{len(gone):,} of the {len(samples):,} images of '{listed_in}' are not on disk, "
            f"the first of them '{gone[0].path}'; unpack the images there{hint}."
        )
    return kept, tuple(sample.name for sample in gone)


def _files_in(folder: Path) -> frozenset[str]:
    """One look at a folder, which is far cheaper than one look at each of its files."""
    try:
        with os.scandir(folder) as entries:
            return frozenset(entry.name for entry in entries if not entry.is_dir())
    except OSError:
        return frozenset()


def one_of(value: str, allowed: Sequence[str], *, what: str) -> str:
    """An option that was checked to be one of the words it may be."""
    if value not in allowed:
        words = ", ".join(allowed)
        raise InputError(f"The {what} {value!r} is not known: take one of {words}.")
    return value
