"""Files that appear whole or not at all, JSON among them; folders that can be written to; names from any disk."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import tempfile
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from .errors import FileError, L2cafError

LENGTH = 16  # hexadecimal digits of a hash: chance gives two of 2 ** 64 the same
_UNFINISHED = re.compile(r"^\..*\.[0-9a-f]{8}\.part(?:\.\w+)?$")


@contextmanager
def write_whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Lend a temporary path beside `path`; it takes the place of `path` only if the block ends well.

    Missing parent folders are made. After an error or Ctrl-C nothing is left behind, and what stood at
    `path` before still stands. The temporary name keeps the suffix, since writers read the format from it.

    >>> with write_whole("out/map.npy") as temporary:  # doctest: +SKIP
    ...     numpy.save(temporary, array)
    """
    path = Path(path)
    temporary = path.with_name(f".{cut_name(path.stem, 64)}.{secrets.token_hex(4)}.part{path.suffix}")
    try:
        if path.is_dir():
            raise FileError(f"'{path}' is a folder, so no file can be written there; add a file name.")
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        temporary.replace(path)
    except L2cafError:
        raise
    except OSError as error:
        raise FileError(
            f"'{path}' could not be written ({reason_of(error)}); choose another place or free this one."
        ) from error
    finally:
        _remove(temporary)


def remove_unfinished(folder: Path) -> None:
    """Remove what `write_whole` left in a folder where a process was killed; whoever calls it is alone there."""
    for path in folder.glob(".*.part*"):
        if _UNFINISHED.search(path.name):
            _remove(path)


def write_json(path: str | os.PathLike[str], document: Any, *, indent: int = 1) -> None:
    """Write a document, whole or not at all; NaN and infinity, which JSON does not have, are refused."""
    with write_whole(path) as temporary:
        temporary.write_text(json_text(document, indent=indent), encoding="utf-8")


def json_text(document: Any, *, indent: int = 1, encoding: str = "utf-8") -> str:
    """A document as text with every letter that the encoding has.

    The name of a file need not be text in any encoding: Python then has lone surrogates in it, which only the escapes
    of JSON can hold.

    >>> json_text(["é", "\\udce9"], indent=None), json_text(["é"], indent=None, encoding="ascii")
    ('["\\\\u00e9", "\\\\udce9"]\\n', '["\\\\u00e9"]\\n')
    """
    text = json.dumps(document, indent=indent, ensure_ascii=False, allow_nan=False)
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = json.dumps(document, indent=indent, allow_nan=False)
    return text + "\n"


def writable_folder(folder: Path) -> Path:
    """Make a folder and try it with a file of no name, before any work is done for it; or say why not."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise FileError(
            f"'{folder}' cannot be made or written to ({reason_of(error)}): choose another folder.", field="out"
        ) from error


def hash_of(parts: Iterable[str | bytes]) -> str:
    """One hash of several parts, whatever the names of files have in them."""
    found = hashlib.sha256()
    for part in parts:
        stored = part if isinstance(part, bytes) else part.encode(errors="surrogatepass")
        found.update(b"%d:" % len(stored))
        found.update(stored)
    return found.hexdigest()[:LENGTH]


def reason_of(error: OSError) -> str:
    """Why a file could not be used, in the words of the system."""
    return (error.strerror or str(error) or type(error).__name__).rstrip(".")


def printable(text: str) -> str:
    """A text for people, on one line: what is no letter in it, as names of files may hold it, is escaped.

    Control characters could move the cursor of a terminal, and bytes that are no UTF-8 can be written nowhere.

    >>> printable("caf\\udce9\\n.png"), printable("café, 猫.png")
    ('caf\\\\udce9\\\\n.png', 'café, 猫.png')
    """
    if text.isprintable():
        return text
    return "".join(
        one.encode("unicode_escape").decode() if unicodedata.category(one) in ("Cc", "Cs", "Zl", "Zp") else one
        for one in text
    )


def cut_name(name: str, most: int) -> str:
    """The beginning of a name, at most so many bytes on disk: a letter takes up to four.

    >>> cut_name("photograph", 5), cut_name("猫猫猫", 7)
    ('photo', '猫猫')
    """
    stored = os.fsencode(name)
    if len(stored) <= most:
        return name
    while most and not name.startswith(kept := os.fsdecode(stored[:most])):  # it ended within a letter
        most -= 1
    return kept if most else ""


def _remove(temporary: Path) -> None:
    # The parent may be no folder at all; the error that says so is already on its way.
    with suppress(OSError):
        temporary.unlink(missing_ok=True)
