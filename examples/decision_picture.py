"""Draw the picture of `docs/choose.md`: from what the network gives to the question, the method and the layer.

python examples/decision_picture.py docs/pictures/choose.png
"""

from __future__ import annotations

import sys
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

import l2caf

WIDTH, DPI = 6.6, 200
INK, LINE = "#1a1a1a", "#8a8f98"
QUESTION, ANSWER = "#eef3fb", "#e9f6ec"
# From top to bottom: a question, and each of its answers with what to take.
TREE = (
    (
        "1  What does the network give?",
        (
            ("scores of classes,\nno class to name", "Prediction()", "what kept\nthe prediction"),
            ("scores of classes,\na class to name", "ClassSpecific(c)", "what speaks for it,\nand against it"),
            ("an embedding", "ClassOblivious()\nSimilarity(other)", "what keeps it;\nwhy two match"),
            ("an image, a volume", "Region(box)", "what shapes\nthis part of it"),
        ),
    ),
    (
        "2  Which method, which filter?",
        (
            ("in general", "AttentionFilter\nthe default", "the best filter;\nexact where it can be"),
            ("to compare, or as\nin an older paper", "GradCAM, CAM", 'method="gradcam"'),
            ("few, separate places", "UnitL1()", "filter=UnitL1()"),
            ("exactly one place", "Gaussian()", "filter=Gaussian()"),
        ),
    ),
    (
        "3  Which layer?",
        (
            ("in general", "the default", "the last one whose\npositions are verified"),
            ("finer maps", "an earlier one", 'layer="layer3", or\na larger input'),
            ("several", "a list of names", "from one run"),
            ("a clip", "the default", "a map per frame, or\none over all frames"),
        ),
    ),
)  # fmt: skip


def named(text: str) -> list[str]:
    """The names of ours in a cell, all of which exist."""
    words = [word.partition("(")[0] for word in text.replace(",", " ").split()]
    found = [word for word in words if word[:1].isupper()]
    assert all(word in l2caf.__all__ for word in found), found
    return found


def draw() -> Figure:
    rows = len(TREE)
    figure = Figure((WIDTH, 2.05 * rows), dpi=DPI)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 4), ylim=(-rows, 0))
    axes.axis("off")
    for row, (question, answers) in enumerate(TREE):
        top = -row
        axes.text(0.06, top - 0.09, question, fontsize=11, weight="bold", color=INK, va="center")
        for column, (when, take, why) in enumerate(answers):
            left = column + 0.05
            box(axes, left, top - 0.46, 0.9, 0.26, QUESTION)
            box(axes, left, top - 0.86, 0.9, 0.34, ANSWER)
            middle = left + 0.45
            axes.text(middle, top - 0.33, when, fontsize=7.5, color=INK, ha="center", va="center")
            axes.annotate(
                "",
                (middle, top - 0.525),
                (middle, top - 0.455),
                arrowprops={"arrowstyle": "-|>", "color": LINE, "lw": 1, "shrinkA": 0, "shrinkB": 0},
            )
            named(take)
            axes.text(middle, top - 0.625, take, fontsize=8, weight="bold", color=INK, ha="center", va="center")
            axes.text(middle, top - 0.77, why, fontsize=7, color="#444444", ha="center", va="center")
        if row < rows - 1:
            axes.plot([0.05, 3.95], [top - 0.95] * 2, color=LINE, lw=0.6)
    return figure


def box(axes, left: float, bottom: float, width: float, height: float, color: str) -> None:
    style = "round,pad=0,rounding_size=0.03"
    axes.add_patch(FancyBboxPatch((left, bottom), width, height, boxstyle=style, fc=color, ec=LINE, lw=0.7))


if __name__ == "__main__":
    draw().savefig(Path(sys.argv[1]), dpi=DPI, facecolor="white", metadata={"Software": None})
