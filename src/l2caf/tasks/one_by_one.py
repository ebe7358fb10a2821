"""What is explained by itself, since no two need be of one size (signals, volumes): the run, and what was found."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from ..errors import ClassError, InputError, MethodError, NetworkError
from ..files import write_whole
from ..progress import Progress
from .explain import ExplainRequest
from .explained import Explained, Map, Written
from .outputs import Failed, Skipped, names_for, ready_folder, suffix_of

if TYPE_CHECKING:
    from torch import Tensor

    from ..heatmap import Heatmap
    from ..methods.method import Method
    from ..networks.model import Model


@dataclass
class OneByOne:
    """A question to a network about files that are opened, explained and written one after the other."""

    request: ExplainRequest
    model: Model
    method: Method

    @classmethod
    def ready(cls, request: ExplainRequest, model: Model) -> OneByOne:
        """With the folder made, and a class that the network does not have told before a file is read."""
        ready_folder(request.folder)
        request = replace(request, question=request.asked.settled(model))
        return cls(request, model, request.asked.as_method(model))

    def run(
        self, files: Sequence[Path], write: Callable[[Path, str], Written], *, progress: Progress, skipped: Skipped
    ) -> tuple[tuple[Written, ...], tuple[Failed, ...]]:
        """Write what belongs to each file, under a name without an ending; what cannot be is told, and left out."""
        request = self.request
        names = {files[0]: request.name} if request.is_file else names_for(files, suffix=suffix_of(request.words))
        written: list[Written] = []
        failed: list[Failed] = []
        for number, (file, name) in enumerate(names.items(), start=1):
            try:
                written.append(write(file, name))
            except ClassError:
                raise
            except (InputError, MethodError, NetworkError) as error:
                failed.append(Failed(file, error))
                if len(names) > 1:  # of a single one the result says all
                    skipped(failed[-1])
            progress("explaining", number, len(names))
        return tuple(written), tuple(failed)

    def explained(self, file: Path, heatmap: Heatmap, output: Tensor) -> Explained:
        """What was found of one file; its heats are those of all maps, whatever they lie on."""
        signed, solution = self.request.style.signed, heatmap.solution
        heats = (heatmap.signed if signed else heatmap.maps)[0].cpu().float().numpy()
        heats = heats if "map" in heatmap.axes else heats[None]
        known = heatmap.classes is not None and heatmap.region is None
        classes = heatmap.classes[0].reshape(-1).tolist() if known and heatmap.classes is not None else None
        numbers = zip(
            *(values[0].reshape(-1).tolist() for values in (solution.loss, solution.steps, solution.evaluations)),
            strict=True,
        )
        maps = tuple(
            Map(
                heat,
                None if number is None else self.model.prediction_of(output, 0, number),
                None if solution.is_formula else outcome,
                loss if math.isfinite(loss) else None,
                steps,
                evaluations,
                grid=grid,
            )
            for heat, grid, number, outcome, (loss, steps, evaluations) in zip(
                heats,
                heatmap.grids(0, signed=signed),
                classes or [None] * len(heats),
                solution.outcomes(0),
                numbers,
                strict=True,
            )
        )
        formula = solution.is_formula
        return Explained(
            view=Image.new("RGB", (1, 1)),
            maps=maps,
            prediction=self.model.predictions(output)[0],
            layer=heatmap.layer,
            solver="" if formula else solution.solver,
            reason="" if formula else solution.reason,
            endpoint="" if formula else solution.endpoint,
            file=file,
        )

    def words(self, explained: Explained, name: str) -> dict[str, str]:
        """What stands above and below a picture."""
        seen = f"  ·  seen as {explained.prediction}" if explained.prediction else ""
        ended = ", ".join(outcome.replace("_", " ") for outcome in explained.outcomes)
        parts = [
            self.request.asked.title,
            f"{self.model.name}, layer {explained.layer}",
            *([ended] if ended else []),
        ]
        heading = f"{explained.file.name if explained.file else name}{seen}"
        return {"heading": heading, "caption": "  ·  ".join(parts)}

    def numbers(self, explained: Explained, name: str) -> Path | None:
        """Write the maps as an array, where that is wanted."""
        if not self.request.npy:
            return None
        path = self.request.folder / f"{name}.npy"
        heats = np.stack([one.heat for one in explained.maps])
        with write_whole(path) as temporary, temporary.open("wb") as to:
            np.save(to, heats[0] if len(heats) == 1 else heats)
        return path


def check_one_picture(request: ExplainRequest, count: int, *, what: str) -> None:
    """Refuse the name of one picture for several."""
    if request.is_file and count > 1:
        raise InputError(
            f"'{request.out}' names one picture, and there are {count} {what}: give a folder.", field="out"
        )
