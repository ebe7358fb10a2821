"""`Visit`: what one visitor has open, and a folder of files that goes when the visitor does."""

from __future__ import annotations

import shutil
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from PIL import Image

from ..errors import InputError

if TYPE_CHECKING:
    from ..tasks.browse import Browsed
    from ..tasks.compare import Comparison
    from ..tasks.look import Look
    from ..tasks.match import Found

MOST = 200  # visits at once: beyond, the one that was idle longest has to begin anew


@dataclass
class Visit:
    """One open page: its photograph, what was found in it, and its files.

    files   uploads that were read for it, which go with it
    said    the places where an error stands
    """

    folder: Path
    photograph: Image.Image | None = field(default=None, repr=False)
    name: str = ""
    look: Look | None = None
    comparison: Comparison | None = None
    matches: Found | None = None
    browsed: Browsed | None = None
    files: set[Path] = field(default_factory=set)
    said: set[Any] = field(default_factory=set)
    stop: threading.Event = field(default_factory=threading.Event)

    def place(self, name: str) -> Path:
        """Where a file of this visit is written."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder / name

    def end(self) -> None:
        """Stop what runs for it and remove all that it left."""
        self.stop.set()
        for path in self.files:
            # An upload lies in a folder of its own, named by a hash.
            path.unlink(missing_ok=True)
            if path.parent.is_dir() and not any(path.parent.iterdir()):
                path.parent.rmdir()
        shutil.rmtree(self.folder, ignore_errors=True)


class Visits:
    """The visits by the name that the browser gave its page; they know nothing of one another."""

    def __init__(self, home: Path, *, most: int = MOST) -> None:
        self.home, self.most = home, most
        self._open: OrderedDict[str, Visit] = OrderedDict()
        self._lock = threading.Lock()
        self._working, self._rested = 0, threading.Condition()

    def __len__(self) -> int:
        return len(self._open)

    def of(self, name: str | None) -> Visit:
        """The visit of a page; a new one where there is none."""
        if not name:
            raise InputError("Nothing says which page this is for: load the page anew.")
        with self._lock:
            if name not in self._open:
                # Not named after the page: its name comes from outside.
                self._open[name] = Visit(Path(mkdtemp(prefix="visit-", dir=self.home)))
            self._open.move_to_end(name)
            oldest = self._open.popitem(last=False)[1] if len(self._open) > self.most else None
            visit = self._open[name]
        if oldest is not None:
            oldest.end()
        return visit

    def end(self, name: str | None) -> None:
        """Remove all that a visitor left."""
        with self._lock:
            visit = self._open.pop(name or "", None)
        if visit is not None:
            visit.end()

    @contextmanager
    def working(self) -> Iterator[None]:
        """Count a piece of work while it is done."""
        with self._rested:
            self._working += 1
        try:
            yield
        finally:
            with self._rested:
                self._working -= 1
                self._rested.notify_all()

    @property
    def busy(self) -> bool:
        """Whether anything is being done for anybody."""
        return self._working > 0

    def rest(self, seconds: float) -> bool:
        """Wait until all work is done: a process that ends in the midst of torch's is aborted."""
        with self._rested:
            return self._rested.wait_for(lambda: not self._working, seconds)

    def end_all(self) -> None:
        with self._lock:
            visits, self._open = list(self._open.values()), OrderedDict()
        for visit in visits:
            visit.end()
