"""`RowFile`: rows of results on disk, written block by block, so that a killed run goes on where it was.

Images are taken in blocks that depend on nothing but their order. The rows of a block are appended in one piece, and
end with a row that says so, with a checksum; whatever follows the last such row when a run starts again was cut off, is
dropped, and its block is done anew. So a run that was killed any number of times leaves the very rows of one that was
not. What was damaged in another way, and rows of which nobody knows what they are about, are refused.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import FileError
from ..files import reason_of, write_whole
from .contents import changes

Row = dict[str, Any]
"""One line: JSON values by name. Whoever makes rows has a type for them, with `as_dict`."""
ROWS, ABOUT = "rows.jsonl", "run.json"
FILES = "files"  # the part of an identity that lists them


@dataclass(frozen=True)
class Unusable:
    """A file that could not be used, and the reason: the one row that every run knows."""

    image: str
    error: str

    def as_dict(self) -> Row:
        return {"image": self.image, "error": self.error}


@dataclass(frozen=True)
class Identity:
    """What a run is about: parts that can be named when they differ, JSON values all, and one hash of them.

    >>> Identity({"view": "crop", "batch": 4}).hash == Identity({"batch": 4, "view": "crop"}).hash
    True
    >>> Identity({"view": "crop", "batch": 4}).differing({"view": "squash", "batch": 4})
    ['view']
    """

    parts: Row

    @property
    def hash(self) -> str:
        return hashlib.sha256(json.dumps(self.parts, sort_keys=True).encode()).hexdigest()[:16]

    def differing(self, there: Row) -> list[str]:
        """What is not as it is there, in words, in the order in which it is given here."""
        here, gone = json.loads(json.dumps(self.parts)), object()
        keys = [key for key in dict.fromkeys((*here, *there)) if there.get(key, gone) != here.get(key, gone)]
        return [word for key in keys for word in _words(key, here.get(key), there.get(key))]


def refused(folder: Path, differing: Sequence[str]) -> FileError:
    """The error of a folder that holds another run."""
    *first, last = differing or ["what it was about"]
    said = f"{', '.join(first)} and {last}" if first else last
    return FileError(
        f"'{folder}' holds a run that differs in {said}: choose another folder, or remove that one to start anew.",
        field="out",
    )


def _words(key: str, here: Any, there: Any) -> list[str]:
    if key != FILES:
        return [key]
    try:
        return changes(here, there)
    except (TypeError, ValueError):  # whoever wrote it wrote no list of files
        return [key]


@dataclass(frozen=True)
class RowFile:
    """The rows of one run in a folder, beside what the run is about; whoever opens it is alone there (`lock`)."""

    folder: Path
    blocks_done: int

    @classmethod
    def open(cls, folder: Path, identity: Identity) -> RowFile:
        """Start a run in a folder, or go on with the one that is there if it is the same."""
        about, rows = folder / ABOUT, folder / ROWS
        try:
            folder.mkdir(parents=True, exist_ok=True)
            found, there = _scanned(rows), _read(about)
        except OSError as error:
            raise FileError(
                f"'{folder}' cannot be used ({reason_of(error)}): choose another folder.", field="out"
            ) from error
        if found.size and there is None:
            raise FileError(
                f"'{rows}' has lines, but '{about}', which tells what they are about, is missing or empty: choose"
                " another folder, or remove that file to start anew.",
                field="out",
            )
        if (found.blocks or found.damaged) and there is not None:
            if there.pop("identity") != identity.hash:
                raise refused(folder, identity.differing(there))
            if found.damaged:
                raise FileError(
                    f"'{rows}' is damaged in the lines from {found.lines + 1} to {found.damaged}: remove all lines from"
                    f" {found.lines + 1} on to go on from there, or the folder to start anew.",
                    field="out",
                )
        else:  # one that came to nothing, such as with an unknown layer, stands in nobody's way
            with write_whole(about) as temporary:
                temporary.write_text(json.dumps({"identity": identity.hash, **identity.parts}, indent=1) + "\n")
        _cut(rows, found.end)
        return cls(folder, found.blocks)

    def append(self, block: int, rows: Sequence[Row]) -> None:
        """Add the rows of a block, whole."""
        lines = "".join(f"{json.dumps(row, separators=(',', ':'))}\n" for row in rows).encode("ascii")
        mark = json.dumps({"block": block, "rows": len(rows), "crc32": zlib.crc32(lines)}, separators=(",", ":"))
        path = self.folder / ROWS
        try:
            with path.open("ab") as file:
                file.write(lines + f"{mark}\n".encode("ascii"))
        except OSError as error:
            raise FileError(
                f"'{path}' could not be written ({reason_of(error)}): make room, and run the same command again to"
                " resume.",
                field="out",
            ) from error

    def rows(self) -> Iterator[Row]:
        """Read the rows of the finished blocks, one at a time."""
        path = self.folder / ROWS
        if not path.exists():
            return
        with path.open("rb") as file:
            for line in file:
                row = json.loads(line)
                if "block" not in row:
                    yield row


def whole_rows(folder: Path) -> list[Row]:
    """The rows of the finished blocks of a run that is only read; what was cut off behind them is left out."""
    path = folder / ROWS
    try:
        found = _scanned(path)
        lines = path.read_bytes()[: found.end].splitlines()
    except OSError as error:
        raise FileError(f"'{path}' cannot be read ({reason_of(error)}): grant that, or give another run.") from error
    if found.damaged:
        raise FileError(
            f"'{path}' is damaged in the lines from {found.lines + 1} to {found.damaged}: measure that run again."
        )
    rows = [json.loads(line) for line in lines]  # as their checksums say, they are what was written
    return [row for row in rows if "block" not in row]


def methods_in(folder: Path, work: str) -> tuple[str, ...] | None:
    """The methods that the run in a folder measures; None where there are no rows, or they are of other work."""
    about, rows = folder / ABOUT, folder / ROWS
    if not rows.exists() or not rows.stat().st_size:
        return None
    there = _read(about) or {}
    found = there.get("methods")
    return tuple(found) if there.get("work") == work and isinstance(found, list) else None


@dataclass(frozen=True)
class _Scanned:
    """What is in a file of rows: whole blocks from the first on, and where the last of them ends.

    damaged   the line in which a block ends that is not what was written, where others follow it; else 0
    """

    size: int = 0
    blocks: int = 0
    end: int = 0
    lines: int = 0
    damaged: int = 0


def _scanned(path: Path) -> _Scanned:
    """Look through the rows; a last block that is not whole is one that was cut off, and is no damage."""
    if not path.exists():
        return _Scanned()
    blocks, end, lines, position, number, rows, checksum, bad = 0, 0, 0, 0, 0, 0, 0, 0
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            position += len(line)
            if not line.startswith(b'{"block":'):
                rows, checksum = rows + 1, zlib.crc32(line, checksum)
                continue
            if bad:
                return _Scanned(path.stat().st_size, blocks, end, lines, bad)
            if _is_mark(line, {"block": blocks, "rows": rows, "crc32": checksum}):
                blocks, end, lines = blocks + 1, position, number
            else:
                bad = number
            rows, checksum = 0, 0
    return _Scanned(position, blocks, end, lines)


def _is_mark(line: bytes, expected: Row) -> bool:
    try:
        return bool(line.endswith(b"\n") and json.loads(line) == expected)
    except ValueError:
        return False


def _read(path: Path) -> Row | None:
    """What a run is about; None where there is nothing, and an error where it is somebody else's file."""
    if not path.exists() or not (stored := path.read_bytes().strip()):
        return None
    try:
        there = json.loads(stored)
    except (ValueError, RecursionError):
        there = None
    if not isinstance(there, dict) or not isinstance(there.get("identity"), str):
        raise FileError(
            f"'{path}' is no record of a run that can be read: choose another folder, or remove that file.", field="out"
        )
    return there


def _cut(path: Path, end: int) -> None:
    """Drop what follows the last finished block."""
    if path.exists() and path.stat().st_size > end:
        with path.open("r+b") as file:
            file.truncate(end)
