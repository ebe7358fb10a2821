"""`Table`: the parts of one kind by the key that people type; each part is imported when it is first used.

A new part is one file and one line in its table. Help texts, choices and error sentences read the table, so nothing
else has to know of it.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from .errors import InputError


@dataclass(frozen=True)
class Entry:
    """One part: its key, its title, and where it is, as "package.module:name"."""

    key: str
    title: str
    home: str

    def load(self) -> Any:
        """Import the part.

        >>> Entry("root", "square root", "math:sqrt").load()(9.0)
        3.0
        """
        module, _, name = self.home.partition(":")
        return getattr(importlib.import_module(module), name)


E = TypeVar("E", bound=Entry)


class Table(Mapping[str, E], Generic[E]):
    """Entries of one kind, in the order in which people should see them.

    >>> roots = Table("root", Entry("square", "square root", "math:sqrt"), Entry("cube", "cube root", "math:cbrt"))
    >>> roots.words(), roots["cube"].title
    ('square, cube', 'cube root')
    >>> roots["sqare"]
    Traceback (most recent call last):
    l2caf.errors.InputError: There is no root 'sqare': the nearest is square.
    """

    def __init__(self, kind: str, *entries: E) -> None:
        self.kind = kind
        self._entries = {entry.key: entry for entry in entries}

    def __getitem__(self, key: str) -> E:
        if not isinstance(key, str) or key not in self._entries:
            raise InputError(f"There is no {self.kind} {key!r}: {self._hint(key)}.", field=self.kind)
        return self._entries[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def add(self, entry: E) -> E:
        """Add a part of one's own, for this process; one that is there already is not replaced.

        >>> roots = Table("root", Entry("square", "square root", "math:sqrt"))
        >>> roots.add(Entry("cube", "cube root", "math:cbrt")).title, roots.words()
        ('cube root', 'square, cube')
        """
        if not isinstance(entry, Entry):
            raise InputError(f"A {type(entry).__name__} is no entry of the table of {self.kind}s: give an Entry.")
        if entry.key in self._entries:
            raise InputError(f"There is a {self.kind} {entry.key!r} already: choose another key.", field=self.kind)
        self._entries[entry.key] = entry
        return entry

    def title(self, key: str) -> str:
        """The title of a part; one that is not in the table, as a user's own, goes by its key."""
        return self._entries[key].title if key in self._entries else key

    def words(self) -> str:
        """The keys as one line of help."""
        return ", ".join(self)

    def only(self, *keys: str) -> Table[E]:
        """The table of some of the entries, in the order of this one."""
        return Table(self.kind, *(entry for entry in self.values() if entry.key in keys))

    def _hint(self, key: str) -> str:
        # Keys are written small, and people name a method as its class is written.
        near = difflib.get_close_matches(str(key).lower(), list(self), n=3)
        if not near:
            return f"take one of {self.words()}"
        return f"the nearest {'is' if len(near) == 1 else 'are'} {', '.join(near)}"
