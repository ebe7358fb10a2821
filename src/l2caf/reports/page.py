"""What every report is made of: one HTML file that needs nothing else, tables and figures in it."""

from __future__ import annotations

import io
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from .. import __version__
from ..evaluation.intervals import Interval
from ..files import write_whole

# On a narrow screen a table becomes a list: each row a block, each number beside the head of its column.
_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; max-width: 1240px; margin: 2rem auto; padding: 0 1rem; }
h1, h2, p, li, summary { overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.3; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
p.note, small, footer { color: #5f6368; }
footer { border-top: 1px solid #e8eaed; margin-top: 3rem; padding-top: .6rem; font-size: 13px; }
footer code { overflow-wrap: anywhere; }
.wide { overflow-x: auto; } table { border-collapse: collapse; margin: .6rem 0; }
th, td { padding: .35rem .8rem .35rem 0; text-align: right; border-bottom: 1px solid #e8eaed; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } td.best { font-weight: 650; }
figure { margin: 0 0 1rem; } svg { max-width: 100%; height: auto; }
.tile { display: grid; gap: .5rem; margin: .4rem 0 1.4rem; }
.tile { grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); }
.tile figure { margin: 0; max-width: 260px; } .tile figcaption { font-size: 13px; overflow-wrap: anywhere; }
.tile img { width: 100%; display: block; border-radius: 4px; }
.strip { grid-template-columns: repeat(auto-fill, minmax(100px, 160px)); }
.name { font-weight: 600; overflow-wrap: anywhere; } .wrong { color: #d93025; }
.truth, .found { padding: 0 .35em; border-radius: 3px; background: #3c4043; font-weight: 600; }
.truth { color: #ffffff; } .found { color: #ff8ae6; }
.cards { display: grid; gap: 1.2rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 380px), 1fr)); }
.card { border: 1px solid #e8eaed; border-radius: 6px; padding: .7rem; overflow-wrap: anywhere; }
.card img { display: block; width: 100%; height: auto; margin-bottom: .4rem; }
.card dl { margin: 0; display: grid; grid-template-columns: max-content 1fr; gap: .1rem .7rem; font-size: 14px; }
.card dt { color: #5f6368; } .card dd { margin: 0; }
@media (max-width: 700px) {
  body { margin: 1rem auto; } h1 { font-size: 1.35rem; }
  .wide { overflow-x: visible; } table, tbody, tr, td { display: block; } tr.head { display: none; }
  td { white-space: normal; border: 0; padding: .1rem 0; display: flex; gap: 1rem; justify-content: space-between; }
  td::before { content: attr(data-head); color: #5f6368; font-weight: 400; text-align: left; }
  td:first-child { font-weight: 600; } td:first-child::before { content: none; }
  td:empty { display: none; } tr { border-bottom: 1px solid #e8eaed; padding: .5rem 0; }
}
"""


class Cell(NamedTuple):
    """What stands in a cell, not yet escaped, and whether it is the best of its column."""

    text: str
    best: bool = False


def write_page(path: Path, parts: Iterable[str], *, title: str, settings: Mapping[str, str]) -> Path:
    """Write a page: title, settings, then the parts one after another, and below what made it."""
    head = [
        f"<h1>{escape(title)}</h1>",
        f"<p class=note>{escape(' · '.join(f'{key} {value}' for key, value in settings.items()))}</p>",
    ]
    page = (
        f"<!doctype html><html lang=en><meta charset=utf-8>"
        f"<meta name=viewport content='width=device-width, initial-scale=1'>"
        f"<title>{escape(title)}</title><style>{_STYLE}</style><body>{''.join([*head, *parts, _made_by()])}"
        "</body></html>\n"
    )
    with write_whole(path) as temporary:
        temporary.write_text(page, encoding="utf-8", errors="backslashreplace")  # names of files may be no text
    return path


def _made_by() -> str:
    """Version, time, and the command where there was one."""
    made = f"l2caf {__version__}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    program = Path(sys.argv[0] if sys.argv else "")
    by_command = program.stem == "l2caf" or (program.name == "__main__.py" and program.parent.name == "l2caf")
    command = f"<br><code>{escape(shlex.join(['l2caf', *sys.argv[1:]]))}</code>" if by_command else ""
    return f"<footer>{escape(made)}{command}</footer>"


def shown(score: Interval) -> str:
    """A score with its interval, as a person reads it."""
    return f"{score.value:.1f} ({score.low:.1f} to {score.high:.1f})"


def unread(bad: Mapping[str, str]) -> str:
    """Name the files that could not be read."""
    if not bad:
        return ""
    items = "".join(f"<li>{escape(name)}: {escape(reason)}</li>" for name, reason in bad.items())
    return f"<details><summary>{len(bad)} files could not be read</summary><ul>{items}</ul></details>"


def table(head: Sequence[str], rows: Iterable[Sequence[str | Cell]]) -> str:
    """A table, which is a list of blocks where there is no room for it."""
    heads = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    lines = "".join(f"<tr>{''.join(map(_cell, head, row))}</tr>" for row in rows)
    return f"<div class=wide><table><tr class=head>{heads}</tr>{lines}</table></div>"


def _cell(head: str, given: str | Cell) -> str:
    cell = given if isinstance(given, Cell) else Cell(given)
    return f"<td data-head='{escape(head, quote=True)}'{' class=best' if cell.best else ''}>{escape(cell.text)}</td>"


def svg(made: Any) -> str:
    """A figure as a part of the page."""
    stream = io.StringIO()
    made.savefig(stream, format="svg", metadata={"Date": None})
    text = stream.getvalue()
    return f"<figure>{text[text.index('<svg') :]}</figure>"
