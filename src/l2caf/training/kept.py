"""What a run prepared, kept in its folder until it is over: a run that goes on does not prepare again.

Features of thousands of pictures take longer to make than many a training. They grow in a file, and how many are whole
stands beside it; the file is known by all that decides what is in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..files import write_json
from ..networks.identity import hash_of

Halves = npt.NDArray[np.float16]


@dataclass(frozen=True)
class Kept:
    """The file of one process of a run; `run` is what its data and code are known by."""

    folder: Path
    run: str
    process: int

    @property
    def maps(self) -> Path:
        return self.folder / f".features-{self.process}.npy"

    @property
    def about(self) -> Path:
        return self.maps.with_suffix(".json")

    def open(self, known_by: str) -> tuple[Halves, int] | None:
        """What is there of these features, and how many pictures of it are whole; None where there is nothing."""
        try:
            about = json.loads(self.about.read_text("utf-8"))
            if about["known_by"] != self._hash(known_by):
                return None
            found: Halves = np.load(self.maps, mmap_mode="r+")
            return found, int(about["whole"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def create(self, shape: tuple[int, ...]) -> Halves:
        """Room for all of them."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.about.unlink(missing_ok=True)  # it was about another file
        made: Halves = np.lib.format.open_memmap(self.maps, mode="w+", dtype=np.float16, shape=shape)
        return made

    def note(self, maps: Halves, known_by: str, whole: int) -> None:
        """Write down that so many pictures are whole."""
        if isinstance(maps, np.memmap):
            maps.flush()
        write_json(self.about, {"known_by": self._hash(known_by), "whole": whole})

    def remove(self) -> None:
        self.about.unlink(missing_ok=True)
        self.maps.unlink(missing_ok=True)

    def _hash(self, known_by: str) -> str:
        return hash_of([self.run, known_by])


_here: ContextVar[Kept | None] = ContextVar("_here", default=None)


@contextmanager
def kept_in(folder: Path, *, run: str, process: int = 0) -> Iterator[Kept]:
    """Keep what is prepared meanwhile in this folder."""
    kept = Kept(folder, run, process)
    token = _here.set(kept)
    try:
        yield kept
    finally:
        _here.reset(token)


def current() -> Kept | None:
    """Where things are kept now; None where nobody runs a recipe in a folder."""
    return _here.get()
