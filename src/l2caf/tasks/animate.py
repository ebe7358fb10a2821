"""A filter in slow motion: from its random start to where it stays."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from ..errors import InputError, MethodError
from ..heads.head import Head
from ..heatmap import Heatmap
from ..methods.attention_filter import AttentionFilter
from ..networks.model import Model
from ..objectives.classes import ClassSpecific
from ..recording.inputs import Select
from ..rendering.animation import convergence_frames, save_gif
from ..rendering.style import Style
from ..solution import Outcome
from ..solvers.gradient_descent import GradientDescent

AREA = 340**2  # pixels of a frame: a film of this size is easily sent
RATES = (0.5, 0.1, 0.02, 0.004, 0.001, 0.0002)
STILL = 0.002  # of all the motion: where less is left than this, the film ends


@dataclass(frozen=True)
class Film:
    """The path of one filter, and the steps that are shown of it."""

    view: Image.Image
    maps: npt.NDArray[np.float32]  # (frames, height, width)
    losses: npt.NDArray[np.float64]  # one a step
    steps: tuple[int, ...]  # the steps that the maps belong to
    layer: str
    about: str
    outcome: str
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
) -> Film:
    """Follow gradient descent from a random filter; class-oblivious, or specific to a class."""
    if frames < 2 or steps < 2:
        raise InputError(f"{frames} frames of {steps} steps show no motion: give at least 2 of each.")
    objective = None if of_class is None else ClassSpecific(of_class)
    ready = model.prepare(image)
    with model.run([ready.input], layer=layer, select=select) as recording:
        heatmap = _descended(recording.head, objective, frames=frames, steps=steps, seed=seed)
        best = AttentionFilter(objective).on(recording.head)
    path, losses = _path(heatmap)
    shown = _even_motion(path, frames)
    maps = Heatmap(path[list(shown)], heatmap.size, heatmap.layer, heatmap.method, heatmap.keeps_sign).maps
    cosine = torch.nn.functional.cosine_similarity(
        heatmap.weights[0].flatten().double(), best.weights[0].flatten().double(), dim=0
    )
    return Film(
        view=ready.view,
        maps=maps.cpu().float().numpy(),
        losses=losses,
        steps=shown,
        layer=heatmap.layer,
        about="class-oblivious" if of_class is None else model.class_name(of_class),
        outcome=str(heatmap.solution.outcome[0]),
        taken=int(heatmap.solution.steps[0]),
        agreement=float(cosine),
        found_by=best.solution.solver,
    )


def _descended(head: Head, objective: ClassSpecific | None, *, frames: int, steps: int, seed: int) -> Heatmap:
    """Descend at the first rate that is slow enough to fill a film, and fast enough to arrive."""
    arrived: Heatmap | None = None
    for rate in RATES:
        descent = GradientDescent(steps=steps, learning_rate=rate, seed=seed, keep_path=True)
        heatmap = AttentionFilter(objective, solver=descent).on(head)
        if arrived is not None and heatmap.solution.outcome[0] == Outcome.STEP_LIMIT:
            break
        arrived = heatmap
        if len(_even_motion(_path(heatmap)[0], frames)) >= 0.8 * frames:
            break
    assert arrived is not None  # there is at least one rate
    return arrived


def _path(heatmap: Heatmap) -> tuple[torch.Tensor, npt.NDArray[np.float64]]:
    """The filters (steps, *grid) and losses of the one sample."""
    path, losses = heatmap.solution.path, heatmap.solution.losses
    if path is None or losses is None or not bool(losses.isfinite().all()):
        raise MethodError("The network gave NaN or infinity on the way, so there is no motion to show.")
    return path[:, 0].float(), losses[:, 0].double().cpu().numpy()


def _even_motion(path: torch.Tensor, frames: int) -> tuple[int, ...]:
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
