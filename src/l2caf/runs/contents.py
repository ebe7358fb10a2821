"""What a run is known by beside its settings: the contents of its files, what is said of each, and the code."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from .. import __version__

if TYPE_CHECKING:
    from ..datasets.dataset import Sample

FileEntry = tuple[str, str, str]
"""Name, hash of the contents, hash of the annotations of one file."""

PIECE = 1 << 16
# One pixel can change in these while all bytes around it, and their number, stay as they are.
_NOT_COMPRESSED = frozenset(".bmp .pbm .pgm .pnm .ppm .tga .tif .tiff".split())


def entries_of(samples: Sequence[Sample]) -> list[FileEntry]:
    """The files in their order: blocks are cut from it."""
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        contents = pool.map(contents_of, (sample.path for sample in samples))
        return [(sample.name, found, _said_of(sample)) for sample, found in zip(samples, contents, strict=True)]


def contents_of(path: Path) -> str:
    """A hash of a file's size and bytes; of a large compressed one, of its beginning, middle and end.

    Not the time of its last change: a copy of a dataset on another disk is the same dataset. In a compressed picture a
    change anywhere moves what follows, and the end of a PNG is a checksum of all of it.
    """
    found = hashlib.blake2b(digest_size=8)
    if path.is_dir():  # a clip as a folder of frames
        for file_of_it in sorted(one for one in path.iterdir() if one.is_file()):
            found.update(f"{file_of_it.name}:{contents_of(file_of_it)};".encode(errors="surrogatepass"))
        return found.hexdigest()
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            found.update(b"%d:" % size)
            if size <= 3 * PIECE or path.suffix.lower() in _NOT_COMPRESSED:
                while piece := file.read(1 << 20):
                    found.update(piece)
            else:
                for start in (0, (size - PIECE) // 2, size - PIECE):
                    file.seek(start)
                    found.update(file.read(PIECE))
    except OSError as error:
        return f"unreadable ({error.errno})"
    return found.hexdigest()


def changes(here: Sequence[Sequence[str]], there: Sequence[Sequence[str]]) -> list[str]:
    """What is not the same in two lists of files, in words.

    >>> changes([("a", "1", "x"), ("b", "2", "x")], [("a", "3", "x"), ("c", "2", "x")])
    ["files ('b' is new)", "files ('c' is gone)", "the contents of 'a'"]
    """
    ours, theirs = ({name: parts for name, *parts in entries} for entries in (here, there))
    both = [name for name in ours if name in theirs]
    words = [
        (f"files ({_some(new)} new)" if (new := [name for name in ours if name not in theirs]) else ""),
        (f"files ({_some(gone)} gone)" if (gone := [name for name in theirs if name not in ours]) else ""),
    ]
    for part, what in enumerate(("contents", "annotations")):
        other = [name for name in both if ours[name][part] != theirs[name][part]]
        words.append(f"the {what} of {_some(other, verb=False)}" if other else "")
    return [word for word in words if word] or ["the order of the files"]


def _some(names: Sequence[str], *, verb: bool = True) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"'{names[0]}'{more}{' are' if verb and more else ' is' if verb else ''}"


def _said_of(sample: Sample) -> str:
    said = f"{sample.label} {sample.size} {sample.stored} {sample.boxes.tolist()}"
    return hashlib.blake2b(said.encode(), digest_size=4).hexdigest()


@cache
def code_version() -> str:
    """The version of this library, and a hash of its files: in a checkout they change while the version stays."""
    home = Path(__file__).resolve().parents[1]
    found = hashlib.blake2b(digest_size=4)
    for file in sorted(home.rglob("*.py")):
        found.update(file.relative_to(home).as_posix().encode() + b"\0" + file.read_bytes())
    return f"{__version__}, {found.hexdigest()}"
