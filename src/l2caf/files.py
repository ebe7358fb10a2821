"""Files that appear whole or not at all, JSON among them."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from .errors import FileError, L2cafError


@contextmanager
def write_whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Lend a temporary path beside `path`; it takes the place of `path` only if the block ends well.

    Missing parent folders are made. After an error or Ctrl-C nothing is left behind, and what stood at
    `path` before still stands. The temporary name keeps the suffix, since writers read the format from it.

    >>> with write_whole("out/map.npy") as temporary:  # doctest: +SKIP
    ...     numpy.save(temporary, array)
    """
    path = Path(path)
    temporary = path.with_name(f".{path.stem[:64]}.{secrets.token_hex(4)}.part{path.suffix}")
    try:
        if path.is_dir():
            raise FileError(f"'{path}' is a folder, so no file can be written there; add a file name.")
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        temporary.replace(path)
    except L2cafError:
        raise
    except OSError as error:
        reason = (error.strerror or str(error) or type(error).__name__).rstrip(".")
        raise FileError(f"'{path}' could not be written ({reason}); choose another place or free this one.") from error
    finally:
        _remove(temporary)


def write_json(path: str | os.PathLike[str], document: Any, *, indent: int = 1) -> None:
    """Write a document, whole or not at all; NaN and infinity, which JSON does not have, are refused."""
    with write_whole(path) as temporary:
        text = json.dumps(document, indent=indent, ensure_ascii=False, allow_nan=False)
        temporary.write_text(text + "\n", encoding="utf-8")


def _remove(temporary: Path) -> None:
    # The parent may be no folder at all; the error that says so is already on its way.
    with suppress(OSError):
        temporary.unlink(missing_ok=True)
