"""Where the parts of a dataset lie, and the sentence that says which one does not."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from ..errors import DatasetError, InputError
from .dataset import Sample

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
        hint = ", or take only those that are there with missing='skip'" if kept else ""
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
