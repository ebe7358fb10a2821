"""Explained photographs to files, each whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

from ..errors import InputError
from ..files import write_whole
from ..rendering.style import Style
from .asking import Question
from .explaining import Explained, sheet
from .naming import names_for


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
        self.names = names_for(files, suffix=str(question.method))
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
