"""A folder of pictures as an index that is kept, so that a second question costs nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..datasets.dataset import Sample
from ..datasets.loading import Bad
from ..errors import ImageError, InputError
from .embedder import Embedder, Watch
from .index import Index

CACHE = "gallery.npz"


@dataclass(frozen=True, eq=False)
class Gallery:
    """An index, the file behind each of its names, and the files that could not be read."""

    index: Index
    files: dict[str, Path]
    bad: tuple[Bad, ...] = ()

    def file(self, place: int) -> Path:
        return self.files[self.index.names[place]]


def open_gallery(
    folder: Path, files: Sequence[Path], embedder: Embedder, *, cache: Path | None = None, watch: Watch | None = None
) -> Gallery:
    """Embed the files of a folder, or take the index at `cache` if it is of the same files.

    An index there that was made by another network is refused: to make it anew unasked would cost its owner the old
    one.
    """
    named = {_name(file, folder): file for file in files}
    if not named:
        raise ImageError(f"'{folder}' holds no images: give a folder with pictures to compare with.")
    stamp = _stamp(named)
    if cache is not None and cache.is_file():
        index = Index.load(cache, embedder=embedder)
        if index.stamp == stamp:
            return Gallery(index, named)
    embedded = embedder.embed([Sample(file, name=name) for name, file in named.items()], watch=watch)
    if not len(embedded):
        raise InputError(f"None of the {len(named)} pictures in '{folder}' can be read: {embedded.bad[0].message}")
    index = Index.made_by(embedder, embedded, stamp=stamp)
    if cache is not None and not embedded.bad:  # a file that is mended is to be seen the next time
        index.save(cache)
    return Gallery(index, named, embedded.bad)


def _name(file: Path, folder: Path) -> str:
    return file.relative_to(folder).as_posix() if file.is_relative_to(folder) else file.as_posix()


def _stamp(named: dict[str, Path]) -> str:
    """What changes when a file is added, removed, renamed or written anew."""
    digest = hashlib.sha256()
    for name, file in named.items():
        about = file.stat()
        digest.update(f"{name} {file.resolve()} {about.st_size} {about.st_mtime_ns}\n".encode())
    return digest.hexdigest()
