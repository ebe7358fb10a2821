"""Which photographs are meant, what the pictures of them are called, and where they go."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..errors import ImageError, InputError, L2cafError
from ..files import cut_name, writable_folder
from ..images import image_files
from ..volumes.files import ending_of

LONGEST_SUFFIX = 80  # bytes of what a picture's name says behind that of the photograph
LONGEST_STEM = 100  # bytes of a photograph's name in that of its picture: methods, classes and endings come behind it
PICTURES = (".png", ".jpg", ".jpeg", ".webp")  # that the pictures of a command can be written as, the usual one first
FIGURES = (".pdf", ".svg")  # with lines and letters
# Nobody who ends a name so means a folder; "maps.v2" and "run.2024" are ones.
_LIKE_A_FILE = re.compile(r"\.([a-z]{2,5}|mp4|jp2|m4v|h5)")


@dataclass(frozen=True)
class Failed:
    """A photograph that could not be used, and the sentence that says why."""

    file: Path
    error: L2cafError

    def as_dict(self) -> dict[str, Any]:
        return {"file": str(self.file), "error": str(self.error)}


Skipped = Callable[[Failed], None]
"""Told of a photograph that is left out, as soon as that is known; the rest goes on."""


def unheard(failed: Failed) -> None:
    """Tell nobody."""


def gathered(paths: Iterable[Path], *, out: Path) -> tuple[list[Path], list[Failed]]:
    """The photographs that files and folders stand for, each once, and the paths that stand for none.

    What lies in the folder for our own pictures is not taken for a photograph, unless it is named outright.
    """
    found: dict[Path, Path] = {}
    refused: list[Failed] = []
    home = out.resolve()
    for path in paths:
        if path.is_dir() and path.resolve() == home:
            raise InputError(
                f"The pictures would lie among the photographs of '{path}': give another folder.", field="out"
            )
        try:
            files = image_files(path)
        except ImageError as error:
            refused.append(Failed(path, error))
            continue
        if path.is_dir():
            files = [file for file in files if not file.resolve().is_relative_to(home)]
        for file in files:
            found.setdefault(file.resolve(), file)
    return list(found.values()), refused


def some_gathered(paths: Iterable[Path], *, out: Path, skipped: Skipped = unheard) -> tuple[list[Path], list[Failed]]:
    """The same, where at least one photograph is needed; `skipped` is told of the paths that stand for none."""
    files, refused = gathered(paths, out=out)
    if not files:
        raise refused[0].error if refused else InputError("There are no photographs: give files or folders.")
    for one in refused:
        skipped(one)
    return files, refused


def names_for(files: Sequence[Path], *, suffix: str) -> dict[Path, str]:
    """A name for the picture of each file, without its ending; two files never share one.

    >>> list(names_for([Path("a/cat.jpg"), Path("b/Cat.png")], suffix="l2caf").values())
    ['cat-l2caf', 'Cat-2-l2caf']
    """
    taken: set[str] = set()
    names: dict[Path, str] = {}
    for file in files:
        stem = cut_name(stem_of(file), LONGEST_STEM) or "picture"
        name, number = f"{stem}-{suffix}", 2
        while name.casefold() in taken:  # some disks do not tell Cat from cat
            name, number = f"{stem}-{number}-{suffix}", number + 1
        taken.add(name.casefold())
        names[file] = name
    return names


def stem_of(file: Path) -> str:
    """The name of a file without its ending, .nii.gz as one.

    >>> stem_of(Path("a/head.nii.gz")), stem_of(Path("cat.jpg"))
    ('head', 'cat')
    """
    return file.name[: len(file.name) - len(ending_of(file))]


def suffix_of(words: Iterable[str]) -> str:
    """Words as the end of a name, which every disk takes; what is too long is cut, and told apart by a hash.

    >>> suffix_of(["l2caf", "tiger cat", "a/b"]), len(suffix_of(["word"] * 99))
    ('l2caf-tiger-cat-a-b', 80)
    """
    whole = re.sub(r"[^\w.+-]+", "-", "-".join(words)).strip("-.")
    kept = cut_name(whole, LONGEST_SUFFIX)
    return whole if kept == whole else f"{cut_name(whole, LONGEST_SUFFIX - 7)}-{sha256(whole.encode()).hexdigest()[:6]}"


def ready_folder(folder: Path) -> Path:
    """Make the folder for pictures, and try it, before any work is done; or say why not."""
    return writable_folder(folder)


def looks_like_file(out: Path) -> bool:
    """Whether a name ends as those of files do; a folder that is there already may be called anything.

    >>> looks_like_file(Path("where.xyz")), looks_like_file(Path("maps.v2"))
    (True, False)
    """
    return not out.is_dir() and bool(_LIKE_A_FILE.fullmatch(out.suffix.lower()))


def is_file(out: Path, *, endings: Sequence[str] = PICTURES) -> bool:
    """Whether `out` is the name of one picture, and not of a folder for them; a file that cannot be made is refused.

    >>> is_file(Path("where.jpg")), is_file(Path("maps")), is_file(Path("maps.v2"))
    (True, False, False)
    """
    if not looks_like_file(out):
        return False
    if ending_of(out) not in endings:
        raise InputError(
            f"'{out}' cannot be made: end the name of the file in {' or '.join(endings)}, or give a folder, which"
            " has no such ending unless it is there already.",
            field="out",
        )
    return True


def target(out: Path, name: str, *, endings: Sequence[str] = PICTURES) -> Path:
    """Where one picture goes: `out` itself if it names such a file, else `name` in the folder `out`."""
    if is_file(out, endings=endings):
        ready_folder(out.parent)
        return out
    return ready_folder(out) / f"{cut_name(name, 2 * LONGEST_STEM)}{endings[0]}"
