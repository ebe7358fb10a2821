"""Maps on matplotlib's axes: outlines and boxes stay lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import InputError
from ..files import printable
from .colors import Cmap
from .drawn import Heat
from .figures import INK
from .legend import shown_colors
from .marks import PALETTE, RIM, checked_box
from .overlay import ALPHA, Picture, contour_levels, overlay
from .settings import check_flag, check_options


def plot(
    heat: Heat,
    picture: Any,
    axes: Any,
    *,
    cmap: Cmap | None = None,
    legend: bool = False,
    title: str = "",
    **options: Any,
) -> Any:
    """Draw a map over its picture on matplotlib's axes, in pixels of the picture, and give the axes back."""
    if not hasattr(axes, "imshow"):
        raise InputError(f"ax is a {type(axes).__name__}; give matplotlib axes, such as plt.gca() has.", field="ax")
    check_flag(legend, "legend")
    if heat.fine.ndim != 2 or picture is None:
        drawn = heat.on(picture, cmap=cmap, **options)
        axes.imshow(np.asarray(drawn), interpolation="antialiased")
    else:
        check_options(options, ("alpha", "cmap", "contours", "box", "boxes", "width", "legend", "title"))
        _photograph(heat, picture, axes, cmap=cmap, **options)
    axes.set_axis_off()
    if title:
        axes.set_title(printable(str(title)).replace("$", r"\$"), fontsize=9, color=INK, wrap=True)
    if legend:
        _legend(axes, signed=heat.signed, cmap=cmap)
    return axes


def _photograph(
    heat: Heat,
    picture: Picture,
    axes: Any,
    *,
    cmap: Cmap | None,
    alpha: float = ALPHA,
    contours: bool | float | Sequence[float] | None = False,
    box: Any = None,
    boxes: Any = None,
    width: int | None = None,
) -> None:
    from matplotlib.patches import Rectangle
    from matplotlib.patheffects import withStroke

    laid = heat.laid(picture, width=width)
    drawn = overlay(laid.under, laid.heat, signed=heat.signed, cmap=cmap, alpha=alpha, seen=laid.seen)
    height, across = laid.under.shape[:2]
    extent = (0, across, height, 0)  # boxes are counted from corner to corner, not from the middle of a pixel
    axes.imshow(np.asarray(drawn), interpolation="antialiased", extent=extent)
    rim = [withStroke(linewidth=2.6, foreground=RIM)]
    levels = sorted(contour_levels(contours))
    shown = np.abs(laid.heat)
    if levels and min(shown.shape) > 1 and shown.max() > levels[0]:
        lines = axes.contour(
            np.arange(across) + 0.5, np.arange(height) + 0.5, shown, levels=levels, colors="white", linewidths=1.2
        )
        lines.set_path_effects(rim)
    for number, given in enumerate(heat.marked(laid, box=box, boxes=boxes)):
        one = checked_box(given, (across, height))
        color = one.color or PALETTE[number % len(PALETTE)]
        corner, size = (one.x0, one.y0), (one.x1 - one.x0, one.y1 - one.y0)
        # Not clipped: at the edge of the picture the line and its rim would be cut in half.
        axes.add_patch(
            Rectangle(corner, *size, fill=False, edgecolor=color, linewidth=1.4, path_effects=rim, clip_on=False)
        )
        if one.label:
            axes.annotate(
                one.label, corner, xytext=(1, 2), textcoords="offset points", color=color, fontsize=8, path_effects=rim
            )


def _legend(axes: Any, *, signed: bool, cmap: Cmap | None) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize

    colors = ListedColormap(shown_colors(256, signed=signed, cmap=cmap) / 255)
    mappable = ScalarMappable(Normalize(-1 if signed else 0, 1), colors)
    bar = axes.figure.colorbar(mappable, ax=axes, orientation="horizontal", fraction=0.05, pad=0.03, aspect=30)
    bar.set_ticks([-1, 0, 1] if signed else [0, 1])
    bar.set_ticklabels(["against", "0", "for"] if signed else ["0", "maximum of the map"])
    labels = bar.ax.get_xticklabels()
    labels[0].set_ha("left")
    labels[-1].set_ha("right")
    bar.ax.tick_params(labelsize=7, length=0)
    bar.outline.set_visible(False)
