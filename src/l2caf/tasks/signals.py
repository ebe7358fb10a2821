"""Explain signals: each by itself, since no two are of one length."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from ..errors import ClassError, InputError, MethodError, NetworkError, first_line
from ..files import write_whole
from ..progress import Progress, silent
from ..rendering.sound import Strip, sound_figure, sound_picture
from ..signals import Signal, is_signal, read_signal
from .explain import ExplainRequest, ExplainResult
from .explained import Explained, Map, Written
from .outputs import FIGURES, PICTURES, Failed, Skipped, names_for, ready_folder, suffix_of, unheard

if TYPE_CHECKING:
    from torch import Tensor

    from ..heatmap import Heatmap
    from ..methods.method import Method
    from ..networks.model import Model

AS_THEY_ARE = "samples are given as they are in the file (a WAV's between -1 and 1), at its own rate"


def are_signals(paths: Sequence[Path]) -> bool:
    """Whether signals are meant, and not photographs; the two are not mixed."""
    found = [is_signal(path) for path in paths]
    if any(found) and not all(found):
        raise InputError("Signals and photographs are given together: explain the ones, then the others.")
    return bool(found) and all(found)


def explain_signals(
    request: ExplainRequest,
    *,
    rate: float | None = None,
    model: Model | None = None,
    progress: Progress = silent,
    skipped: Skipped = unheard,
) -> ExplainResult:
    """Explain every signal and write its picture; `rate` is that of .npy files, which do not tell."""
    files = list(dict.fromkeys(request.images))
    if request.is_file and len(files) > 1:
        raise InputError(
            f"'{request.out}' names one picture, and there are {len(files)} signals: give a folder.", field="out"
        )
    model = model or request.network.load(progress)
    if "preprocessing" not in model.assumed:
        raise InputError(
            f"{model.name} prepares photographs, and '{files[0].name}' is a signal: give a network of your own that"
            " takes samples, as in nets.py:build, whose function returns the network alone.",
            field="network",
        )
    ready_folder(request.folder)
    request = replace(request, question=request.asked.settled(model))
    asked = _Asked(request, model, request.asked.as_method(model))
    names = {files[0]: request.out.stem} if request.is_file else names_for(files, suffix=suffix_of(request.words))
    written: list[Written] = []
    failed: list[Failed] = []
    for number, (file, name) in enumerate(names.items(), start=1):
        try:
            written.append(asked.written(file, name, read_signal(file, rate=rate)))
        except ClassError:
            raise
        except (InputError, MethodError, NetworkError) as error:
            failed.append(Failed(file, error))
            if len(names) > 1:  # of a single one the result says all
                skipped(failed[-1])
        progress("explaining", number, len(names))
    assumed = {**model.assumed, "preprocessing": "; ".join([AS_THEY_ARE, *dict.fromkeys(asked.mixed)])}
    return ExplainResult(model.name, request.asked.title, tuple(written), tuple(failed), assumed)


class _Asked:
    """What is asked of every signal."""

    def __init__(self, request: ExplainRequest, model: Model, method: Method) -> None:
        self.request, self.model, self.method = request, model, method
        self.mixed: list[str] = []  # what is to be said of signals whose channels were put together

    def written(self, file: Path, name: str, signal: Signal) -> Written:
        shown, inputs = self._taken(file, signal)
        choice = self.request.network
        with self.model.run(inputs, layer=choice.layer, output=choice.select) as recording:
            heatmap = self.method.on(recording.head)
            output = recording.output
        if len(heatmap.size) != 1:
            raise NetworkError(
                f"Layer {heatmap.layer} of {self.model.name} has a map of {len(heatmap.size)} axes, and a signal has"
                " time alone: choose another layer."
            )
        explained = self._explained(file, heatmap, output)
        pictures = self._drawn(explained, name, signal)
        numbers = self.request.folder / f"{name}.npy" if self.request.npy else None
        if numbers:
            heats = np.stack([one.heat for one in explained.maps])
            with write_whole(numbers) as temporary, temporary.open("wb") as to:
                np.save(to, heats[0] if len(heats) == 1 else heats)
        if shown is not signal.samples:
            self.mixed.append(f"the {len(signal.samples)} channels are given as their mean")
        return Written(explained, pictures, numbers)

    def _taken(self, file: Path, signal: Signal) -> tuple[Any, Any]:
        """The samples as the network takes them: (1, channels, n) or (1, n), all channels or their mean."""
        import torch

        fault: NetworkError | None = None
        single = len(signal.samples) == 1
        for samples in [signal.samples] if single else [signal.samples, signal.mixed]:
            for form in [samples[None], samples] if len(samples) == 1 else [samples[None]]:
                inputs = torch.from_numpy(form)
                try:
                    self._try(inputs)
                except NetworkError as error:
                    fault = error
                else:
                    return samples, inputs
        channels, length = signal.samples.shape
        plural = "" if single else "s"
        raise InputError(
            f"{self.model.name} takes '{file.name}', {channels} channel{plural} of {length} samples, neither as (1,"
            f" channels, samples) nor as (1, samples) ({fault}): give a signal of the length and rate"
            " that it was made for."
        )

    def _try(self, inputs: Tensor) -> None:
        """Run the network on what it may not take."""
        import torch

        try:
            with torch.no_grad():
                self.model.network(self.model.batch(inputs))
        except Exception as error:  # any network may fail in any way
            raise NetworkError(first_line(error)) from error

    def _explained(self, file: Path, heatmap: Heatmap, output: Tensor) -> Explained:
        signed, solution = self.request.style.signed, heatmap.solution
        heats = (heatmap.signed if signed else heatmap.maps)[0].cpu().float().numpy()
        heats = heats.reshape(-1, heats.shape[-1])
        grids = heatmap.grids(0, signed=signed)
        known = heatmap.classes is not None and heatmap.region is None
        classes = heatmap.classes[0].tolist() if known and heatmap.classes is not None else [None] * len(heats)
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
                heats, grids, classes, solution.outcomes(0), numbers, strict=True
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

    def _drawn(self, explained: Explained, name: str, signal: Signal) -> tuple[Path, ...]:
        request, style = self.request, self.request.style
        bare = request.bare
        strips = [
            Strip("" if bare else one.title, one.heat if one.grid is None else one.grid) for one in explained.maps
        ]
        seen = f"  ·  seen as {explained.prediction}" if explained.prediction else ""
        ended = ", ".join(outcome.replace("_", " ") for outcome in explained.outcomes)
        parts = [request.asked.title, f"{self.model.name}, layer {explained.layer}", *([ended] if ended else [])]
        heading = f"{explained.file.name if explained.file else name}{seen}"
        words = {} if bare else {"heading": heading, "caption": "  ·  ".join(parts)}
        options: dict[str, Any] = {
            "rate": signal.rate,
            "signed": style.signed,
            "cmap": style.cmap,
            "alpha": style.alpha,
            **words,
        }
        ending = request.out.suffix.lower() if request.is_file else PICTURES[0]
        path = request.folder / f"{name}{request.out.suffix if request.is_file else ending}"
        with write_whole(path) as temporary:
            if ending in FIGURES:
                sound_figure(signal.samples, strips, **options).savefig(temporary, format=ending[1:])
            else:
                sound_picture(signal.samples, strips, **options).save(temporary, quality=92)
        return (path,)
