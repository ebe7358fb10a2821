"""One photograph through the eyes of every method, from one run of the network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..errors import MethodError, OutputError
from ..images import open_image, save_picture
from ..methods.table import METHODS
from ..networks.class_names import Prediction
from ..progress import Progress, silent
from ..rendering.drawn import Cell
from ..rendering.figure_file import cell_of, save_figure
from ..rendering.grid import grid
from ..rendering.style import Style, note
from ..solution import Outcome
from .explained import EMPTY, photograph_title
from .network_choice import NetworkChoice
from .outputs import FIGURES, PICTURES, suffix_of, target

if TYPE_CHECKING:
    from ..heads.head import Head
    from ..methods.method import Method
    from ..networks.model import Model
    from ..recording.inputs import Select


@dataclass(frozen=True)
class CompareRequest:
    """A photograph, and the class that class-specific methods are asked about; None for the best one.

    out  a folder, or the name of a .png file
    """

    image: Path
    out: Path
    network: NetworkChoice = field(default_factory=NetworkChoice)
    of_class: str | None = None
    style: Style = field(default_factory=Style)

    def __post_init__(self) -> None:
        self.style.check()


@dataclass(frozen=True)
class Answer:
    """One method's map, as it is shown and with its sign, or the reason why it has none."""

    title: str
    shown: npt.NDArray[np.float32] | None = field(default=None, repr=False)
    signed: npt.NDArray[np.float32] | None = field(default=None, repr=False)
    outcome: Outcome | None = None
    solver: str = ""
    refusal: str = ""
    grids: tuple[npt.NDArray[np.float32], ...] = field(default=(), repr=False)  # both on the layer's grid, to draw from

    def as_dict(self) -> dict[str, Any]:
        return {
            "method": self.title,
            "fits": not self.refusal,
            "solver": self.solver or None,
            "outcome": str(self.outcome) if self.outcome else None,
            "refusal": self.refusal or None,
        }


@dataclass(frozen=True)
class Comparison:
    """All answers about one photograph."""

    view: Image.Image = field(repr=False)
    answers: tuple[Answer, ...]
    prediction: Prediction | None
    about: Prediction | None  # the class of the class-specific maps
    layer: str
    network: str

    def sheet(self, style: Style, *, heading: str, across: int = 3, cell_height: int = 320) -> Image.Image:
        """The photograph first, then the answers, row by row."""
        cells = [self.view, *(_cell(one, self.view, style) for one in self.answers)]
        titles = [photograph_title(self.prediction), *(one.title for one in self.answers)]
        starts = range(0, len(cells), across)
        return grid(
            [cells[start : start + across] for start in starts],
            titles=[titles[start : start + across] for start in starts],
            heading=heading,
            caption=self.caption,
            cell_height=cell_height,
            legend=style.legend,
        )

    def drawn(self, style: Style, *, height: int) -> list[tuple[Image.Image, str]]:
        """The answers one by one, with their titles, at a height for a screen."""
        view = self.view.resize((max(1, round(self.view.width * height / self.view.height)), height))
        return [(_cell(one, view, style), one.title) for one in self.answers]

    def cells(self, style: Style, *, across: int = 3) -> list[list[Cell]]:
        """The same for a figure."""
        listed = [
            Cell(photograph_title(self.prediction), None, self.view),
            *(_figure_cell(one, self.view, style) for one in self.answers),
        ]
        return [listed[start : start + across] for start in range(0, len(listed), across)]

    @property
    def caption(self) -> str:
        about = f"class-specific maps and CAMs: {self.about}" if self.about else ""
        return "  ·  ".join(filter(None, [about, self.network, f"layer {self.layer}"]))


@dataclass(frozen=True)
class CompareResult:
    """A comparison, and where its sheet was written."""

    file: Path
    comparison: Comparison
    picture: Path
    assumed: Mapping[str, str]  # what was taken for granted about the network

    def as_dict(self) -> dict[str, Any]:
        found = self.comparison
        return {
            "file": str(self.file),
            "network": found.network,
            "assumed": dict(self.assumed),
            "layer": found.layer,
            "predicted": found.prediction.as_dict() if found.prediction else None,
            "class": found.about.as_dict() if found.about else None,
            "methods": [one.as_dict() for one in found.answers],
            "picture": str(self.picture),
        }


def compare_methods(
    request: CompareRequest, *, model: Model | None = None, progress: Progress = silent
) -> CompareResult:
    """Compare the methods on the request's photograph and write one sheet."""
    photograph = open_image(request.image)
    said = suffix_of(["compare", *([request.of_class] if request.of_class else []), *request.network.words])
    path = target(request.out, f"{request.image.stem}-{said}", endings=(*PICTURES, *FIGURES))
    model = model or request.network.load(progress)
    if request.of_class:
        model.check_has_classes()
    found = compare(
        model,
        photograph,
        of_class=model.class_index(request.of_class) if request.of_class else None,
        layer=request.network.layer,
        select=request.network.select,
        progress=progress,
    )
    if path.suffix.lower() in FIGURES:
        save_figure(found.cells(request.style), path, legend=True, title=request.image.name, caption=found.caption)
    else:
        save_picture(found.sheet(request.style, heading=request.image.name), path)
    return CompareResult(request.image, found, path, model.assumed)


def compare(
    model: Model,
    image: Image.Image,
    *,
    of_class: int | None = None,
    layer: str | None = None,
    select: Select = None,
    progress: Progress = silent,
) -> Comparison:
    """Ask every method about one photograph; the network itself runs once.

    The class-specific methods are asked about `of_class`, or about the best class. An embedding has no classes: it is
    shown to the methods that ask about the whole output.
    """
    if of_class is not None:
        model.check_has_classes()
    ready = model.prepare(image)
    keys = (METHODS.for_embeddings() if model.embedding else METHODS).default_in("compare")
    answers = []
    with model.run([ready], layer=layer, output=select) as recording:
        head, output = recording.head, recording.output
        prediction = model.predictions(output)[0]
        for done, key in enumerate(keys, start=1):
            entry = METHODS[key]
            method = entry.make_for_embeddings() if model.embedding else entry.make(classes=of_class)
            answers.append(_asked(entry.title, method, head))
            progress("comparing", done, len(keys))
    chosen = of_class if of_class is not None else prediction.index if prediction else None
    about = model.prediction_of(output, 0, chosen) if chosen is not None and output.ndim <= 2 else None
    return Comparison(ready.view, tuple(answers), prediction, about, str(head.layer), model.name)


def _asked(title: str, method: Method, head: Head) -> Answer:
    try:
        heatmap = method.on(head)
    except (MethodError, OutputError) as error:  # it does not fit this network, others may
        return Answer(title, refusal=str(error))
    shown, signed = (maps[0].cpu().float().numpy() for maps in (heatmap.maps, heatmap.signed))
    grids = tuple(heatmap.grids(0, signed=sign)[0] for sign in (False, True))
    solution = heatmap.solution
    if solution.is_formula:
        return Answer(title, shown, signed, grids=grids)
    return Answer(title, shown, signed, outcome=solution.outcomes(0)[0], solver=solution.solver, grids=grids)


def _figure_cell(one: Answer, view: Image.Image, style: Style) -> Cell:
    heat = one.signed if style.signed else one.shown
    if heat is None or not heat.any() or (one.outcome and one.outcome.shows_nothing):
        return Cell(one.title, None, _cell(one, view, style))  # words in place of a map
    return cell_of(style, one.title, view, heat, grid=one.grids[style.signed])


def _cell(one: Answer, view: Image.Image, style: Style) -> Image.Image:
    heat = one.signed if style.signed else one.shown
    if heat is None:
        return note(one.refusal, view.size)
    if one.outcome and one.outcome.shows_nothing:
        return note(f"no map: {one.outcome.sentence}", view.size)
    if not heat.any():
        return note(EMPTY, view.size)
    return style.draw(view, heat, grid=one.grids[style.signed])
