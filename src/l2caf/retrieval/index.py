"""`Index`: vectors with their names, searched exactly by faiss and kept in one file; `Gallery`: a folder as an index.

On the unit sphere the nearest is the one of the greatest inner product (cosine), elsewhere the one at the least
distance. The file names the network whose vectors it holds, since those of another one mean nothing beside them, and it
is checked when it is read: a neighbour under another's name would look like any other.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..datasets.dataset import Sample
from ..datasets.loading import Bad
from ..errors import ExtraError, ImageError, InputError
from ..files import write_whole
from ..progress import Progress, silent
from ..runs.executor import Executor
from ..runs.spec import RunSpec
from ..runs.work import Built
from .embed import EmbeddedPictures, Vectors, embed, on_sphere

if TYPE_CHECKING:
    from ..networks.model import Model

Ints = npt.NDArray[np.int64]
SUFFIX = ".npz"


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The nearest of each query, best first: their places in the index, and cosines or distances, (Q, k) each."""

    indices: Ints
    scores: Vectors


@dataclass(frozen=True, eq=False)
class Index:
    """Vectors (N, d) that can be asked for their neighbours.

    vectors      as they are compared: of length 1 where `normalized`
    identity     of the network that made them
    stamp        whatever else must be the same for the index to be used again, such as the list of files

    >>> index = Index.of([[1.0, 0.0], [0.0, 2.0]], ["right", "up"], normalized=True)
    >>> [index.names[place] for place in index.query([[1.0, 3.0]], 2).indices[0]]
    ['up', 'right']
    """

    vectors: Vectors
    names: tuple[str, ...]
    normalized: bool
    identity: str = ""
    network: str = ""
    stamp: str = ""

    @classmethod
    def of(cls, vectors: npt.ArrayLike, names: Sequence[str], *, normalized: bool, **more: str) -> Index:
        """Index vectors (N, d) under their names."""
        given = np.ascontiguousarray(vectors, np.float32)
        if given.ndim != 2 or len(given) != len(names):
            raise InputError(f"Vectors of shape {given.shape} cannot have {len(names)} names: give (N, d) and N.")
        if not len(given):
            raise InputError("There is nothing to index: give at least one picture that can be read.")
        if not np.isfinite(given).all():
            raise InputError("Some vectors hold NaN or infinity: leave those pictures out.")
        return cls(on_sphere(given) if normalized else given, tuple(names), normalized, **more)

    @classmethod
    def made_by(cls, model: Model, embedded: EmbeddedPictures, *, stamp: str = "") -> Index:
        """Index what a network made of pictures."""
        return cls.of(
            embedded.vectors,
            embedded.names,
            normalized=model.normalized,
            identity=model.identity,
            network=model.name,
            stamp=stamp,
        )

    def __len__(self) -> int:
        return len(self.names)

    def query(self, vectors: npt.ArrayLike, top: int) -> Neighbours:
        """Find the `top` nearest of each vector (Q, d), or all if there are fewer."""
        asked = np.ascontiguousarray(vectors, np.float32)
        if asked.ndim != 2 or asked.shape[1] != self.vectors.shape[1]:
            raise InputError(
                f"Queries of shape {asked.shape} cannot be compared with vectors of {self.vectors.shape[1]} numbers:"
                " give (Q, d) of the same network."
            )
        if top < 1:
            raise InputError(f"{top} neighbours were asked for: give 1 or more.")
        scores, indices = self._faiss.search(on_sphere(asked) if self.normalized else asked, min(top, len(self)))
        return Neighbours(indices, scores if self.normalized else np.sqrt(scores.clip(min=0)))

    def neighbours_of_itself(self, top: int) -> Neighbours:
        """Find the `top` nearest of each vector among all others."""
        found = self.query(self.vectors, top + 1)
        # Among copies of one picture it need not come first itself, nor be found at all.
        others = found.indices != np.arange(len(self))[:, None]
        others[others.all(axis=1), -1] = False
        kept = max(0, found.indices.shape[1] - 1)
        shape = (len(self), kept)
        return Neighbours(found.indices[others].reshape(shape), found.scores[others].reshape(shape))

    @cached_property
    def _faiss(self) -> Any:
        faiss = import_faiss()
        size = self.vectors.shape[1]
        index = faiss.IndexFlatIP(size) if self.normalized else faiss.IndexFlatL2(size)
        index.add(self.vectors)
        return index

    def save(self, path: str | Path) -> Path:
        """Write one file, whole or not at all; its suffix is .npz."""
        path = Path(path).with_suffix(SUFFIX)
        about = {
            "names": self.names,
            "normalized": self.normalized,
            "identity": self.identity,
            "network": self.network,
            "stamp": self.stamp,
            "checksum": self._checksum,
        }
        with write_whole(path) as temporary, temporary.open("wb") as file:
            np.savez(file, vectors=self.vectors, about=np.array(json.dumps(about)))
        return path

    @property
    def _checksum(self) -> str:
        """Of what a neighbour is found by: the vectors and whose they are."""
        found = hashlib.sha256(self.vectors.tobytes())
        found.update(json.dumps([self.names, self.normalized, self.identity, self.stamp]).encode())
        return found.hexdigest()

    @classmethod
    def load(cls, path: str | Path, *, model: Model | None = None) -> Index:
        """Read an index; one that was made by another network than `model` is refused."""
        path = Path(path)
        if not path.is_file():
            raise InputError(f"There is no index '{path}': make one first, or check the path.")
        try:
            with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                vectors, about = file["vectors"], json.loads(str(file["about"]))
        except Exception as error:  # on unknown bytes numpy and zipfile raise anything
            raise InputError(f"'{path}' is no index that can be read: remove it, and it is made anew.") from error
        fault = _fault(vectors, about)
        if fault:
            raise InputError(f"'{path}' is a damaged index ({fault}): remove it, and it is made anew.")
        said = {name: about[name] for name in ("normalized", "identity", "network", "stamp")}
        index = cls(np.ascontiguousarray(vectors), tuple(about["names"]), **said)
        if about["checksum"] != index._checksum:
            raise InputError(
                f"'{path}' is a damaged index (it is not as it was written): remove it, and it is made anew."
            )
        if model is not None and index.identity != model.identity:
            raise InputError(
                f"'{path}' was made by another network ({index.network}) than {model.name}: remove it, or give"
                " the network that made it."
            )
        return index


_KINDS = {"names": list, "normalized": bool, "identity": str, "network": str, "stamp": str, "checksum": str}
_LENGTH = 1e-3  # how far from 1 a vector of float32 that was brought to length 1 may be


def _fault(vectors: Any, about: Any) -> str:
    """What is wrong with the parts of a file, in words; empty where nothing is."""
    if not isinstance(about, dict):
        return "it does not say what it holds"
    missing = [name for name, kind in _KINDS.items() if type(about.get(name)) is not kind]
    if missing:
        return f"its {' and '.join(missing)} cannot be read"
    names = about["names"]
    if vectors.dtype != np.float32:
        return f"its vectors are {vectors.dtype}, not float32"
    if vectors.ndim != 2 or not vectors.size:
        return f"its vectors have the shape {vectors.shape}, not (N, d)"
    if len(names) != len(vectors):
        return f"it has {len(names)} names for {len(vectors)} vectors"
    if not all(isinstance(name, str) for name in names):
        return "some of its names are no text"
    if len(set(names)) < len(names):
        return "some of its names stand there twice"
    if not np.isfinite(vectors).all():
        return "some of its vectors hold NaN or infinity"
    if about["normalized"]:
        lengths = np.linalg.norm(vectors, axis=1)
        if (np.abs(lengths[lengths > 0] - 1) > _LENGTH).any():  # one of length 0 stays as it is
            return "some of its vectors are not of length 1"
    return ""


def import_faiss() -> Any:
    """Bring faiss, which only retrieval needs."""
    try:
        import faiss
    except ImportError as error:
        raise ExtraError("Retrieval needs faiss: pip install faiss-cpu.") from error
    return faiss


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
    folder: Path,
    files: Sequence[Path],
    spec: RunSpec | Built,
    *,
    cache: Path | None = None,
    executor: Executor | None = None,
    progress: Progress = silent,
) -> Gallery:
    """Embed the files of a folder, as `spec` has it, or take the index at `cache` if it is of the same files.

    An index there that was made by another network is refused: to make it anew unasked would cost its owner the old
    one.
    """
    named = {_name(file, folder): file for file in files}
    if not named:
        raise ImageError(f"'{folder}' holds no images: give a folder with pictures to compare with.")
    stamp = _stamp(named)
    model = spec.build().model
    what = "pictures" if model.clip is None else "clips"
    identity = model.identity  # as it is now: a network that counts its calls in a buffer is another one afterwards
    if cache is not None and cache.is_file():
        index = Index.load(cache, model=model)
        if index.stamp == stamp and set(index.names) == set(named):
            return Gallery(index, named)
    samples = [Sample(file, name=name) for name, file in named.items()]
    embedded = embed(spec, samples, executor=executor, progress=progress)
    if not len(embedded):
        raise InputError(f"None of the {len(named)} {what} in '{folder}' can be read: {embedded.bad[0].message}")
    index = replace(Index.made_by(model, embedded, stamp=stamp), identity=identity)
    if cache is not None and not embedded.bad:  # a file that is mended is to be seen the next time
        index.save(cache)
    return Gallery(index, named, embedded.bad)


def _name(file: Path, folder: Path) -> str:
    return file.relative_to(folder).as_posix() if file.is_relative_to(folder) else file.as_posix()


def _stamp(named: dict[str, Path]) -> str:
    """What changes when a file is added, removed, renamed or written anew.

    By size and time, as make has it: to read all of a large gallery for every question would take longer than the
    question. What is wrongly taken for changed is only embedded again.
    """
    digest = hashlib.sha256()
    for name, file in named.items():
        digest.update(os.fsencode(f"{name}\0{file.resolve()}\0"))
        for one in sorted(file.iterdir()) if file.is_dir() else [file]:  # a folder of frames is one clip
            try:
                about = one.stat()
            except OSError:  # a link to nothing: it is named when it is to be read
                continue
            digest.update(f"{about.st_size} {about.st_mtime_ns} {about.st_ino}\n".encode())
    return digest.hexdigest()
