"""The pictures of a sanity check: likeness along the cascade, and one photograph's maps on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from ..evaluation.similarity import MEASURES, TITLES
from ..evaluation.verdicts import Sanity
from ..methods.table import METHODS
from ..rendering.figures import COLORS, figure, plain
from ..rendering.grid import grid
from ..rendering.overlay import overlay

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_SHORT = {
    "l2caf": "L2-CAF, any class",
    "l2caf-class": "L2-CAF, of the class",
    "cam": "CAM",
    "gradcam": "Grad-CAM",
    "gradcam-abs": "Grad-CAM abs",
}
ACROSS = 7  # stages of the sheet, at most


def plot(sanity: Sanity, *, title: str = "") -> Figure:
    """Likeness against the number of random layers, one panel a measure, one line a method.

    The band reaches from the lowest seed to the highest; the dashed line of the same colour is the control.
    """
    made = figure(13.5, 5.2)
    panels = made.subplots(1, len(MEASURES), sharey=True)
    # Even steps: drawn to scale, the logits layer would vanish beside the trained network.
    places = range(len(sanity.depths))
    for panel, measure in zip(panels, MEASURES, strict=True):
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
        panel.set_title(TITLES[measure])
        panel.set_xticks(places, [str(depth) for depth in sanity.depths])
        panel.set_xlabel("random layers, from the top")
        plain(panel)
    panels[0].set_ylabel("likeness to the trained network's maps")
    lines, labels = panels[0].get_legend_handles_labels()
    made.legend(
        lines,
        labels,
        loc="outside lower center",
        ncols=len(lines),
        frameon=False,
        title="dashed: maps of different images, trained network  ·  band: lowest to highest of"
        f" {sanity.seeds} seeds  ·  {sanity.images} images, layer {sanity.layer}",
        title_fontproperties={"size": 9},
    )
    made.suptitle(title, fontweight="bold", x=0.01, ha="left")
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
        row_labels=[_SHORT.get(name, name) for name in sanity.maps],
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
