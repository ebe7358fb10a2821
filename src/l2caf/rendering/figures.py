"""The one maker of matplotlib figures, drawn to memory and never to a screen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from PIL import Image

from ..files import printable, write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure


INK, FAINT = "#1a1a1a", "#5f6368"
# Told apart by people who see few colours, and in grey.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")


class Look(NamedTuple):
    """How a line is drawn, so that it is told from others by more than its colour."""

    color: str
    line: str
    marker: str


LOOKS = tuple(
    Look(color, line, marker)
    for color, line, marker in zip(COLORS, ("-", "--", "-.", ":", "-", "--", "-."), "os^DvPX", strict=True)
)


def figure(width: float, height: float) -> Figure:
    """A figure that belongs to nobody else: pyplot's shared state is left alone, and so is the screen."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    made = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(made)
    return made


def plain(axes: Any) -> None:
    """Take away the lines that say nothing."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=FAINT, labelcolor=INK)
    axes.grid(axis="y", color="#e8eaed", linewidth=0.8)
    axes.set_axisbelow(True)


def framed(made: Figure, axes: Any, *, title: str, note: str) -> None:
    """Put the title above all panels, and below them the legend of the lines and bars of one, headed by a note."""
    shown, labels = axes.get_legend_handles_labels()
    made.legend(
        shown,
        labels,
        loc="outside lower center",
        ncols=len(shown),
        frameon=False,
        title=note,
        title_fontproperties={"size": 9},
    )
    made.suptitle(printable(title).replace("$", r"\$"), fontweight="bold", x=0.01, ha="left")


def save(made: Figure, path: Path) -> Path:
    """Write a figure, whole or not at all."""
    with write_whole(path) as temporary:
        made.savefig(temporary, dpi=130, facecolor="white")
    return path


def bare_figure(size: tuple[int, int]) -> tuple[Any, Any]:
    """A matplotlib figure of `size` pixels with quiet axes; no pyplot, so nothing global is touched."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(size[0] / 100, size[1] / 100), dpi=100, layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8, colors="#5f6368")
    return figure, axes


def as_picture(figure: Any) -> Image.Image:
    """The figure as it is now."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
