"""Photographs through a network: in batches, and whatever is wrong with some of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from PIL import Image

from ..errors import ClassError, InputError, MethodError
from ..networks.class_names import Prediction
from ..preprocessing import Crop
from ..rendering.style import Style, box_of
from ..runs.rows import Row
from ..runs.work import Work
from .asked import Asked, Ready, on_photograph
from .asked_of_file import AskedOfFile
from .explained import Explained, Map, Note, Writer, Written
from .ledger import Ledger
from .outputs import Failed
from .question import Question

if TYPE_CHECKING:
    from torch import Tensor

    from ..datasets.loading import Batch, Prepares
    from ..exported.network import ExportedNetwork
    from ..heatmap import Heatmap
    from ..methods.method import Method
    from ..networks.model import Model
    from ..recording.inputs import Select


def explain_image(
    model: Model,
    image: Image.Image,
    method: Method,
    *,
    layer: str | None = None,
    select: Select = None,
    signed: bool = False,
) -> Explained:
    """Explain one photograph."""
    asked = _AskedOfModel(model, method, layer, select, Style(signed=signed))
    prepared = model.prepare(image)
    return asked.explained([Ready(None, prepared.input, prepared.view, prepared.crop)])[0]


@dataclass(frozen=True)
class BothWays:
    """One answer of a network, and its best classes; it is described when it is asked for, with a sign or without."""

    described: Callable[[bool], Explained] = field(repr=False)
    best: tuple[Prediction, ...]

    @cached_property
    def shown(self) -> Explained:
        """With maps as they are shown."""
        return self.described(False)

    @cached_property
    def signed(self) -> Explained:
        """With maps that have their sign."""
        return self.described(True)


def explain_both_ways(
    model: Model,
    image: Image.Image,
    method: Method,
    *,
    layer: str | None = None,
    select: Select = None,
    best: int = 5,
) -> BothWays:
    """Explain one photograph from one run, so that it can be drawn either way afterwards.

    best   how many classes are told; of an output that is no row of scores, none are
    """
    asked = _AskedOfModel(model, method, layer, select, Style())
    prepared = model.prepare(image)
    ready = [Ready(None, prepared.input, prepared.view, prepared.crop)]
    heatmap, output = asked.run(ready)
    several = output.ndim == 2 and output.shape[1] > 1 and model.predictions(output)[0] is not None
    places = output[0].float().topk(min(best, output.shape[1])).indices.tolist() if several else []
    return BothWays(
        lambda signed: asked.described(ready, heatmap, output, Style(signed=signed))[0],
        tuple(model.prediction_of(output, 0, place) for place in places),
    )


@dataclass(frozen=True)
class Misfit:
    """A photograph that could not be explained; `by_method`: because the method does not fit what it shows.

    `setting` is what was asked that is at fault, where it is one thing.
    """

    image: str
    error: str
    by_method: bool
    setting: str | None = None

    def as_dict(self) -> Row:
        at_fault = {} if self.setting is None else {"setting": self.setting}
        return {"image": self.image, "error": self.error, "by_method": self.by_method, **at_fault}


@dataclass(frozen=True)
class Pictured:
    """A photograph that was explained and written, under the name of its picture."""

    image: str
    written: Written

    def as_dict(self) -> Row:
        return {"image": self.image, **self.written.as_dict()}


@dataclass(frozen=True)
class Photographs(Work):
    """The work of explaining photographs: their pictures are drawn and written where the block is done.

    A sample's name is that of its picture. A photograph that fails does not hold up the rest; a fault that none can
    help (an unknown layer, a class out of range) is raised.

    out   the folder for the pictures
    ending of the pictures
    run   what the run is known by, where it is written down which photographs are drawn; empty where it is not
    """

    key: ClassVar[str] = "explanation"
    stage: ClassVar[str] = "explaining"
    pictures: ClassVar[bool] = True

    question: Question
    style: Style
    out: str
    layer: str | None = None
    select: str | int | None = None
    bare: bool = False
    npy: bool = False
    ending: str = ".png"
    run: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.question, Mapping):  # as JSON has it
            classes = tuple(self.question["classes"])
            object.__setattr__(self, "question", Question(**{**self.question, "classes": classes}))
        if isinstance(self.style, Mapping):
            object.__setattr__(self, "style", Style(**self.style))

    def seen_by(self, model: Model) -> Prepares:
        """As the network prepares it, with a picture as sharp as the photograph."""
        return model

    def measure(self, model: Model, batch: Batch) -> list[Pictured | Misfit]:
        """Explain and write; one record per photograph."""
        asked = self._asked(model)
        writer = Writer(Path(self.out), self.question, self.style, bare=self.bare, npy=self.npy, ending=self.ending)
        ready = [Ready(*one) for one in zip(batch.paths, batch.each, batch.pictures, batch.crops, strict=True)]
        return [
            Misfit(name, str(answer.error), isinstance(answer.error, MethodError), answer.error.field)
            if isinstance(answer, Failed)
            else Pictured(name, writer.write(answer, name, network=model.name, note=self._note(name, path)))
            for name, path, answer in zip(batch.names, batch.paths, answered(asked, ready), strict=True)
        ]

    def _asked(self, model: Model | ExportedNetwork) -> Asked:
        """The question put to this network: here by torch, or as an exported file by ONNX Runtime."""
        from ..exported.network import ExportedNetwork

        if isinstance(model, ExportedNetwork):
            return AskedOfFile(model, self.question, self.style)
        return _AskedOfModel(model, self.question.as_method(model), self.layer, self.select, self.style)

    def _note(self, name: str, photograph: Path) -> Note | None:
        """What writes down that a photograph is drawn."""
        if not self.run:
            return None
        ledger = Ledger.of(Path(self.out), self.run)
        return lambda written, whole: ledger.note(photograph, Pictured(name, written).as_dict(), whole)

    def counted(self, row: Row) -> tuple[str, bool] | None:
        """There is nothing to score."""
        return None


def answered(asked: Asked, batch: list[Ready]) -> list[Explained | Failed]:
    """Explain a batch, or tell of each photograph why it cannot be."""
    try:
        return [*asked.explained(batch)]
    except (InputError, MethodError) as error:
        if isinstance(error, ClassError):
            raise
        if len(batch) == 1:
            return [Failed(batch[0].file or Path(), error)]
    # The fault may be with one of them alone.
    return [answer for one in batch for answer in answered(asked, [one])]


@dataclass(frozen=True)
class _AskedOfModel(Asked):
    """What is asked of every batch."""

    model: Model
    method: Method
    layer: str | None
    select: Select
    style: Style

    def explained(self, batch: list[Ready]) -> list[Explained]:
        return self.described(batch, *self.run(batch), self.style)

    def run(self, batch: list[Ready]) -> tuple[Heatmap, Tensor]:
        """Run the network once: the maps, and its output."""
        inputs = [ready.input for ready in batch]
        with self.model.run(inputs, layer=self.layer, output=self.select) as recording:
            return self.method.on(recording.head), recording.output

    def described(self, batch: list[Ready], heatmap: Heatmap, output: Tensor, style: Style) -> list[Explained]:
        """What was found in each photograph, with maps that have a sign where the style asks for it."""
        predictions = self.model.predictions(output)
        solved = None if heatmap.solution.is_formula else heatmap.solution
        own = [solved and solved.of_sample(index) for index in range(len(batch))]
        return [
            Explained(
                view=ready.view,
                maps=_maps_of(self.model, heatmap, output, index, style, crop=ready.crop),
                prediction=predictions[index],
                layer=heatmap.layer,
                solver=solution.solver if solution else "",
                reason=solution.reason if solution else "",
                endpoint=solution.endpoint if solution else "",
                file=ready.file,
                asked=_asked_about(heatmap, index),
                seen=None if ready.crop is None else round(ready.crop.share, 4),
            )
            for index, (ready, solution) in enumerate(zip(batch, own, strict=True))
        ]


def _asked_about(heatmap: Heatmap, index: int) -> Image.Image | None:
    """The output with the region that was asked about, where there is one."""
    region = heatmap.region
    return region.drawn(index) if region is not None and region.is_drawable else None


def _maps_of(
    model: Model, heatmap: Heatmap, output: Tensor, index: int, style: Style, *, crop: Crop | None
) -> tuple[Map, ...]:
    """The maps of one sample, each with its class, its place on the photograph and its share of the solution."""
    heats = (heatmap.signed if style.signed else heatmap.maps)[index].cpu().float().numpy()
    heats = heats.reshape(-1, *heats.shape[-2:])
    grids = heatmap.grids(index, signed=style.signed)
    boxes = [box_of(heat, level=style.threshold) for heat in heats]
    about: list[Prediction | None] = [None] * len(heats)
    if heatmap.classes is not None and heatmap.region is None:
        about = [model.prediction_of(output, index, chosen) for chosen in heatmap.classes[index].tolist()]
    if heatmap.solution.is_formula:
        return tuple(
            Map(heat, who, box=box, grid=grid, box_on_photograph=on_photograph(box, crop))
            for heat, grid, box, who in zip(heats, grids, boxes, about, strict=True)
        )
    solution = heatmap.solution
    outcomes = solution.outcome[index]
    outcomes = outcomes if isinstance(outcomes, list) else [outcomes]
    losses, steps, evaluations = (
        values[index].reshape(-1).tolist() for values in (solution.loss, solution.steps, solution.evaluations)
    )
    return tuple(
        Map(
            heat,
            who,
            outcome,
            loss if math.isfinite(loss) else None,
            step,
            evaluation,
            box=box,
            grid=grid,
            box_on_photograph=on_photograph(box, crop),
        )
        for heat, grid, box, who, outcome, loss, step, evaluation in zip(
            heats, grids, boxes, about, outcomes, losses, steps, evaluations, strict=True
        )
    )
