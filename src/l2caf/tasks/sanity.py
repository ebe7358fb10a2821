"""Check that the maps depend on what the network has learnt: likeness along the cascade, and one photograph's maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from ..errors import ImageError, InputError, MethodError
from ..files import write_json
from ..images import open_image, save_picture
from ..methods.table import METHODS
from ..progress import Progress, silent
from ..rendering.figures import COLORS, figure, framed, plain, save
from ..rendering.grid import grid
from ..rendering.overlay import overlay
from ..runs.lock import alone_in
from .network_choice import NetworkChoice
from .outputs import Failed, Skipped, some_gathered, unheard
from .samples import SAMPLES, sample_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..evaluation.sanity import MakesMethod
    from ..evaluation.verdicts import Sanity
    from ..methods.method import Method
    from ..methods.table import MethodEntry
    from ..networks.model import Model

LEAST = 3  # photographs; with fewer there is too little to compare with, and the installed ones join in
ACROSS = 7  # stages of the sheet, at most


@dataclass(frozen=True)
class SanityRequest:
    """Which methods are checked, on which photographs.

    images   files and folders; with few, photographs that are installed join in
    methods  keys of METHODS
    seeds    random networks that are made
    stages   points on the way from the logits layer to all layers; 0 for every layer
    """

    images: Sequence[Path]
    out: Path
    network: NetworkChoice = field(default_factory=NetworkChoice)
    methods: Sequence[str] = METHODS.default_in("evaluate")
    seeds: int = 3
    stages: int = 12

    def __post_init__(self) -> None:
        if self.stages == 1 or self.stages < 0:
            raise InputError(f"{self.stages} is no cascade: give 2 or more, or 0 for every layer.", field="stages")
        METHODS.checked(self.methods)


@dataclass(frozen=True)
class SanityResult:
    """What was found, and the files that were written."""

    network: str
    photographs: tuple[str, ...]
    found: Sanity
    written: tuple[Path, ...]
    assumed: Mapping[str, str]  # what was taken for granted about the network
    added: tuple[str, ...] = ()  # installed photographs that joined too few given ones

    def as_dict(self) -> dict[str, Any]:
        return {**self._measured(), "written": [str(path) for path in self.written]}

    def _measured(self) -> dict[str, Any]:
        known = {
            "network": self.network,
            "assumed": dict(self.assumed),
            "photographs": list(self.photographs),
            "added": list(self.added),
        }
        return {**known, **self.found.as_dict()}

    def write(self, view: Image.Image) -> None:
        """Write the numbers, the curves, and the maps of the first photograph."""
        numbers, curves, maps = self.written
        write_json(numbers, self._measured())
        save(plot(self.found, title=f"Do the maps of {self.network} depend on what it has learnt?"), curves)
        heading = f"{self.network}, randomised from the top: {Path(self.photographs[0]).name}"
        save_picture(sheet(self.found, view, heading=heading), maps)


def check_sanity(
    request: SanityRequest, *, model: Model | None = None, progress: Progress = silent, skipped: Skipped = unheard
) -> SanityResult:
    """Randomise a copy of the network layer by layer, and measure how alike its maps stay."""
    photographs, added = _photographs(request, skipped)
    with alone_in(request.out):
        return _checked(request, photographs, added, model, progress)


def _checked(
    request: SanityRequest,
    photographs: dict[str, Image.Image],
    added: tuple[str, ...],
    model: Model | None,
    progress: Progress,
) -> SanityResult:

    from ..evaluation.randomize import cascade
    from ..evaluation.sanity import sanity_check

    model = model or request.network.load(progress)
    batch = model.batch([model.prepare(photograph).input for photograph in photographs.values()])
    found = sanity_check(
        model.network,
        batch,
        methods=_makers(model, request.methods),
        seeds=request.seeds,
        stages=cascade(model.network, batch, stages=request.stages or None),
        layer=request.network.layer,
        select=request.network.select,
        progress=progress,
    )
    files = tuple(request.out / name for name in ("sanity.json", "sanity.png", "sanity-maps.png"))
    result = SanityResult(model.name, tuple(photographs), found, files, model.assumed, added)
    result.write(model.view(next(iter(photographs.values()))))
    return result


def _makers(model: Model, keys: Sequence[str]) -> Sequence[str] | dict[str, MakesMethod]:
    """What makes each method; an embedding has no classes, so that those about a class alone are refused."""
    checked = METHODS.checked(keys)
    return {key: _for_embeddings(METHODS[key]) for key in checked} if model.embedding else checked


def _for_embeddings(entry: MethodEntry) -> MakesMethod:
    def make(classes: Sequence[int]) -> Method:
        if "embeddings" not in entry.fits:
            raise MethodError(entry.why_no_embeddings)
        return entry.make_for_embeddings()

    return make


def _photographs(request: SanityRequest, skipped: Skipped) -> tuple[dict[str, Image.Image], tuple[str, ...]]:
    """The photographs by name, with the installed ones where too few are given, and the names of those that joined."""
    files: list[Path] = []
    if request.images:
        files, _ = some_gathered(request.images, out=request.out, skipped=skipped)
    opened = {}
    for file in files:
        try:
            opened[str(file)] = open_image(file)
        except ImageError as error:
            if len(files) == 1:
                raise
            skipped(Failed(file, error))
    if files and not opened:
        raise InputError(f"None of the {len(files)} photographs can be read: give others.", field="images")
    if len(opened) >= LEAST:
        return opened, ()
    installed = {str(sample_path(name)): open_image(sample_path(name)) for name in SAMPLES}
    return opened | installed, tuple(installed) if opened else ()


def plot(sanity: Sanity, *, title: str = "") -> Figure:
    """Likeness against the number of random layers, one panel per measure, one line per method.

    The band reaches from the lowest seed to the highest; the dashed line of the same colour is the control.
    """
    from ..evaluation.similarity import SIMILARITIES, SIMILARITY_TITLES

    made = figure(13.5, 5.2)
    panels = made.subplots(1, len(SIMILARITIES), sharey=True)
    # Even steps: drawn to scale, the logits layer would vanish beside the trained network.
    places = range(len(sanity.depths))
    for panel, measure in zip(panels, SIMILARITIES, strict=True):
        for number, (name, found) in enumerate(sanity.methods.items()):
            color = COLORS[number % len(COLORS)]
            by_seed = found.similarity[f"shown-{measure}"].mean(axis=2)
            by_seed = np.concatenate([np.ones((len(by_seed), 1)), by_seed], axis=1)
            width = 1.8 + 1.5 * _covered_by(sanity, number, f"shown-{measure}")
            panel.plot(
                places,
                by_seed.mean(axis=0),
                color=color,
                label=METHODS.title(name),
                linewidth=width,
            )
            low, high = by_seed.min(axis=0), by_seed.max(axis=0)
            panel.fill_between(places, low, high, color=color, alpha=0.1, linewidth=0)
            control = found.control[f"shown-{measure}"].mean()
            panel.axhline(control, color=color, linestyle="--", linewidth=0.5 * width)
        panel.set_title(SIMILARITY_TITLES[measure])
        panel.set_xticks(places, [str(depth) for depth in sanity.depths])
        panel.set_xlabel("random layers, from the top")
        plain(panel)
    panels[0].set_ylabel("likeness to the trained network's maps")
    framed(
        made,
        panels[0],
        title=title,
        note="dashed: maps of different images, trained network  ·  band: lowest to highest of"
        f" {sanity.seeds} seeds  ·  {sanity.images} images, layer {sanity.layer}",
    )
    return made


def sheet(sanity: Sanity, view: Image.Image, *, heading: str = "", cell_height: int = 150) -> Image.Image:
    """The first photograph's maps, method by method, from the trained network to a wholly random one."""
    count = len(sanity.depths)
    chosen = [0, 1, *np.unique(np.linspace(1, count - 1, min(ACROSS, count) - 1).round().astype(int))[1:]]
    view = view.resize((round(view.width * 2 * cell_height / view.height), 2 * cell_height))
    rows = [[overlay(view, maps[stage]) for stage in chosen] for maps in sanity.maps.values()]
    titles = [_stage_title(sanity, stage) for stage in chosen]
    return grid(
        [[view if number == 0 else None, *row] for number, row in enumerate(rows)],
        column_titles=["photograph", *titles],
        row_labels=[METHODS[name].short if name in METHODS else name for name in sanity.maps],
        heading=heading,
        caption="Class-specific maps are about the class that the trained network predicts."
        " No heat at all: that map is empty.",
        cell_height=cell_height,
    )


def _stage_title(sanity: Sanity, stage: int) -> str:
    depth = sanity.depths[stage]
    if depth == 0:
        return "trained"
    if stage == len(sanity.depths) - 1:
        return f"all {depth} layers random"
    return "logits layer random" if depth == 1 else f"{depth} layers random"


def _covered_by(sanity: Sanity, number: int, kind: str) -> int:
    """How many later lines lie on this one: it has to be wider to be seen."""
    lines = [found.similarity[kind].mean(axis=(0, 2)) for found in sanity.methods.values()]
    return sum(bool(np.abs(lines[number] - later).max() < 0.02) for later in lines[number + 1 :])
