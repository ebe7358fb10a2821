"""Patterns such as 'photos/*.jpg': a shell leaves them as they are where they are quoted, and on Windows always."""

from __future__ import annotations

from collections.abc import Iterable
from glob import glob
from pathlib import Path


def expanded(paths: Iterable[Path]) -> list[Path]:
    """The paths with patterns replaced by what they match, sorted; ** goes into folders below.

    What matches nothing stays, and is reported as any other path that is not there. A file whose name looks like a
    pattern is that file.
    """
    found: list[Path] = []
    for path in paths:
        matched = [] if path.exists() else sorted(map(Path, glob(str(path), recursive=True)))  # noqa: PTH207 - may be absolute
        found += matched or [path]
    return found
