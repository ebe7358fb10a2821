"""What every report is made of: one HTML file that needs nothing else, tables and figures in it."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from ..evaluation.intervals import Interval
from ..files import write_whole

_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; max-width: 1240px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; } p.note, small { color: #5f6368; }
.wide { overflow-x: auto; } table { border-collapse: collapse; margin: .6rem 0; }
th, td { padding: .35rem .8rem .35rem 0; text-align: right; border-bottom: 1px solid #e8eaed; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } td.best { font-weight: 650; }
figure { display: inline-block; margin: 0 1rem 1rem 0; vertical-align: top; } svg { max-width: 100%; height: auto; }
.tile { display: grid; gap: .5rem; margin: .8rem 0 1.4rem; }
.tile img { width: 100%; display: block; border-radius: 4px; }
.tile figcaption { font-size: 13px; } .tile figure { margin: 0; } .name { font-weight: 600; overflow-wrap: anywhere; }
.green { color: #00a344; } .blue { color: #2979ff; }
"""


def write_page(path: Path, parts: Iterable[str], *, title: str, settings: Mapping[str, str]) -> Path:
    """Write a page: title, settings, then the parts one after another."""
    head = [
        f"<h1>{escape(title)}</h1>",
        f"<p class=note>{escape(' · '.join(f'{key} {value}' for key, value in settings.items()))}</p>",
    ]
    page = (
        f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{escape(title)}</title><style>{_STYLE}</style><body>{''.join([*head, *parts])}</body></html>\n"
    )
    with write_whole(path) as temporary:
        temporary.write_text(page, encoding="utf-8", errors="backslashreplace")  # names of files may be no text
    return path


def shown(score: Interval) -> str:
    """A score with its interval, as a person reads it."""
    return f"{score.value:.1f} ({score.low:.1f} to {score.high:.1f})"


def unread(bad: Mapping[str, str]) -> str:
    """Name the files that could not be read."""
    if not bad:
        return ""
    items = "".join(f"<li>{escape(name)}: {escape(reason)}</li>" for name, reason in bad.items())
    return f"<details><summary>{len(bad)} files could not be read</summary><ul>{items}</ul></details>"


def table(head: Sequence[str], rows: Iterable[str]) -> str:
    """A table of ready rows under escaped heads."""
    cells = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    return f"<div class=wide><table><tr>{cells}</tr>{''.join(rows)}</table></div>"


def svg(made: Any) -> str:
    """A figure as a part of the page."""
    stream = io.StringIO()
    made.savefig(stream, format="svg", metadata={"Date": None})
    text = stream.getvalue()
    return f"<figure>{text[text.index('<svg') :]}</figure>"
