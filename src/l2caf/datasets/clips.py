"""Clips with their classes: one sub-folder per class, or a list of clips with labels.

A clip is a file of moving pictures, or a folder of frames.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator
from pathlib import Path

from ..clips import SUFFIXES as CLIPS
from ..errors import DatasetError
from ..images import SUFFIXES as PICTURES
from .annotations import Line, existing_folder, read_text
from .dataset import Dataset, Sample, index_of_names

LIST = "manifest.csv"
COLUMNS = ("file", "label")


def read(root: str | os.PathLike[str]) -> Dataset:
    """The clips in `root/<class>/`; or those that a CSV file lists, which `root` is, or has in it as manifest.csv.

    In the folder of a class every clip counts, at any depth, and every folder that holds pictures is a clip of frames.
    The list has the columns `file` (relative to the list; a folder of frames is named by the folder) and `label`, which
    is the name of the class. Labels number the classes in the order of the alphabet.
    """
    path = Path(root)
    if path.is_file() or (path / LIST).is_file():
        return _listed(path if path.is_file() else path / LIST)
    folder = existing_folder(path, what="one sub-folder of clips per class, or a list of clips with labels (CSV)")
    folders = sorted(one for one in folder.iterdir() if one.is_dir() and not one.name.startswith("."))
    if not folders:
        raise DatasetError(f"'{folder}' has no sub-folders: put the clips of each class into one of its own.")
    samples = [
        Sample(clip, name=clip.relative_to(folder).as_posix(), label=label)
        for label, one in enumerate(folders)
        for clip in clips_in(one)
    ]
    return Dataset(f"folder '{folder.name}'", tuple(samples), dict(enumerate(one.name for one in folders)))


def clips_in(folder: Path) -> list[Path]:
    """The clips in a folder and below, sorted; a folder inside of it that holds pictures is a clip of frames."""
    found: list[Path] = []
    for where, inside, files in os.walk(folder):
        inside[:] = [name for name in inside if not name.startswith(".")]
        endings = {name: Path(name).suffix.lower() for name in files if not name.startswith(".")}
        if Path(where) != folder and (PICTURES - CLIPS) & {*endings.values()}:
            found.append(Path(where))
            inside.clear()
        else:
            found += [Path(where, name) for name, ending in endings.items() if ending in CLIPS]
    if not found:
        raise DatasetError(
            f"'{folder}' holds no clips: put clips into it, as files (mp4, avi, webm, …) or as folders of frames."
        )
    return sorted(found)


def _listed(table: Path) -> Dataset:
    rows = list(_rows(table))
    labels = index_of_names(sorted({label for _, _, label in rows}))
    found: dict[str, int] = {}
    for line, file, label in rows:
        if found.setdefault(file, labels[label]) != labels[label]:
            raise line.fault(f"'{file}' stands above with another label; keep one")
    if not found:
        raise DatasetError(f"'{table}' lists no clips: give rows of {','.join(COLUMNS)} below its first line.")
    samples = [Sample(table.parent / file, name=file, label=label) for file, label in found.items()]
    return Dataset(f"list '{table.name}'", tuple(samples), {label: name for name, label in labels.items()})


def _rows(table: Path) -> Iterator[tuple[Line, str, str]]:
    """The line, the file and the label of each row."""
    reader = csv.reader(io.StringIO(read_text(table), newline=""), skipinitialspace=True)
    header = [name.strip().casefold() for name in next(reader, [])]
    for column in COLUMNS:
        if column not in header:
            raise Line(table, 1, ()).fault(f"there is no column {column!r}; let the first row be {','.join(COLUMNS)}")
    for fields in reader:
        line = Line(table, reader.line_num, tuple(text.strip() for text in fields))
        if not any(line.fields):
            continue
        values = dict(zip(header, line.fields, strict=False))
        file, label = (values.get(column, "") for column in COLUMNS)
        if not file or not label:
            raise line.fault("a clip needs a file and a label; fill in both")
        if not (table.parent / file).exists():
            raise line.fault(f"there is no clip '{table.parent / file}'; paths are relative to the list")
        yield line, file, label
