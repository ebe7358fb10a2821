"""`alone_in`: one run at a time in a folder.

The lock is one of the operating system's on an open file, so that it dies with its process however that ends: a file
that a killed run left behind is no lock. Its text names the process for the sentence that others get.

NFS passes such locks on to its server on Linux since 2.6.12, and so do SMB and most cluster file systems. Where a file
system has none at all, the text decides as far as it can: a process that is alive on this machine keeps others out, and
one on another machine cannot be asked.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from ..errors import FileError
from ..files import reason_of, writable_folder

LOCK = ".l2caf.lock"
_TAKEN = {errno.EACCES, errno.EAGAIN, errno.EDEADLK}


@dataclass
class _Held:
    descriptor: int
    process: int
    thread: int
    depth: int = 1


_held: dict[Path, _Held] = {}
_guard = threading.Lock()


@contextmanager
def alone_in(folder: Path) -> Iterator[Path]:
    """Keep other runs out of a folder, which is made; a thread that is alone in it already may come in again."""
    place = writable_folder(folder).resolve()
    with _guard:
        held = _held.get(place)
        if held is None or held.process != os.getpid():  # a child inherits the table, and not the right
            _held[place] = _Held(_taken(place / LOCK, folder), os.getpid(), threading.get_ident())
        elif held.thread == threading.get_ident():
            held.depth += 1
        else:
            raise _busy(folder, _who())
    try:
        yield folder
    finally:
        with _guard:
            held = _held[place]
            held.depth -= 1
            if not held.depth:
                _leave(_held.pop(place).descriptor, place / LOCK)


def _taken(path: Path, folder: Path) -> int:
    """An open, locked file at `path` that says who holds it."""
    try:
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                if _refused(descriptor, path):
                    raise _busy(folder, _said(path))
                if _is_at(descriptor, path):
                    os.ftruncate(descriptor, 0)
                    os.write(descriptor, json.dumps(_who()).encode())
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)  # of a file that its holder has removed meanwhile
    except FileError:
        raise
    except OSError as error:
        raise FileError(
            f"'{folder}' cannot be written to ({reason_of(error)}): choose another folder.", field="out"
        ) from error


def _leave(descriptor: int, path: Path) -> None:
    with suppress(OSError):  # Windows removes no open file; one without a lock is in nobody's way
        path.unlink()
    os.close(descriptor)


def _refused(descriptor: int, path: Path) -> bool:
    """Whether another run holds the file; if not, it is ours now."""
    try:
        _lock(descriptor)
    except OSError as error:
        if error.errno in _TAKEN:
            return True
        who = _said(path)  # this file system has no locks
        return who.get("host") == socket.gethostname() and _is_alive(who.get("process"))
    return False


def _lock(descriptor: int) -> None:
    """Lock an open file, or raise an OSError at once."""
    if sys.platform == "win32":
        import msvcrt

        # Others may not read what is locked there, so it is a byte far behind the text.
        os.lseek(descriptor, 1 << 30, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        os.lseek(descriptor, 0, os.SEEK_SET)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _is_alive(process: object) -> bool:
    if not isinstance(process, int) or process <= 0 or process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it belongs to somebody else
        return True
    return True


def _who() -> dict[str, Any]:
    now = datetime.now().astimezone().isoformat(timespec="seconds")
    return {"process": os.getpid(), "host": socket.gethostname(), "since": now}


def _said(path: Path) -> dict[str, Any]:
    try:
        said = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}


def _busy(folder: Path, who: dict[str, Any]) -> FileError:
    words = f" (process {who['process']} on {who.get('host')}, since {who.get('since')})" if "process" in who else ""
    return FileError(
        f"'{folder}' is in use by another run{words}: wait until that has ended, or choose another folder.", field="out"
    )
