"""Maps as a figure for a paper: an even grid of pictures with titles, one legend, and letters that stay letters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

from PIL import Image

from ..errors import InputError
from ..files import printable, write_whole
from .colors import Cmap, Floats
from .drawn import Cell, Heat
from .figures import FAINT, INK
from .legend import shown_colors
from .overlay import as_rgb
from .settings import at_width
from .style import FAINT_SHARE, Style
from .vector import plot

SUFFIXES = frozenset({".pdf", ".svg"})
DPI = 200  # pixels of the photograph per inch of the figure, where nobody says
# In inches.
MARGIN, GAP = 0.06, 0.1
NARROWEST, TALLEST = 1.0, 2.5  # width of a picture, and height of one among those of other samples
POINTS = 9  # of the letters
LINE = POINTS * 1.25 / 72
STRIP = 0.1
# Letters that a reader of the figure can select and an editor can change; the same names for the same parts.
_LETTERS: dict[Any, Any] = {"pdf.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": "l2caf"}


def save_figure(
    rows: Sequence[Sequence[Cell]],
    path: Path,
    *,
    dpi: float = DPI,
    legend: bool = False,
    title: str = "",
    caption: str = "",
    ending: str | None = None,
    **options: Any,
) -> Path:
    """Write maps, row by row, whole or not at all; the photographs have `dpi` pixels per inch.

    `ending` is the kind of file, .pdf or .svg, where the path does not say it.
    """
    import matplotlib

    if isinstance(dpi, bool) or not isinstance(dpi, int | float) or not 10 <= dpi <= 4800:
        raise InputError(f"The dpi is {dpi!r}; give pixels per inch, such as 300.", field="dpi")
    made = _drawn(rows, dpi, legend, str(title), caption, options)
    with write_whole(path) as temporary, matplotlib.rc_context(_LETTERS):
        # Without the hour the same figure is the same file.
        ending = ending or path.suffix.lower()
        date = {".pdf": "CreationDate", ".svg": "Date"}[ending]
        made.savefig(temporary, format=ending[1:], dpi=dpi, facecolor="white", metadata={date: None})
    return path


def cell_of(
    style: Style,
    title: str,
    view: Image.Image,
    heat: Floats,
    *,
    grid: Floats | None = None,
    faint: bool = False,
) -> Cell:
    """What `style.draw` draws, as a cell of a figure."""
    own = {
        "cmap": style.cmap,
        "alpha": style.alpha * (FAINT_SHARE if faint else 1),
        "contours": style.contours,
        "box": style.threshold if style.box else None,
    }
    return Cell(title, Heat(heat if grid is None else grid, heat, style.signed), view, own)


def _drawn(
    rows: Sequence[Sequence[Cell]], dpi: float, legend: bool, title: str, caption: str, options: dict[str, Any]
) -> Any:
    """The figure: every cell has one height and one width, and all gaps are the same."""
    from matplotlib.figure import Figure

    sizes = [[_size(cell, options) for cell in row] for row in rows]
    several = len(rows) > 1
    height = max(tall / dpi for row in sizes for _, tall in row)
    height = max(0.5, min(height, TALLEST) if several else height)
    width = height * max(wide / tall for row in sizes for wide, tall in row)
    if width < NARROWEST:  # titles have to fit
        width, height = NARROWEST, height * NARROWEST / width
    across = max(len(row) for row in rows)
    whole = across * width + (across - 1) * GAP
    heads = [[_lines(cell.title, width) for cell in row] for row in rows]
    above = [max(len(lines) for lines in row) * LINE for row in heads]
    heading, foot = _lines(title, whole, most=3), _lines(caption, whole, most=4)
    strip = LINE + STRIP if legend else 0.0
    total = sum(above) + len(rows) * (height + GAP) + (len(heading) + len(foot)) * LINE + strip
    figure = Figure(figsize=(whole + 2 * MARGIN, total + 2 * MARGIN - GAP * (not legend and not foot)))
    tall = figure.get_figheight()

    def at(left: float, top: float, wide: float, high: float) -> tuple[float, float, float, float]:
        return left / figure.get_figwidth(), 1 - (top + high) / tall, wide / figure.get_figwidth(), high / tall

    def write(lines: Sequence[str], left: float, top: float, **look: Any) -> float:
        for line in lines:
            x, y, _, _ = at(left, top, 0, LINE)
            figure.text(x, y + LINE * 0.25 / tall, line, fontsize=POINTS, **{"color": INK, **look})
            top += LINE
        return top

    top = write(heading, MARGIN, MARGIN, weight="bold")
    for number, row in enumerate(rows):
        for place, cell in enumerate(row):
            wide = height * sizes[number][place][0] / sizes[number][place][1]
            left = MARGIN + place * (width + GAP)
            over = top + above[number] - len(heads[number][place]) * LINE
            write(heads[number][place], left + width / 2, over, ha="center")
            axes = figure.add_axes(at(left + (width - wide) / 2, top + above[number], wide, height))
            if cell.heat is None:
                axes.imshow(as_rgb(cell.picture), interpolation="antialiased")
                axes.set_axis_off()
            else:
                plot(cell.heat, cell.picture, axes, **cell.settings(options))
        top += above[number] + height + GAP
    if legend:
        signed = any(cell.heat is not None and cell.heat.signed for row in rows for cell in row)
        _legend(figure, at(MARGIN, top, min(whole, 2.4), STRIP), signed=signed, cmap=options.get("cmap"))
        top += strip
    write(foot, MARGIN, top, color=FAINT)
    return figure


def _legend(figure: Any, place: tuple[float, float, float, float], *, signed: bool, cmap: Cmap | None) -> None:
    axes = figure.add_axes(place)
    axes.imshow(shown_colors(256, signed=signed, cmap=cmap)[None], aspect="auto", extent=(0, 1, 0, 1))
    axes.set_axis_off()
    first, last = ("against", "for") if signed else ("0", "maximum of the map")
    for x, word, side in ((0.0, first, "left"), (1.0, last, "right")):
        axes.text(x, -0.25, word, ha=side, va="top", fontsize=POINTS - 2, color=FAINT, transform=axes.transAxes)


def _lines(text: str, inches: float, *, most: int = 2) -> list[str]:
    """A text in lines that fit a width: a letter of DejaVu Sans is about 0.6 of its size wide."""
    if not text:
        return []
    lines = wrap(printable(text).replace("$", r"\$"), max(8, int(inches * 72 / (0.6 * POINTS))))
    return [*lines[: most - 1], lines[most - 1] + " …"] if len(lines) > most else lines


def _size(cell: Cell, options: dict[str, Any]) -> tuple[int, int]:
    """Width and height of a cell's picture, in pixels."""
    wide = options.get("width")
    if cell.heat is None or (cell.heat.fine.ndim == 2 and cell.picture is not None):
        height, width = as_rgb(at_width(cell.picture, wide)).shape[:2]
        return width, height
    if cell.picture is None:
        return cell.heat.fine.shape[-1], cell.heat.fine.shape[0]
    planes = {key: options[key] for key in ("slice", "spacing") if key in options}
    drawn: Image.Image = cell.heat.on(cell.picture, **planes)
    return drawn.size
