"""Explained photographs: what was found, how it is drawn, and how it is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..files import write_whole
from ..networks.class_names import Prediction
from ..rendering.drawn import Cell
from ..rendering.figure_file import SUFFIXES, cell_of, save_figure
from ..rendering.grid import grid
from ..rendering.style import Style
from ..solution import Outcome
from .question import Question


@dataclass(frozen=True)
class Map:
    """One map of one photograph, and how it was found; the outcome is None where nothing was searched."""

    heat: npt.NDArray[np.float32] = field(repr=False)  # at the size of the network's input
    about: Prediction | None = None  # the class it is about; None where it is about the whole output
    outcome: Outcome | None = None
    loss: float | None = None
    steps: int = 0
    evaluations: int = 0
    box: tuple[int, int, int, int] | None = None  # around the hottest region, in pixels of the network's input
    grid: npt.NDArray[np.float32] | None = field(default=None, repr=False)  # on the layer's grid, to draw from
    box_on_photograph: tuple[float, ...] | None = None  # the same in pixels of the upright photograph, where known

    @property
    def title(self) -> str:
        """What it is about, and a warning where it shows nothing."""
        if self.outcome and self.outcome.shows_nothing:
            return f"no map: {self.outcome.sentence}"
        if not self.heat.any():
            return f"{self.about}: {EMPTY}" if self.about else EMPTY
        return str(self.about) if self.about else "where it looked"

    @property
    def faint(self) -> bool:
        """Whether the network hardly sees the class: its map is scaled to its own maximum, however little that is."""
        return self.about is not None and self.about.probability is not None and self.about.probability < UNSEEN

    def drawn(self, view: Image.Image, style: Style) -> Image.Image:
        """The map on what the network saw."""
        return style.draw(view, self.heat, grid=self.grid, faint=self.faint)

    def cell(self, view: Image.Image, style: Style) -> Cell:
        """The same for a figure."""
        return cell_of(style, self.title, view, self.heat, grid=self.grid, faint=self.faint)

    def as_dict(self) -> dict[str, Any]:
        return {
            "class": self.about.as_dict() if self.about else None,
            "outcome": str(self.outcome) if self.outcome else None,
            "loss": self.loss,
            "steps": self.steps,
            "evaluations": self.evaluations,
            "box": self.box,
            "box_on_photograph": self.box_on_photograph,
        }

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Map:
        """Read what `as_dict` gave; the heat itself is not in it."""
        return cls(
            np.zeros((1, 1), np.float32),
            Prediction(**row["class"]) if row["class"] else None,
            Outcome(row["outcome"]) if row["outcome"] else None,
            row["loss"],
            row["steps"],
            row["evaluations"],
            tuple(row["box"]) if row["box"] else None,
            box_on_photograph=tuple(row["box_on_photograph"]) if row["box_on_photograph"] else None,
        )


NOTABLE = 0.7  # of the photograph: the usual centre crop of a square one shows 77 % of it, of one of 4:3 57 %
UNSEEN = 0.01  # below this probability the map of a class is drawn faint
EMPTY = "no place speaks for it"


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
    asked: Image.Image | None = field(default=None, repr=False)  # the output with the region that was asked about
    seen: float | None = None  # the share of the photograph that the network was shown, where known

    @property
    def cut_off(self) -> bool:
        """Whether so much of the photograph was cut off that a person has to be told."""
        return self.seen is not None and self.seen < NOTABLE

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """How the searches ended, each way once."""
        return tuple(dict.fromkeys(one.outcome for one in self.maps if one.outcome))

    def as_dict(self) -> dict[str, Any]:
        return {
            "file": str(self.file),
            "seen": self.seen,
            "predicted": self.prediction.as_dict() if self.prediction else None,
            "layer": self.layer,
            "solver": self.solver or None,
            "reason": self.reason or None,
            "endpoint": self.endpoint or None,
            "maps": [one.as_dict() for one in self.maps],
        }

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Explained:
        """Read what `as_dict` gave; the pixels are not in it."""
        return cls(
            view=Image.new("RGB", (1, 1)),
            maps=tuple(Map.from_dict(one) for one in row["maps"]),
            prediction=Prediction(**row["predicted"]) if row["predicted"] else None,
            layer=row["layer"],
            solver=row["solver"] or "",
            reason=row["reason"] or "",
            endpoint=row["endpoint"] or "",
            file=Path(row["file"]),
            seen=row["seen"],
        )

    def sheet(self, style: Style, *, heading: str, caption: str = "") -> Image.Image:
        """The photograph and its maps side by side, with titles."""
        shown = [self.view] if self.asked is None else [self.view, self.asked]
        cells = [*shown, *(one.drawn(self.view, style) for one in self.maps)]
        titles = [photograph_title(self.prediction), "asked about"][: len(shown)] + [one.title for one in self.maps]
        return grid(
            _in_rows(cells),
            titles=_in_rows(titles),
            heading=heading,
            caption=caption,
            cell_height=448 if len(cells) <= 2 else 336,
            legend=style.legend,
        )

    def cells(self, style: Style) -> list[list[Cell]]:
        """The same for a figure."""
        return _in_rows(
            [
                Cell(photograph_title(self.prediction), None, self.view),
                *([] if self.asked is None else [Cell("asked about", None, self.asked)]),
                *(one.cell(self.view, style) for one in self.maps),
            ]
        )


def _in_rows(cells: Sequence[T]) -> list[list[T]]:
    across = 2 if len(cells) == 2 else 3 if len(cells) in (3, 5, 6, 9) else 4
    return [list(cells[start : start + across]) for start in range(0, len(cells), across)]


def caption_of(explained: Explained, *, method: str, network: str) -> str:
    """What stands below a sheet: how its maps were found, and what to know when looking at them."""
    parts = [method, f"{network}, layer {explained.layer}"]
    if explained.outcomes == (Outcome.EXACT,):
        parts.append("solved exactly")
    elif explained.outcomes:
        ended = ", ".join(outcome.replace("_", " ") for outcome in explained.outcomes)
        parts.append(f"{explained.solver}: {ended}")
    if explained.cut_off:
        parts.append(f"centre crop: {explained.seen:.0%} of the photograph".replace("%", " %"))
    if any(one.faint for one in explained.maps):
        parts.append(f"faint: a class below {UNSEEN:.0%}".replace("%", " %"))
    return "  ·  ".join(parts)


def photograph_title(prediction: Prediction | None) -> str:
    """What the network takes the photograph for; a single score is no verdict."""
    if prediction is None:
        return "photograph"
    return f"seen as {prediction}" if prediction.probability is not None else str(prediction)


@dataclass(frozen=True)
class Written:
    """A photograph, and what was written of it."""

    explained: Explained
    pictures: tuple[Path, ...]
    numbers: Path | None = None

    def as_dict(self) -> dict[str, Any]:
        return {
            **self.explained.as_dict(),
            "pictures": [str(path) for path in self.pictures],
            "npy": str(self.numbers) if self.numbers else None,
        }

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Written:
        """Read what `as_dict` gave: thousands of pictures would not fit in memory, and what a report needs does."""
        pictures = tuple(Path(path) for path in row["pictures"])
        return cls(Explained.from_dict(row), pictures, Path(row["npy"]) if row["npy"] else None)


T = TypeVar("T")
Save = Callable[[Path], None]
"""Writes a picture to a path that has its ending."""
Note = Callable[[Written, Mapping[Path, Path]], None]
"""Told what is written of a photograph, and where each of its files is until it is put in its place."""


class Writer:
    """Writes the pictures of a run into one folder.

    bare  the maps on the picture alone, one file each, where the rule is a sheet with photograph and titles
    ending of the pictures, which names their format
    npy   also the maps as an array: (height, width), or (maps, height, width) for several
    """

    def __init__(
        self,
        folder: Path,
        question: Question,
        style: Style,
        *,
        bare: bool = False,
        npy: bool = False,
        ending: str = ".png",
    ) -> None:
        self.folder = folder
        self.question, self.style = question, style
        self.bare, self.npy, self.ending = bare, npy, ending

    def write(self, explained: Explained, name: str, *, network: str, note: Note | None = None) -> Written:
        """Write what belongs to one photograph, under a name without an ending.

        note   told what is written when all of it is whole, before the first file is put in its place
        """
        drawn = self._bare(explained, name) if self.bare else self._sheet(explained, name, network)
        written = Written(explained, tuple(drawn), self.folder / f"{name}.npy" if self.npy else None)
        with ExitStack() as stack:
            whole: dict[Path, Path] = {}
            for path, save in drawn.items():
                whole[path] = stack.enter_context(write_whole(path))
                save(whole[path])
            if written.numbers:
                whole[written.numbers] = stack.enter_context(write_whole(written.numbers))
                heats = np.stack([one.heat for one in explained.maps])
                with whole[written.numbers].open("wb") as file:
                    np.save(file, heats[0] if len(heats) == 1 else heats)
            if note is not None:
                note(written, whole)
        return written

    def _sheet(self, explained: Explained, name: str, network: str) -> dict[Path, Save]:
        heading = explained.file.name if explained.file else ""
        caption = caption_of(explained, method=self.question.title, network=network)
        path = self.folder / f"{name}{self.ending}"
        if self.ending.lower() in SUFFIXES:
            told = {"title": heading, "caption": caption, "legend": True}
            return {path: lambda to: self._figure(explained.cells(self.style), to, **told)}
        return {path: _saves(explained.sheet(self.style, heading=heading, caption=caption))}

    def _figure(self, cells: list[list[Cell]], to: Path, **told: Any) -> None:
        save_figure(cells, to, ending=self.ending.lower(), **told)

    def _bare(self, explained: Explained, name: str) -> dict[Path, Save]:
        drawn: dict[Path, Save] = {}
        for one in explained.maps:
            which = f"-{one.about.index}" if one.about and len(explained.maps) > 1 else ""
            path = self.folder / f"{name}{which}{self.ending}"
            if self.ending.lower() in SUFFIXES:
                cell = one.cell(explained.view, self.style)._replace(title="")
                drawn[path] = partial(self._figure, [[cell]])
            else:
                drawn[path] = _saves(one.drawn(explained.view, self.style))
        return drawn


def _saves(picture: Image.Image) -> Save:
    # At its usual level of compression a PNG takes ten times as long as the network does.
    return lambda path: picture.save(path, compress_level=2, quality=92)  # each format takes its own
