"""Rows of results: a table where the window is wide enough for its longest words, else one record below the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..files import printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult

GAP = 3  # columns between two of a table, edges included


@dataclass(frozen=True)
class Rows:
    """Cells under their heads; `right` are set flush right."""

    heads: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    right: frozenset[str] = frozenset()

    @classmethod
    def of(cls, heads: Iterable[str], cells: Iterable[Iterable[str]], right: Iterable[str] = ()) -> Rows:
        made = tuple(tuple("\n".join(map(printable, cell.split("\n"))) for cell in row) for row in cells)
        return cls(tuple(heads), made, frozenset(right))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        least = [_longest(column) for column in zip(self.heads, *self.cells, strict=True)]
        fits = sum(least) + GAP * len(least) <= options.max_width
        yield from self._table(least) if fits else self._records()

    def _table(self, least: Sequence[int]) -> RenderResult:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for head, width in zip(self.heads, least, strict=True):
            side: JustifyMethod = "right" if head in self.right else "left"
            made.add_column(head, overflow="fold", justify=side, min_width=width)
        for row in self.cells:
            made.add_row(*map(Text, row))
        yield made

    def _records(self) -> RenderResult:
        from rich.table import Table
        from rich.text import Text

        for first, *rest in self.cells:
            yield Text("")
            title = f"{self.heads[0]} {first}" if first.isdigit() else first
            yield Text(title, style="bold", overflow="fold")
            record = Table.grid(padding=(0, 2))
            record.add_column(no_wrap=True)
            record.add_column(overflow="fold")
            for head, cell in zip(self.heads[1:], rest, strict=True):
                if cell:
                    record.add_row(Text(f"  {head}", style="dim"), Text(cell))
            yield record
        yield Text("")


def _longest(texts: Sequence[str]) -> int:
    from rich.cells import cell_len

    return max((cell_len(word) for text in texts for word in text.split()), default=0)
