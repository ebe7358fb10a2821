"""`Ledger`: which photographs of a run are drawn already, so that a run that was stopped draws none of them twice.

One line per photograph, written when its pictures are whole beside their places and before they are put there: a
picture that stands in its place is always known. It is known by size and time, since an older one may stand there under
the same name. The file is hidden in the folder of the pictures, and gone when the run is over.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import FileError
from ..files import reason_of
from ..runs.contents import contents_of

Row = dict[str, Any]


@dataclass(frozen=True)
class Ledger:
    """The photographs of one run, known by the hash of all that is asked of them."""

    path: Path

    @classmethod
    def of(cls, folder: Path, run: str) -> Ledger:
        """The one of a run in the folder of its pictures."""
        return cls(folder / f".explained-{run}.jsonl")

    def note(self, photograph: Path, row: Row, files: Mapping[Path, Path]) -> None:
        """Write down what was found in a photograph; `files` are where its pictures go, and where they are now."""
        drawn = {target.name: _known_by(here) for target, here in files.items()}
        line = {"photograph": contents_of(photograph), "row": row, "drawn": drawn}
        try:
            with self.path.open("ab") as file:
                file.write(f"{json.dumps(line, separators=(',', ':'))}\n".encode("ascii"))
        except OSError as error:
            raise FileError(
                f"'{self.path}' could not be written ({reason_of(error)}): make room, and run the same command again to"
                " resume.",
                field="out",
            ) from error

    def drawn(self, photographs: Mapping[str, Path]) -> dict[str, Row]:
        """The rows of the photographs, by name, whose pictures stand in their places and that are the same."""
        found: dict[str, Row] = {}
        for line in self._lines():
            name = line["row"]["image"]
            if name in photographs and self._is_there(line["drawn"]):
                found[name] = line
        return {
            name: line["row"] for name, line in found.items() if contents_of(photographs[name]) == line["photograph"]
        }

    def close(self) -> None:
        """The run is over."""
        self.path.unlink(missing_ok=True)

    def _is_there(self, drawn: Mapping[str, Sequence[int]]) -> bool:
        return all(_known_by(self.path.with_name(name)) == known for name, known in drawn.items())

    def _lines(self) -> list[Row]:
        """Those that can be read; what was cut off or damaged is drawn again."""
        try:
            stored = self.path.read_bytes().splitlines()
        except OSError:
            return []
        lines = []
        for text in stored:
            try:
                line = json.loads(text)
                line["row"]["image"], line["drawn"].items(), line["photograph"]
            except (ValueError, TypeError, KeyError, AttributeError):
                continue
            lines.append(line)
        return lines


def _known_by(path: Path) -> list[int] | None:
    try:
        about = path.stat()
    except OSError:
        return None
    return [about.st_size, about.st_mtime_ns]
