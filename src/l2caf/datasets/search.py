"""Which datasets lie below a folder, by the files that their layouts have."""

from __future__ import annotations

import os
from pathlib import Path

from . import LAYOUTS
from .annotations import existing_folder

DEPTH = 2  # levels below the given folder that are looked at


def find(root: str | os.PathLike[str]) -> dict[str, Path]:
    """The first folder of each public layout, the nearest to `root` first, and then by name.

    What lies in a dataset is not looked through, so that its thousands of folders cost nothing; `root` may be a dataset
    itself. Only layouts with files of their own are found: a folder with sub-folders could be anything.
    """
    found: dict[str, Path] = {}
    level = [existing_folder(root, what="the data sets")]
    for depth in range(DEPTH + 1):
        below: list[Path] = []
        for folder in level:
            kinds = [
                entry.key for entry in LAYOUTS.values() if any((folder / mark).exists() for mark in entry.known_by)
            ]
            for kind in kinds:
                found.setdefault(kind, folder)
            if depth < DEPTH and (not kinds or depth == 0):
                below += _folders_in(folder)
        level = below
    return found


def _folders_in(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return sorted(folder / one.name for one in entries if one.is_dir() and not one.name.startswith("."))
    except OSError:  # not ours to read, so nothing is known to be in it
        return []
