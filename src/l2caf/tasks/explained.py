"""Explained photographs: what was found, how it is drawn, and how it is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..errors import InputError, L2cafError
from ..files import write_whole
from ..networks.class_names import Prediction
from ..rendering.style import Style
from .outputs import names_for
from .question import Question


@dataclass(frozen=True)
class Map:
    """One map of one photograph, and how it was found."""

    heat: npt.NDArray[np.float32] = field(repr=False)  # at the size of the network's input
    about: Prediction | None = None  # the class it is about; None where it is about the whole output
    outcome: str = ""
    loss: float | None = None
    steps: int = 0
    evaluations: int = 0
    box: tuple[int, int, int, int] | None = None  # around the hottest region, in pixels of the network's input


@dataclass(frozen=True)
class Explained:
    """A photograph as the network saw it, with its maps."""

    view: Image.Image = field(repr=False)
    maps: tuple[Map, ...]
    prediction: Prediction | None
    layer: str
    solver: str = ""
    reason: str = ""
    endpoint: str = ""
    file: Path | None = None


@dataclass(frozen=True)
class Failed:
    """A photograph that could not be explained, and the sentence that says why."""

    file: Path
    error: L2cafError


def sheet(explained: Explained, style: Style, *, heading: str, caption: str = "") -> Image.Image:
    """The photograph and its maps side by side, with titles."""
    from ..rendering.grid import grid

    cells = [explained.view, *(style.draw(explained.view, one.heat) for one in explained.maps)]
    titles = [photograph_title(explained.prediction), *(title_of(one) for one in explained.maps)]
    across = 2 if len(cells) == 2 else 3 if len(cells) in (3, 5, 6, 9) else 4
    starts = range(0, len(cells), across)
    return grid(
        [cells[start : start + across] for start in starts],
        titles=[titles[start : start + across] for start in starts],
        heading=heading,
        caption=caption,
        cell_height=448 if len(cells) <= 2 else 336,
    )


def photograph_title(prediction: Prediction | None) -> str:
    """What the network takes the photograph for."""
    return f"seen as {prediction}" if prediction else "photograph"


def title_of(one: Map) -> str:
    """What a map is about, and a warning where it shows nothing."""
    if one.outcome == "uninformative":
        return "uninformative: no place matters more than another"
    if one.outcome == "non_finite":
        return "no map: the network gave NaN or infinity"
    return str(one.about) if one.about else "where it looked"


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
