"""A filter in slow motion: from its random start to where it stays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..errors import InputError, MethodError
from ..images import open_image
from ..progress import Progress, silent
from ..rendering.animation import convergence_frames, save_gif
from ..rendering.style import Style
from ..solution import Outcome
from .network_choice import NetworkChoice
from .outputs import suffix_of, target

if TYPE_CHECKING:
    from torch import Tensor

    from ..heads.head import Head
    from ..heatmap import Heatmap
    from ..networks.model import Model
    from ..objectives.classes import ClassSpecific
    from ..recording.inputs import Select

AREA = 340**2  # pixels of a frame: a film of this size is easily sent
RATES = (0.5, 0.1, 0.02, 0.004, 0.001, 0.0002)
STILL = 0.002  # of all the motion: where less is left than this, the film ends


@dataclass(frozen=True)
class AnimateRequest:
    """A photograph, and the class that the filter is about; None for the whole output.

    out     a folder, or the name of a .gif file
    frames  pictures of the film, at most
    steps   of the descent, at most
    seed    of its random start
    """

    image: Path
    out: Path
    network: NetworkChoice = field(default_factory=NetworkChoice)
    of_class: str | None = None
    style: Style = field(default_factory=Style)
    frames: int = 40
    steps: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        self.style.check()
        _check_motion(self.frames, self.steps)


@dataclass(frozen=True)
class Film:
    """The path of one filter, and the steps that are shown of it."""

    view: Image.Image
    maps: npt.NDArray[np.float32]  # (frames, height, width)
    losses: npt.NDArray[np.float64]  # one per step
    steps: tuple[int, ...]  # the steps that the maps belong to
    layer: str
    about: str
    outcome: Outcome
    taken: int  # how many steps the descent took
    agreement: float  # cosine of the last filter with the one that Auto finds
    found_by: str  # which solver that was

    def save(self, path: Path, style: Style, *, milliseconds: int = 90) -> Path:
        """Write the film as a GIF, the loss curve beside it."""
        scale = (AREA / (self.view.width * self.view.height)) ** 0.5
        size = (round(self.view.width * scale), round(self.view.height * scale))
        small = self.view.resize(size, Image.Resampling.LANCZOS)
        pictures = [style.draw(small, heat) for heat in self.maps]
        frames = convergence_frames(
            pictures, self.losses[: self.steps[-1] + 1], steps=self.steps, title=f"loss, {self.about}"
        )
        return save_gif(frames, path, milliseconds=milliseconds, hold=2500)


@dataclass(frozen=True)
class AnimateResult:
    """A film, and where it was written."""

    file: Path
    network: str
    film: Film
    picture: Path
    assumed: Mapping[str, str]  # what was taken for granted about the network

    def as_dict(self) -> dict[str, Any]:
        shown = self.film
        return {
            "file": str(self.file),
            "network": self.network,
            "assumed": dict(self.assumed),
            "layer": shown.layer,
            "about": shown.about,
            "outcome": str(shown.outcome),
            "steps": shown.taken,
            "frames": len(shown.steps),
            "loss": [float(shown.losses[0]), float(shown.losses[-1])],
            "agreement": {"cosine": shown.agreement, "with": shown.found_by},
            "picture": str(self.picture),
        }


def animate_filter(
    request: AnimateRequest, *, model: Model | None = None, progress: Progress = silent
) -> AnimateResult:
    """Film the filter of the request's photograph and write the film."""
    photograph = open_image(request.image)
    said = suffix_of(["converging", *([request.of_class] if request.of_class else []), *request.network.words])
    path = target(request.out, f"{request.image.stem}-{said}", endings=(".gif",))
    model = model or request.network.load(progress)
    if request.of_class:
        model.check_has_classes()
    found = film(
        model,
        photograph,
        of_class=model.class_index(request.of_class) if request.of_class else None,
        frames=request.frames,
        steps=request.steps,
        seed=request.seed,
        layer=request.network.layer,
        select=request.network.select,
        progress=progress,
    )
    found.save(path, request.style)
    return AnimateResult(request.image, model.name, found, path, model.assumed)


def film(
    model: Model,
    image: Image.Image,
    *,
    of_class: int | None = None,
    frames: int = 40,
    steps: int = 1000,
    seed: int = 0,
    layer: str | None = None,
    select: Select = None,
    progress: Progress = silent,
) -> Film:
    """Follow gradient descent from a random filter; class-oblivious, or specific to a class."""
    from ..heatmap import Heatmap
    from ..methods.attention_filter import AttentionFilter
    from ..objectives.classes import ClassSpecific

    _check_motion(frames, steps)
    objective = None if of_class is None else ClassSpecific(of_class)
    ready = model.prepare(image)
    with model.run([ready], layer=layer, output=select) as recording:
        heatmap = _descended(recording.head, objective, frames=frames, steps=steps, seed=seed, progress=progress)
        best = AttentionFilter(objective).on(recording.head)
    path, losses = _path(heatmap)
    shown = _even_motion(path, frames)
    maps = Heatmap(path[list(shown)], heatmap.size, heatmap.layer, heatmap.method, heatmap.keeps_sign).maps
    return Film(
        view=ready.view,
        maps=maps.cpu().float().numpy(),
        losses=losses,
        steps=shown,
        layer=heatmap.layer,
        about="class-oblivious" if of_class is None else model.class_name(of_class),
        outcome=heatmap.solved.outcomes(0)[0],
        taken=int(heatmap.solved.steps[0]),
        agreement=_cosine(heatmap.weights[0], best.weights[0]),
        found_by=best.solved.solver,
    )


def _check_motion(frames: int, steps: int) -> None:
    for name, count in (("frames", frames), ("steps", steps)):
        if count < 2:
            raise InputError(f"{frames} frames of {steps} steps show no motion: give at least 2 of each.", field=name)


def _cosine(one: Tensor, other: Tensor) -> float:
    a, b = (weights.flatten().double().cpu().numpy() for weights in (one, other))
    return float(a @ b / max(float(np.linalg.norm(a) * np.linalg.norm(b)), 1e-300))


def _descended(
    head: Head, objective: ClassSpecific | None, *, frames: int, steps: int, seed: int, progress: Progress
) -> Heatmap:
    """Descend at the first rate that is slow enough to fill a film, and fast enough to arrive."""
    from ..methods.attention_filter import AttentionFilter
    from ..solvers.gradient_descent import GradientDescent

    arrived: Heatmap | None = None
    for number, rate in enumerate(RATES):
        progress("descending", number, None)  # how many rates are tried shows on the way
        descent = GradientDescent(steps=steps, learning_rate=rate, seed=seed, keep_path=True)
        heatmap = AttentionFilter(objective, solver=descent).on(head)
        if arrived is not None and heatmap.solved.outcomes(0)[0] == Outcome.STEP_LIMIT:
            break
        arrived = heatmap
        if len(_even_motion(_path(heatmap)[0], frames)) >= 0.8 * frames:
            break
    assert arrived is not None  # there is at least one rate
    return arrived


def _path(heatmap: Heatmap) -> tuple[Tensor, npt.NDArray[np.float64]]:
    """The filters (steps, *grid) and losses of the one sample."""
    path, losses = heatmap.solved.path, heatmap.solved.losses
    if path is None or losses is None or not bool(losses.isfinite().all()):
        raise MethodError("The network gave NaN or infinity on the way, so there is no motion to show.")
    return path[:, 0].float(), losses[:, 0].double().cpu().numpy()


def _even_motion(path: Tensor, frames: int) -> tuple[int, ...]:
    """Choose the steps so that every frame moves as far as the next.

    A descent runs fast at first and then creeps: equal steps would jump first and stand still at last.
    """
    flat = path.flatten(1)
    moved = (flat[1:] - flat[:-1]).norm(dim=1).double().cumsum(dim=0).cpu().numpy()
    if moved.size == 0 or moved[-1] <= 0:
        return (0,)
    travelled = np.concatenate([[0.0], moved]) / moved[-1]
    last = int(np.searchsorted(travelled, 1 - STILL))
    wanted = np.linspace(0, travelled[last], frames)
    return tuple(int(step) for step in np.unique(np.searchsorted(travelled[: last + 1], wanted).clip(0, last)))
