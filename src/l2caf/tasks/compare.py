"""One photograph through the eyes of every method, from one run of the network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from PIL import Image

from ..errors import MethodError, OutputError
from ..heads.head import Head
from ..heatmap import Heatmap
from ..methods.method import Method
from ..methods.table import METHODS
from ..networks.class_names import Prediction, probabilities
from ..networks.model import Model
from ..recording.inputs import Select
from ..rendering.grid import grid
from ..rendering.style import Style, note
from .explained import photograph_title


@dataclass(frozen=True)
class Contestant:
    """One method's answer, or the reason why it has none."""

    title: str
    heatmap: Heatmap | None
    outcome: str = ""
    solver: str = ""
    refusal: str = ""


@dataclass(frozen=True)
class Comparison:
    """All answers about one photograph."""

    view: Image.Image
    contestants: tuple[Contestant, ...]
    prediction: Prediction | None
    about: Prediction | None  # the class of the class-specific maps
    layer: str
    network: str

    def sheet(self, style: Style, *, heading: str, across: int = 3, cell_height: int = 320) -> Image.Image:
        """The photograph first, then the answers, row by row."""
        cells = [self.view, *(_cell(one, self.view, style) for one in self.contestants)]
        titles = [photograph_title(self.prediction), *(one.title for one in self.contestants)]
        starts = range(0, len(cells), across)
        about = f"class-specific maps and CAMs: {self.about}" if self.about else ""
        return grid(
            [cells[start : start + across] for start in starts],
            titles=[titles[start : start + across] for start in starts],
            heading=heading,
            caption="  ·  ".join(filter(None, [about, self.network, f"layer {self.layer}"])),
            cell_height=cell_height,
        )


def compare(
    model: Model,
    image: Image.Image,
    *,
    of_class: int | None = None,
    layer: str | None = None,
    select: Select = None,
) -> Comparison:
    """Ask every method about one photograph; the network itself runs once.

    The class-specific methods are asked about `of_class`, or about the best class.
    """
    ready = model.prepare(image)
    with model.run([ready.input], layer=layer, select=select) as recording:
        head, output = recording.head, recording.output
        prediction = model.predictions(output)[0]
        contestants = tuple(
            _asked(METHODS[key].title, METHODS[key].make(classes=of_class), head)
            for key in METHODS.default_in("compare")
        )
    chosen = of_class if of_class is not None else prediction.index if prediction else None
    about = None
    if chosen is not None and output.ndim == 2:
        about = Prediction(chosen, model.class_name(chosen), float(probabilities(output)[0, chosen]))
    return Comparison(ready.view, contestants, prediction, about, str(head.layer), model.name)


def _asked(title: str, method: Method, head: Head) -> Contestant:
    try:
        heatmap = method.on(head)
    except (MethodError, OutputError) as error:  # it does not fit this network, others may
        return Contestant(title, None, refusal=str(error))
    solution: Any = heatmap.solution
    if solution is None:
        return Contestant(title, heatmap)
    return Contestant(title, heatmap, outcome=str(solution.outcome[0]), solver=solution.solver)


def _cell(one: Contestant, view: Image.Image, style: Style) -> Image.Image:
    if one.heatmap is None:
        return note(one.refusal, view.size)
    if one.outcome == "uninformative":
        return note("uninformative: no place matters more than another", view.size)
    heat = (one.heatmap.signed if style.signed else one.heatmap.maps)[0].cpu().float().numpy()
    return style.draw(view, heat)
