"""`RowFile`: rows of results on disk, written block by block, so that a killed run goes on where it was.

Images are taken in blocks that depend on nothing but their order. The rows of a block are appended in one piece, and
end with a row that says so; whatever follows the last such row when a run starts again was cut off, is dropped, and its
block is done anew. So a run that was killed any number of times leaves the very rows of one that was not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import FileError
from ..files import write_whole

Row = dict[str, Any]
"""One line: JSON values by name. Whoever makes rows has a type for them, with `as_dict`."""
ROWS, ABOUT = "rows.jsonl", "run.json"


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
        """The parts that are not as they are there, in the order in which they are given."""
        here, gone = json.loads(json.dumps(self.parts)), object()
        return [key for key in dict.fromkeys((*here, *there)) if there.get(key, gone) != here.get(key, gone)]


@dataclass(frozen=True)
class RowFile:
    """The rows of one run in a folder, beside what the run is about."""

    folder: Path
    blocks_done: int

    @classmethod
    def open(cls, folder: Path, identity: Identity) -> RowFile:
        """Start a run in a folder, or go on with the one that is there if it is the same."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(
                f"{folder} cannot be made ({error.strerror}): choose another place.", field="out"
            ) from error
        path, (done, end) = folder / ABOUT, _finished(folder / ROWS)
        if path.exists() and done:  # one that came to nothing, such as with an unknown layer, stands in nobody's way
            there = _read(path)
            if there.pop("identity", None) != identity.hash:
                differing = identity.differing(there) or ["identity"]
                raise FileError(
                    f"{folder} holds a run with another {', '.join(differing)}: choose another place, or remove that"
                    " folder.",
                    field="out",
                )
        else:
            with write_whole(path) as temporary:
                temporary.write_text(json.dumps({"identity": identity.hash, **identity.parts}, indent=1) + "\n")
        _cut(folder / ROWS, end)
        return cls(folder, done)

    def append(self, block: int, rows: Sequence[Row]) -> None:
        """Add the rows of a block, whole."""
        lines = [json.dumps(row, separators=(",", ":")) for row in (*rows, {"block": block})]
        with (self.folder / ROWS).open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))

    def rows(self) -> Iterator[Row]:
        """Read the rows of the finished blocks, one at a time."""
        path = self.folder / ROWS
        if not path.exists():
            return
        with path.open() as file:
            for line in file:
                row = json.loads(line)
                if "block" not in row:
                    yield row


def _read(path: Path) -> Row:
    try:
        there = json.loads(path.read_text())
    except (OSError, ValueError):
        there = None
    if not isinstance(there, dict):
        raise FileError(f"{path} cannot be read: choose another place, or remove that folder.", field="out")
    return there


def _finished(path: Path) -> tuple[int, int]:
    """How many blocks are finished, and where in the file the last of them ends."""
    if not path.exists():
        return 0, 0
    blocks, end, position = 0, 0, 0
    with path.open("rb") as file:
        for line in file:
            position += len(line)
            if line.startswith(b'{"block":') and line.endswith(b"}\n"):
                blocks, end = blocks + 1, position
    return blocks, end


def _cut(path: Path, end: int) -> None:
    """Drop what follows the last finished block."""
    if path.exists() and path.stat().st_size > end:
        with path.open("r+b") as file:
            file.truncate(end)
