"""Feature maps in files: `.npy`, `.npz`, `.safetensors`, folders of them, and arrays, as blocks of maps in order.

A file is mapped into memory anew for every block, so that what was read is let go of: a folder of many gigabytes takes
no more memory than one block (of an `.npz`, which cannot be mapped, than one file).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError

Array = npt.NDArray[Any]

ENDINGS = (".npy", ".npz", ".safetensors")
# What numpy calls the types of a safetensors file; it knows no bfloat16, which is the upper half of a float32.
_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
_LARGEST_HEADER = 100_000_000  # bytes, as the format says


@dataclass(frozen=True)
class Stored:
    """Maps that lie in one array: `shape` as it is stored, and `part` to read some of them along the first axis."""

    name: str
    shape: tuple[int, ...]
    part: Callable[[int, int], Array]


def stored(features: Any, *, key: str | None = None) -> list[Stored]:
    """What an array, a tensor, a path, a folder or a list of these stands for, in order; nothing is read yet.

    >>> [one.shape for one in stored(np.zeros((5, 8, 7, 7)))]
    [(5, 8, 7, 7)]
    """
    if isinstance(features, str | os.PathLike):
        return [_opened(file, key) for file in _files(Path(features))]
    if isinstance(features, list | tuple):
        return [one for given in features for one in stored(given, key=key)]
    if hasattr(features, "detach"):  # a tensor
        features = features.detach().cpu()
        features = (features.float() if str(features.dtype) == "torch.bfloat16" else features).numpy()
    if not isinstance(features, np.ndarray):
        raise InputError(
            f"The features are a {type(features).__name__}: give an array, a tensor, the path of a {_words()} file, or"
            " a folder of these.",
            field="features",
        )
    array = features
    return [_checked(Stored("the array", array.shape, lambda start, stop: array[start:stop]), array.dtype)]


def blocks(sources: Sequence[Stored], *, size: int, channels: int = 1) -> Iterator[Array]:
    """The maps of all sources as (b, C, *grid) arrays of floats, `size` at a time.

    `channels` is the axis of the channels in each array: 1 of (maps, C, *grid), -1 of (maps, *grid, C), and 0 of
    (C, *grid), where each array is one map.
    """
    waiting: list[Array] = []
    for source in sources:
        count = 1 if channels == 0 else source.shape[0]
        start = 0
        while start < count:
            stop = min(count, start + size - sum(map(len, waiting)))
            waiting.append(_of(source, start, stop, channels))
            start = stop
            if sum(map(len, waiting)) == size:
                yield _joined(waiting)
                waiting = []
    if waiting:
        yield _joined(waiting)


def counted(sources: Sequence[Stored], *, channels: int = 1) -> int:
    """How many maps there are; arrays that do not fit together are refused."""
    if channels not in (0, 1, -1):
        raise InputError(
            f"channels is {channels!r}: give the axis of the channels, 1 of (maps, C, …), -1 of (maps, …, C), or 0"
            " where each array is one map (C, …).",
            field="channels",
        )
    least = 2 if channels == 0 else 3
    first = sources[0]
    for one in sources:
        if len(one.shape) < least or 0 in one.shape or len(one.shape) > least + 2:
            axes = "(C, …)" if channels == 0 else "(maps, C, …)" if channels == 1 else "(maps, …, C)"
            raise InputError(
                f"{one.name} has the shape {one.shape}, but feature maps are {axes} with one to three axes of"
                " positions: channels= says where the channels are.",
                field="features",
            )
        if one.shape[channels != 0 :] != first.shape[channels != 0 :]:
            raise InputError(
                f"{one.name} holds maps of {one.shape[channels != 0 :]}, and {first.name} of"
                f" {first.shape[channels != 0 :]}: explain those of one shape at a time.",
                field="features",
            )
    return len(sources) if channels == 0 else sum(one.shape[0] for one in sources)


def _of(source: Stored, start: int, stop: int, channels: int) -> Array:
    array = source.part(0, source.shape[0])[None] if channels == 0 else source.part(start, stop)
    return np.moveaxis(array, -1, 1) if channels == -1 else array


def _joined(parts: list[Array]) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(file for file in path.rglob("*") if file.suffix.lower() in ENDINGS and file.is_file())
        if not found:
            raise InputError(f"The folder '{path}' holds no features: put {_words()} files there.", field="features")
        return found
    if not path.is_file():
        raise InputError(f"There is no file '{path}': give the path of features, or a folder.", field="features")
    if path.suffix.lower() not in ENDINGS:
        raise InputError(f"'{path}' is no file of features: give one that ends in {_words()}.", field="features")
    return [path]


def _opened(path: Path, key: str | None) -> Stored:
    try:
        return {".npy": _npy, ".npz": _npz, ".safetensors": _safetensors}[path.suffix.lower()](path, key)
    except InputError:
        raise
    except Exception as error:  # damaged files fail in any way
        raise InputError(f"'{path}' cannot be read ({type(error).__name__}): write it again.", field="features") from (
            error
        )


def _npy(path: Path, key: str | None) -> Stored:
    array = np.load(path, mmap_mode="r")
    return _checked(
        Stored(f"'{path}'", array.shape, lambda start, stop: np.load(path, mmap_mode="r")[start:stop]), array.dtype
    )


def _npz(path: Path, key: str | None) -> Stored:
    with np.load(path) as file:
        chosen = _chosen(path, list(file.files), key)
        array = file[chosen]
    shape, kind = array.shape, array.dtype
    del array
    kept: list[Array] = []  # the file that is being read, until its last map is

    def part(start: int, stop: int) -> Array:
        if not kept:
            with np.load(path) as file:
                kept.append(file[chosen])
        read = kept[0][start:stop]
        if stop >= shape[0]:
            kept.clear()
        return read

    return _checked(Stored(f"'{path}'", shape, part), kind)


def _safetensors(path: Path, key: str | None) -> Stored:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= _LARGEST_HEADER:
            raise ValueError("no header")
        header = json.loads(file.read(length))
    chosen = _chosen(path, [name for name in header if name != "__metadata__"], key)
    kind, shape, (begin, _) = (header[chosen][name] for name in ("dtype", "shape", "data_offsets"))
    if kind not in _TYPES:
        raise InputError(
            f"'{path}' holds numbers of the type {kind}: write them as one of {', '.join(_TYPES)}.", field="features"
        )
    each = int(np.prod(shape[1:], dtype=np.int64)) * np.dtype(_TYPES[kind]).itemsize

    def part(start: int, stop: int) -> Array:
        offset = 8 + length + begin + start * each
        read = np.memmap(path, _TYPES[kind], mode="r", offset=offset, shape=(stop - start, *shape[1:]))
        return (read.astype("<u4") << 16).view("<f4") if kind == "BF16" else read

    if len(shape) > 1 and 0 not in shape:
        part(0, shape[0])  # a file that ends too early is told before the work begins
    return Stored(f"'{path}'", tuple(shape), part)


def _chosen(path: Path, names: list[str], key: str | None) -> str:
    if key is not None and key in names:
        return key
    if key is None and len(names) == 1:
        return names[0]
    there = ", ".join(names[:8]) or "nothing"
    asked = "choose one with key=" if key is None else f"there is no {key!r} among them"
    raise InputError(f"'{path}' holds {there}: {asked}.", field="key")


def _checked(source: Stored, kind: np.dtype[Any]) -> Stored:
    if kind.kind not in "fiu":
        raise InputError(f"{source.name} holds {kind}, and features are numbers: give floats.", field="features")
    return source


def _words() -> str:
    return f"{', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}"
