"""What a run leaves for people and machines: log.json with the curves, and a picture of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..files import write_whole

LOG, PICTURE = "log.json", "curves.png"
_LOSS, _SCORE = "#0072b2", "#d55e00"  # told apart by people who see few colours


def write_curves(folder: Path, document: dict[str, Any]) -> None:
    """Write log.json, which has `losses` (one an iteration) and `curve` (one line a measurement), and curves.png."""
    with write_whole(folder / LOG) as temporary:
        temporary.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    _draw(document["losses"], document["curve"], folder / PICTURE)


def _draw(losses: list[float], curve: list[dict[str, Any]], path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    left = figure.subplots()
    left.plot(range(1, len(losses) + 1), losses, color=_LOSS, alpha=0.25, linewidth=0.8)
    smooth = running_mean(losses)
    left.plot(range(1, len(losses) + 1), smooth, color=_LOSS, linewidth=1.8)
    left.set_xlabel("iteration")
    left.set_ylabel("loss", color=_LOSS)
    left.spines["top"].set_visible(False)
    measured = [line for line in curve if line.get("recall_at_1") is not None]
    if measured:
        right = left.twinx()
        scores = [100 * line["recall_at_1"] for line in measured]
        right.plot([line["iteration"] for line in measured], scores, color=_SCORE, marker="o", markersize=3)
        right.set_ylabel("R@1 on held-out pictures, %", color=_SCORE)
        right.spines["top"].set_visible(False)
    with write_whole(path) as temporary:
        figure.savefig(temporary, dpi=130, facecolor="white")


def running_mean(values: list[float], width: int = 25) -> list[float]:
    """The mean of each value and those before it, `width` at most.

    >>> running_mean([1, 3, 5], width=2)
    [1.0, 2.0, 4.0]
    """
    return [sum(values[max(0, end - width) : end]) / min(end, width) for end in range(1, len(values) + 1)]
