"""Pictures side by side, each with its title."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw

from ..errors import InputError
from ..files import printable
from .marks import fitted, font

GAP = 14
INK, FAINT = "#1a1a1a", "#5f6368"

Cell = Image.Image | None


def grid(
    rows: Sequence[Sequence[Cell]],
    *,
    titles: Sequence[Sequence[str]] | None = None,
    column_titles: Sequence[str] | None = None,
    row_labels: Sequence[str] | None = None,
    heading: str = "",
    caption: str = "",
    cell_height: int = 224,
    legend: Cell = None,
) -> Image.Image:
    """Set rows of pictures into one white sheet, all in cells of one height.

    `titles` has one text per picture, in rows like them; `column_titles` stands above the columns and
    `row_labels` to the left. Rows may differ in length, and None leaves a cell empty. Long texts are
    wrapped to two lines, then shortened; heading and caption take as many lines as they need. `legend` is a picture of
    what the colours mean, set below the rows.

    >>> black = Image.new("RGB", (40, 30))
    >>> sheet = grid([[black, black], [black]], column_titles=["before", "after"])
    """
    _check(rows, titles=titles, column_titles=column_titles, row_labels=row_labels, cell_height=cell_height)
    pictures = [[_fit(picture, cell_height) for picture in row] for row in rows]
    columns = _column_widths(pictures, narrowest=round(cell_height * 0.75))
    size = max(12, cell_height // 16)
    left = GAP + (_label_width(row_labels, size, cell_height) + GAP if row_labels else 0)
    width = left + sum(columns) + GAP * len(columns)
    sheet = _Sheet(width=width, left=left, columns=columns)
    sheet.paragraph(heading, size=round(size * 1.3), bold=True, color=INK)
    if column_titles:
        sheet.titles(column_titles, size=size, bold=True)
    for number, row in enumerate(pictures):
        if titles:
            sheet.titles(titles[number], size=size)
        sheet.row(row, height=cell_height, label=row_labels[number] if row_labels else "", size=size)
    if legend is not None:
        sheet.legend(legend)
    sheet.paragraph(caption, size=size, color=FAINT)
    return sheet.draw()


@dataclass
class _Text:
    x: float
    y: float
    text: str
    size: int
    bold: bool
    color: str
    anchor: str


class _Sheet:
    """What stands where, gathered from top to bottom; the height is known only at the end."""

    def __init__(self, *, width: int, left: int, columns: list[int]) -> None:
        self.width, self.left, self.columns = width, left, columns
        self.y = GAP
        self.texts: list[_Text] = []
        self.pictures: list[tuple[int, int, Image.Image]] = []

    def paragraph(self, text: str, *, size: int, color: str, bold: bool = False) -> None:
        if not text:
            return
        size = _in_one_line([text], size, bold=bold, widths=[self.width - 2 * GAP])
        for line in fitted(text, font(size, bold=bold), width=self.width - 2 * GAP, lines=8):
            self.texts.append(_Text(GAP, self.y, line, size, bold, color, "la"))
            self.y += _leading(size)
        self.y += GAP // 2

    def titles(self, titles: Sequence[str], *, size: int, bold: bool = False) -> None:
        size = _in_one_line(titles, size, bold=bold, widths=self.columns)
        letters = font(size, bold=bold)
        broken = [fitted(text, letters, width=self.columns[i]) for i, text in enumerate(titles)]
        tallest = max((len(lines) for lines in broken), default=0)
        for column, lines in enumerate(broken):
            first = self.y + (tallest - len(lines)) * _leading(size)  # all titles rest on their pictures
            for number, line in enumerate(lines):
                y = first + number * _leading(size)
                self.texts.append(_Text(self._middle(column), y, line, size, bold, INK, "ma"))
        self.y += tallest * _leading(size) + 2

    def row(self, pictures: list[Cell], *, height: int, label: str, size: int) -> None:
        if label:
            lines = fitted(label, font(size, bold=True), width=self.left - 2 * GAP, lines=4)
            first = self.y + (height - len(lines) * _leading(size)) / 2
            for number, line in enumerate(lines):
                y = first + number * _leading(size)
                self.texts.append(_Text(self.left - GAP, y, line, size, True, INK, "ra"))
        for column, picture in enumerate(pictures):
            if picture is not None:
                x = round(self._middle(column) - picture.width / 2)
                self.pictures.append((x, self.y + (height - picture.height) // 2, picture))
        self.y += height + GAP

    def legend(self, picture: Image.Image) -> None:
        if picture.width > self.width - 2 * GAP:  # it may not make the sheet wider
            height = max(1, round(picture.height * (self.width - 2 * GAP) / picture.width))
            picture = picture.resize((self.width - 2 * GAP, height), Image.Resampling.LANCZOS)
        self.pictures.append((GAP, self.y, picture))
        self.y += picture.height + GAP // 2

    def draw(self) -> Image.Image:
        sheet = Image.new("RGB", (self.width, self.y), "white")
        for x, y, picture in self.pictures:
            sheet.paste(picture, (x, y))
        draw = ImageDraw.Draw(sheet)
        for text in self.texts:
            letters = font(text.size, bold=text.bold)
            draw.text((text.x, text.y), text.text, font=letters, fill=text.color, anchor=text.anchor)
        return sheet

    def _middle(self, column: int) -> float:
        return self.left + sum(self.columns[:column]) + GAP * column + self.columns[column] / 2


def _label_width(labels: Sequence[str], size: int, height: int) -> int:
    """Half a cell, and as much more as the longest word needs, to the width of a cell: words are not broken."""
    letters = font(size, bold=True)
    words = [letters.getlength(word) for label in labels for word in label.split()]
    return max(height // 2, min(math.ceil(max(words, default=0)), height))


def _in_one_line(texts: Sequence[str], size: int, *, bold: bool, widths: Sequence[int]) -> int:
    """A little smaller, where that spares every text its second line; else the size as it is."""
    for smaller in range(size, max(11, round(size * 0.8)) - 1, -1):
        letters = font(smaller, bold=bold)
        if all(letters.getlength(printable(text)) <= width for text, width in zip(texts, widths, strict=False)):
            return smaller
    return size


def _leading(size: int) -> int:
    return round(size * 1.35)


def _fit(picture: Cell, height: int) -> Cell:
    """Scale a picture to the cell's height, a very wide one to twice that in width."""
    if picture is None:
        return None
    scale = min(height / picture.height, 2 * height / picture.width)
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    return picture.convert("RGB").resize(size, Image.Resampling.LANCZOS)


def _column_widths(pictures: list[list[Cell]], *, narrowest: int) -> list[int]:
    """Each column as wide as its widest picture, and never too narrow for a title."""
    widths = [narrowest] * max(len(row) for row in pictures)
    for row in pictures:
        for column, picture in enumerate(row):
            if picture is not None:
                widths[column] = max(widths[column], picture.width)
    return widths


def _check(
    rows: Sequence[Sequence[Cell]],
    *,
    titles: Sequence[Sequence[str]] | None,
    column_titles: Sequence[str] | None,
    row_labels: Sequence[str] | None,
    cell_height: int,
) -> None:
    columns = max((len(row) for row in rows), default=0)
    if columns == 0:
        raise InputError("There are no pictures to set side by side; give at least one row with one picture.")
    if cell_height < 16:
        raise InputError(f"Cells {cell_height} pixels high leave no room; choose 16 or more.")
    if titles is not None and [len(row) for row in titles] != [len(row) for row in rows]:
        raise InputError("The titles do not match the pictures; give one text per picture, in rows like them.")
    if column_titles is not None and len(column_titles) != columns:
        raise InputError(f"{columns} columns cannot have {len(column_titles)} titles; give one each.")
    if row_labels is not None and len(row_labels) != len(rows):
        raise InputError(f"{len(rows)} rows cannot have {len(row_labels)} labels; give one each.")
