"""What a run leaves for people and machines: log.json with the curves, and a picture of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files import write_json
from ..rendering.figures import COLORS, figure, save

if TYPE_CHECKING:
    from .state import LogLine

LOG, PICTURE = "log.json", "curves.png"


@dataclass(frozen=True)
class Score:
    """The number by which the networks of a run are compared; the larger the better.

    key     its name in the log, and in what a job measures
    short   its name where there is little room; the key where nothing else is said
    title   its name at an axis, where it is shown as `scale` times the number

    >>> Score("accuracy").title
    'accuracy'
    """

    key: str
    short: str = ""
    title: str = ""
    scale: float = 1.0

    def __post_init__(self) -> None:
        for name in ("short", "title"):
            object.__setattr__(self, name, getattr(self, name) or self.key)


def write_log(folder: Path, document: Mapping[str, Any]) -> None:
    """Write log.json, whole or not at all."""
    write_json(folder / LOG, document)


def draw_curves(
    folder: Path, losses: Sequence[float], lines: Sequence[LogLine], score: Score, *, saved: int | None = None
) -> None:
    """Write curves.png: the loss of each iteration and its running mean, and the score where it was measured.

    saved   the iteration of the network that is saved, which is marked
    """
    loss_color, score_color = COLORS[:2]
    made = figure(7, 3.6)
    left = made.subplots()
    left.plot(range(1, len(losses) + 1), losses, color=loss_color, alpha=0.25, linewidth=0.8)
    left.plot(range(1, len(losses) + 1), running_mean(losses), color=loss_color, linewidth=1.8)
    left.set_xlabel("iteration")
    left.set_ylabel("loss", color=loss_color)
    left.spines["top"].set_visible(False)
    measured = [(line.iteration, value) for line in lines if (value := line.numbers.get(score.key)) is not None]
    if measured:
        right = left.twinx()
        values = [score.scale * value for _, value in measured]
        right.plot([iteration for iteration, _ in measured], values, color=score_color, marker="o", markersize=3)
        right.set_ylabel(score.title, color=score_color)
        right.spines["top"].set_visible(False)
        if saved is not None and (shown := dict(measured).get(saved)) is not None:
            place = (saved, score.scale * shown)
            right.plot(*place, marker="o", markersize=8, markerfacecolor="none", color=score_color)
            right.annotate("saved", place, xytext=(6, -12), textcoords="offset points", color=score_color, fontsize=8)
    save(made, folder / PICTURE)


def running_mean(values: Sequence[float], width: int = 25) -> list[float]:
    """The mean of each value and those before it, `width` at most.

    >>> running_mean([1, 3, 5], width=2)
    [1.0, 2.0, 4.0]
    """
    return [sum(values[max(0, end - width) : end]) / min(end, width) for end in range(1, len(values) + 1)]
