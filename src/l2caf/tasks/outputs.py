"""Which photographs are meant, what the pictures of them are called, and how they are written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

from ..errors import FileError, ImageError, InputError
from ..files import write_whole
from ..images import image_files
from ..rendering.style import Style
from .explain import Explained, sheet
from .question import Question


def gathered(paths: Iterable[Path], *, out: Path) -> tuple[list[Path], list[tuple[Path, ImageError]]]:
    """The photographs that files and folders stand for, each once, and the paths that stand for none.

    What lies in the folder for our own pictures is not taken for a photograph, unless it is named outright.
    """
    found: dict[Path, Path] = {}
    refused: list[tuple[Path, ImageError]] = []
    home = out.resolve()
    for path in paths:
        if path.is_dir() and path.resolve() == home:
            raise InputError(
                f"The pictures would lie among the photographs of '{path}': give another folder.", field="out"
            )
        try:
            files = image_files(path)
        except ImageError as error:
            refused.append((path, error))
            continue
        if path.is_dir():
            files = [file for file in files if not file.resolve().is_relative_to(home)]
        for file in files:
            found.setdefault(file.resolve(), file)
    return list(found.values()), refused


def names_for(files: Sequence[Path], *, suffix: str) -> dict[Path, str]:
    """A name for the picture of each file, without its ending; two files never share one.

    >>> list(names_for([Path("a/cat.jpg"), Path("b/Cat.png")], suffix="l2caf").values())
    ['cat-l2caf', 'Cat-2-l2caf']
    """
    taken: set[str] = set()
    names: dict[Path, str] = {}
    for file in files:
        stem = file.stem[:100] or "picture"
        name, number = f"{stem}-{suffix}", 2
        while name.casefold() in taken:  # some disks do not tell Cat from cat
            name, number = f"{stem}-{number}-{suffix}", number + 1
        taken.add(name.casefold())
        names[file] = name
    return names


def ready_folder(folder: Path) -> Path:
    """Make the folder for pictures before any work is done, or say why not."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise FileError(
            f"'{folder}' cannot be made a folder for pictures ({reason}): give another.", field="out"
        ) from error
    return folder


def target(out: Path, name: str, *, ending: str) -> Path:
    """Where one picture goes: `out` itself if it names such a file, else `name` in the folder `out`."""
    if out.suffix.lower() == ending:
        ready_folder(out.parent)
        return out
    return ready_folder(out) / f"{name}{ending}"


@dataclass(frozen=True)
class Written:
    """What was written of one photograph; the pixels and maps themselves are let go."""

    explained: Explained
    pictures: tuple[Path, ...]
    numbers: Path | None = None


class Writer:
    """Writes the pictures of a run into one folder.

    bare  the maps on the picture alone, one file each, where the rule is a sheet with photograph and titles
    npy   also the maps as an array: (height, width), or (maps, height, width) for several
    """

    def __init__(
        self,
        folder: Path,
        files: Sequence[Path],
        question: Question,
        style: Style,
        *,
        bare: bool = False,
        npy: bool = False,
    ) -> None:
        self.folder = folder
        self.names = names_for(files, suffix=question.method)
        self.question, self.style = question, style
        self.bare, self.npy = bare, npy

    def write(self, explained: Explained, *, network: str) -> Written:
        """Write what belongs to one photograph."""
        if explained.file is None:
            raise InputError("A picture without a file has no name: save it with save_picture(sheet(...), path).")
        name = self.names[explained.file]
        pictures = self._bare(explained, name) if self.bare else [self._sheet(explained, name, network)]
        numbers = None
        if self.npy:
            numbers = self.folder / f"{name}.npy"
            heats = np.stack([one.heat for one in explained.maps])
            with write_whole(numbers) as temporary, temporary.open("wb") as file:
                np.save(file, heats[0] if len(heats) == 1 else heats)
        # Thousands of pictures would not fit in memory; what a report needs of them is small.
        nothing = np.zeros((1, 1), np.float32)
        maps = tuple(replace(one, heat=nothing) for one in explained.maps)
        small = replace(explained, view=explained.view.resize((1, 1)), maps=maps)
        return Written(small, tuple(pictures), numbers)

    def _sheet(self, explained: Explained, name: str, network: str) -> Path:
        parts = [self.question.title, f"{network}, layer {explained.layer}"]
        outcomes = dict.fromkeys(one.outcome.replace("_", " ") for one in explained.maps if one.outcome)
        if outcomes:
            exact = list(outcomes) == ["exact"]
            parts.append("solved exactly" if exact else f"{explained.solver}: {', '.join(outcomes)}")
        heading = explained.file.name if explained.file else ""
        picture = sheet(explained, self.style, heading=heading, caption="  ·  ".join(parts))
        return _saved(picture, self.folder / f"{name}.png")

    def _bare(self, explained: Explained, name: str) -> list[Path]:
        paths = []
        for one in explained.maps:
            ending = f"-{one.about.index}" if one.about and len(explained.maps) > 1 else ""
            drawn = self.style.draw(explained.view, one.heat)
            paths.append(_saved(drawn, self.folder / f"{name}{ending}.png"))
        return paths


def _saved(picture: Image.Image, path: Path) -> Path:
    """Save quickly: at its usual level of compression a PNG takes ten times as long as the network does."""
    with write_whole(path) as temporary:
        picture.save(temporary, compress_level=2)
    return path
