"""The timing figure: bars on a logarithmic scale, ours and the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..evaluation.timing import TITLES, Timing
from ..rendering.figures import COLORS, FAINT, INK, figure, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_COLORS = dict(zip(TITLES, ("#9aa0a6", COLORS[2], COLORS[0], COLORS[4], COLORS[1]), strict=True))


def plot(timings: Sequence[Timing], *, machine: str = "") -> Figure:
    """Seconds a frame, one group of bars a network; hatched bars are extrapolated from a few steps."""
    paper = [timing for timing in timings if timing.paper]
    made = figure(max(9.5, 3.2 + 2.3 * len(timings) + 1.3 * len(paper)), 5.8)
    widths = [max(1, len(timings)), 0.62 * max(1, len(paper))] if paper else [1]
    panels = made.subplots(1, len(widths), width_ratios=widths, sharey=True, squeeze=False)[0]
    _bars(panels[0], [(_label(timing), timing.seconds, timing.extrapolated) for timing in timings])
    panels[0].set_title("on this machine", loc="left")
    panels[0].set_ylabel("seconds a frame")
    if paper:
        _bars(panels[1], [(timing.network.rpartition(":")[2], timing.paper, ()) for timing in paper])
        panels[1].set_title("in the paper", loc="left")
        panels[1].tick_params(labelleft=True)
    low = min(value for timing in timings for value in (*timing.seconds.values(), *timing.paper.values()))
    high = max(value for timing in timings for value in (*timing.seconds.values(), *timing.paper.values()))
    panels[0].set_ylim(low / 2, high * 3)
    lines, labels = panels[0].get_legend_handles_labels()
    made.legend(
        lines,
        labels,
        loc="outside lower center",
        ncols=len(lines),
        frameon=False,
        title=f"hatched: extrapolated from a few steps  ·  {machine}"
        + ("; the paper does not name its machine" if paper else ""),
        title_fontproperties={"size": 9},
    )
    made.suptitle("How long one map takes", fontweight="bold", x=0.01, ha="left")
    return made


def _bars(axes: Any, groups: Sequence[tuple[str, dict[str, float], Sequence[str]]]) -> None:
    shown = [name for name in TITLES if any(name in seconds for _, seconds, _ in groups)]
    width = 0.86 / len(shown)
    for place, name in enumerate(shown):
        having = [(i, group) for i, group in enumerate(groups) if name in group[1]]
        drawn = axes.bar(
            [i + (place - (len(shown) - 1) / 2) * width for i, _ in having],
            [seconds[name] for _, (_, seconds, _) in having],
            width=0.92 * width,
            color=_COLORS[name],
            label=TITLES[name],
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
