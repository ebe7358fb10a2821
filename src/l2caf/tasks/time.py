"""Time one map on this machine: a document, and bars on a logarithmic scale, ours and the paper's."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..files import write_json
from ..images import open_image
from ..progress import Progress, part, silent
from ..rendering.figures import COLORS, FAINT, INK, figure, framed, plain, save
from ..runs.lock import alone_in
from .samples import sample_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL import Image

    from ..evaluation.timing import Timing

_COLORS = ("#9aa0a6", COLORS[2], COLORS[0], COLORS[5], COLORS[4], COLORS[1])  # in the order of what is timed


@dataclass(frozen=True)
class TimeRequest:
    """Which networks are timed; those of the paper's figure, and the embedded one, where none is named.

    image   a photograph; None for an installed one
    rounds  the median over them counts
    """

    networks: Sequence[str]
    out: Path
    image: Path | None = None
    rounds: int = 5

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise InputError(f"{self.rounds} rounds measure nothing: give 1 or more.", field="rounds")


@dataclass(frozen=True)
class TimeResult:
    """Seconds a frame on every network, and the files that were written."""

    machine: str
    timings: tuple[Timing, ...]
    written: tuple[Path, ...]

    def as_dict(self) -> dict[str, Any]:
        return {**self._measured(), "written": [str(path) for path in self.written]}

    def _measured(self) -> dict[str, Any]:
        return {"machine": self.machine, "networks": [timing.as_dict() for timing in self.timings]}

    def write(self) -> None:
        """Write the numbers and the figure."""
        numbers, bars = self.written
        write_json(numbers, self._measured())
        save(plot(self.timings, machine=self.machine), bars)


def time_maps(request: TimeRequest, *, progress: Progress = silent) -> TimeResult:
    """Time every way to a map on every network; a network's trained weights are taken where they can be had."""
    photograph = open_image(request.image or sample_path("cat"))
    with alone_in(request.out):
        return _timed(request, photograph, progress)


def _timed(request: TimeRequest, photograph: Image.Image, progress: Progress) -> TimeResult:
    progress("loading", 0, None)

    from ..evaluation.timing import EXTRA, NETWORKS, time_network
    from ..networks.untrained import trained_or_random

    names = list(dict.fromkeys(request.networks or NETWORKS))
    each = request.rounds + EXTRA
    timings = []
    for number, name in enumerate(names):
        model = trained_or_random(name, photograph)
        inputs = model.batch([model.prepare(photograph).input])
        so_far = part(progress, number * each, len(names) * each)
        timings.append(time_network(model, inputs, rounds=request.rounds, progress=so_far))
    files = (request.out / "time.json", request.out / "time.png")
    result = TimeResult(_machine(), tuple(timings), files)
    result.write()
    return result


def _machine() -> str:
    import torch

    return f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}"


def plot(timings: Sequence[Timing], *, machine: str = "") -> Figure:
    """Seconds a frame, one group of bars a network; hatched bars are extrapolated from a few steps."""
    paper = [timing for timing in timings if timing.paper]
    made = figure(max(9.5, 3.2 + 2.3 * len(timings) + 1.3 * len(paper)), 5.8)
    widths = [max(1, len(timings)), 0.62 * max(1, len(paper))] if paper else [1]
    panels = made.subplots(1, len(widths), width_ratios=widths, sharey=True, squeeze=False)[0]
    _bars(panels[0], [(_label(timing), timing.seconds, timing.extrapolated) for timing in timings])
    panels[0].set_title("on this machine", loc="left")
    panels[0].set_ylabel("seconds per frame")
    if paper:
        _bars(panels[1], [(timing.network.rpartition(":")[2], timing.paper, ()) for timing in paper])
        panels[1].set_title("in the paper", loc="left")
        panels[1].tick_params(labelleft=True)
    low = min(value for timing in timings for value in (*timing.seconds.values(), *timing.paper.values()))
    high = max(value for timing in timings for value in (*timing.seconds.values(), *timing.paper.values()))
    panels[0].set_ylim(low / 2, high * 3)
    unnamed = "; the paper does not name its machine" if paper else ""
    note = f"hatched: extrapolated from a few steps  ·  {machine}{unnamed}"
    framed(made, panels[0], title="How long one map takes", note=note)
    return made


def _bars(axes: Any, groups: Sequence[tuple[str, dict[str, float], Sequence[str]]]) -> None:
    from ..evaluation.timing import TIMED

    colors = dict(zip(TIMED, _COLORS, strict=True))
    shown = [name for name in TIMED if any(name in seconds for _, seconds, _ in groups)]
    width = 0.86 / len(shown)
    for place, name in enumerate(shown):
        having = [(i, group) for i, group in enumerate(groups) if name in group[1]]
        drawn = axes.bar(
            [i + (place - (len(shown) - 1) / 2) * width for i, _ in having],
            [seconds[name] for _, (_, seconds, _) in having],
            width=0.92 * width,
            color=colors[name],
            label=TIMED[name],
        )
        for bar, (_, (_, seconds, extrapolated)) in zip(drawn, having, strict=True):
            if name in extrapolated:
                bar.set(hatch="///", edgecolor="white", linewidth=0)
            middle = bar.get_x() + bar.get_width() / 2
            axes.annotate(
                short(seconds[name]),
                (middle, seconds[name]),
                xytext=(0, 3),
                textcoords="offset points",
                ha="center",
                fontsize=7.5,
                color=INK,
            )
    axes.set_yscale("log")
    axes.set_xticks(range(len(groups)), [label for label, _, _ in groups])
    axes.set_xlim(-0.6, len(groups) - 0.4)
    plain(axes)
    axes.tick_params(axis="x", length=0)
    axes.yaxis.label.set_color(FAINT)


def _label(timing: Timing) -> str:
    name = timing.network.rpartition(":")[2]
    return f"{name}\n({timing.weights} weights, {timing.steps} steps)"


def short(seconds: float) -> str:
    """Seconds as people write them.

    >>> short(0.0042), short(0.31), short(2.53), short(41.2), short(431)
    ('4.2 ms', '310 ms', '2.5 s', '41 s', '7.2 min')
    """
    if seconds < 0.9995:
        return f"{1000 * seconds:.2g} ms" if seconds < 0.00995 else f"{1000 * seconds:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min"
