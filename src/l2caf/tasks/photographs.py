"""Photographs through a network: in batches, and whatever is wrong with some of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from ..errors import ClassError, InputError, MethodError
from ..images import open_image
from ..networks.class_names import Prediction, probabilities
from ..preprocessing import Prepared
from ..rendering.style import box_of
from .explained import Explained, Map
from .outputs import Failed

if TYPE_CHECKING:
    from torch import Tensor

    from ..heatmap import Heatmap
    from ..methods.method import Method
    from ..networks.model import Model
    from ..recording.inputs import Select


@dataclass(frozen=True)
class _Ready:
    file: Path | None
    prepared: Prepared


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
    asked = _Asked(model, method, layer, select, signed)
    return asked.explained([_Ready(None, model.prepare(image))])[0]


def explain_files(
    model: Model,
    files: Sequence[Path],
    method: Method,
    *,
    layer: str | None = None,
    select: Select = None,
    batch: int = 16,
    signed: bool = False,
) -> Iterator[Explained | Failed]:
    """Explain files, in batches; one that fails does not hold up the rest.

    A fault that no photograph can help (an unknown layer, a class out of range, a method that fits none of
    the first batch) is raised at once.
    """
    asked = _Asked(model, method, layer, select, signed)
    waiting: list[_Ready] = []
    some_went_well = False
    for file in [*files, None]:
        ready = _prepared(model, file) if file is not None else None
        if isinstance(ready, Failed):
            yield ready
            continue
        full = len(waiting) == batch
        if waiting and (ready is None or full or waiting[0].prepared.input.shape != ready.prepared.input.shape):
            answers = asked.answered(waiting)
            some_went_well = some_went_well or any(isinstance(answer, Explained) for answer in answers)
            first = answers[0]
            if not some_went_well and isinstance(first, Failed) and isinstance(first.error, MethodError):
                raise first.error
            yield from answers
            waiting = []
        if ready is not None:
            waiting.append(ready)


def _prepared(model: Model, file: Path) -> _Ready | Failed:
    try:
        return _Ready(file, model.prepare(open_image(file)))
    except InputError as error:
        return Failed(file, error)


@dataclass(frozen=True)
class _Asked:
    """What is asked of every batch."""

    model: Model
    method: Method
    layer: str | None
    select: Select
    signed: bool

    def answered(self, batch: list[_Ready]) -> list[Explained | Failed]:
        try:
            return [*self.explained(batch)]
        except (InputError, MethodError) as error:
            if isinstance(error, ClassError):
                raise
            if len(batch) == 1:
                return [Failed(batch[0].file or Path(), error)]
        # The fault may be with one of them alone.
        return [answer for one in batch for answer in self.answered([one])]

    def explained(self, batch: list[_Ready]) -> list[Explained]:
        inputs = [ready.prepared.input for ready in batch]
        with self.model.run(inputs, layer=self.layer, select=self.select) as recording:
            heatmap = self.method.on(recording.head)
            output = recording.output
        predictions = self.model.predictions(output)
        solution = heatmap.solution
        return [
            Explained(
                view=ready.prepared.view,
                maps=_maps_of(self.model, heatmap, output, index, signed=self.signed),
                prediction=predictions[index],
                layer=heatmap.layer,
                solver=solution.solver if solution else "",
                reason=solution.reason if solution else "",
                endpoint=solution.endpoint if solution else "",
                file=ready.file,
            )
            for index, ready in enumerate(batch)
        ]


def _maps_of(model: Model, heatmap: Heatmap, output: Tensor, index: int, *, signed: bool) -> tuple[Map, ...]:
    """The maps of one sample, each with its class and its share of the solution."""
    heats = (heatmap.signed if signed else heatmap.maps)[index].cpu().float().numpy()
    heats = heats.reshape(-1, *heats.shape[-2:])
    about: list[Prediction | None] = [None] * len(heats)
    if heatmap.classes is not None:
        chances = probabilities(output)[index]
        about = [Prediction(int(c), model.class_name(int(c)), float(chances[int(c)])) for c in heatmap.classes[index]]
    if heatmap.solution is None:
        return tuple(Map(heat, who, box=box_of(heat)) for heat, who in zip(heats, about, strict=True))
    solution = heatmap.solution
    outcomes = solution.outcome[index]
    outcomes = outcomes if isinstance(outcomes, list) else [outcomes]
    losses, steps, evaluations = (
        values[index].reshape(-1).tolist() for values in (solution.loss, solution.steps, solution.evaluations)
    )
    return tuple(
        Map(heat, who, outcome, loss if math.isfinite(loss) else None, step, evaluation, box_of(heat))
        for heat, who, outcome, loss, step, evaluation in zip(
            heats, about, outcomes, losses, steps, evaluations, strict=True
        )
    )
