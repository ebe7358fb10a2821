"""Explain signals: each by itself, since no two are of one length."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError, NetworkError, first_line
from ..files import write_whole
from ..progress import Progress, silent
from ..rendering.sound import Strip, sound_figure, sound_picture
from ..signals import Signal, is_signal, read_signal
from .explain import ExplainRequest, ExplainResult
from .explained import Explained, Written
from .one_by_one import OneByOne, check_one_picture
from .outputs import FIGURES, PICTURES, Skipped, unheard

if TYPE_CHECKING:
    from torch import Tensor

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
    check_one_picture(request, len(files), what="signals")
    model = model or request.network.load(progress)
    if "preprocessing" not in model.assumed:
        raise InputError(
            f"{model.name} prepares photographs, and '{files[0].name}' is a signal: give a network of your own that"
            " takes samples, as in nets.py:build, whose function returns the network alone.",
            field="network",
        )
    asked = _Asked(OneByOne.ready(request, model))
    written, failed = asked.run.run(
        files,
        lambda file, name: asked.written(file, name, read_signal(file, rate=rate)),
        progress=progress,
        skipped=skipped,
    )
    assumed = {**model.assumed, "preprocessing": "; ".join([AS_THEY_ARE, *dict.fromkeys(asked.mixed)])}
    return ExplainResult(model.name, asked.run.request.asked.title, written, failed, assumed)


class _Asked:
    """What is asked of every signal."""

    def __init__(self, run: OneByOne) -> None:
        self.run, self.request, self.model = run, run.request, run.model
        self.mixed: list[str] = []  # what is to be said of signals whose channels were put together

    def written(self, file: Path, name: str, signal: Signal) -> Written:
        shown, inputs = self._taken(file, signal)
        choice = self.request.network
        with self.model.run(inputs, layer=choice.layer, output=choice.select) as recording:
            heatmap = self.run.method.on(recording.head)
            output = recording.output
        if len(heatmap.size) != 1:
            raise NetworkError(
                f"Layer {heatmap.layer} of {self.model.name} has a map of {len(heatmap.size)} axes, and a signal has"
                " time alone: choose another layer."
            )
        explained = self.run.explained(file, heatmap, output)
        pictures = self._drawn(explained, name, signal)
        numbers = self.run.numbers(explained, name)
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

    def _drawn(self, explained: Explained, name: str, signal: Signal) -> tuple[Path, ...]:
        request, style = self.request, self.request.style
        bare = request.bare
        strips = [
            Strip("" if bare else one.title, one.heat if one.grid is None else one.grid) for one in explained.maps
        ]
        options: dict[str, Any] = {
            "rate": signal.rate,
            "signed": style.signed,
            "cmap": style.cmap,
            "alpha": style.alpha,
            **({} if bare else self.run.words(explained, name)),
        }
        ending = request.out.suffix.lower() if request.is_file else PICTURES[0]
        path = request.folder / f"{name}{request.out.suffix if request.is_file else ending}"
        with write_whole(path) as temporary:
            if ending in FIGURES:
                sound_figure(signal.samples, strips, **options).savefig(temporary, format=ending[1:])
            else:
                sound_picture(signal.samples, strips, **options).save(temporary, quality=92)
        return (path,)
