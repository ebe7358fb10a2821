"""The page that lists explained photographs: what the network saw, how the map was found, and the picture itself."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from urllib.parse import quote

from .page import unread, write_page


@dataclass(frozen=True)
class Listed:
    """One photograph on the page.

    predicted   what the network took it for; empty where it names no classes
    about       the classes that its maps are about
    outcomes    how its maps were found
    pictures    files in the folder of the page
    """

    photograph: str
    predicted: str
    about: Sequence[str]
    outcomes: Sequence[str]
    pictures: Sequence[Path]


def write_list(
    path: Path, listed: Sequence[Listed], failed: Mapping[str, str], *, title: str, settings: Mapping[str, str]
) -> Path:
    """Write the page beside the pictures: it links to them, and holds none of them itself."""
    rows = "".join(_row(one) for one in listed)
    head = "".join(f"<th>{word}</th>" for word in ("photograph", "predicted", "maps", "outcome", "picture"))
    table = f"<div class=wide><table class=list><tr>{head}</tr>{rows}</table></div>"
    return write_page(path, [_STYLE, table, unread(failed)], title=title, settings=settings)


_STYLE = """<style>
.list th, .list td { text-align: left; white-space: normal; overflow-wrap: anywhere; }
.list img { height: 120px; max-width: 240px; object-fit: contain; }
</style>"""


def _row(one: Listed) -> str:
    pictures = " ".join(_linked(path) for path in one.pictures)
    cells = (one.photograph, one.predicted, ", ".join(one.about), ", ".join(one.outcomes))
    return f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}<td>{pictures}</td></tr>"


def _linked(path: Path) -> str:
    # By its bytes: a name need not be UTF-8. What begins with a letter and a colon would be taken for a scheme.
    link = f"./{quote(os.fsencode(path.name))}"
    return f"<a href='{link}'><img loading=lazy alt='{escape(path.name, quote=True)}' src='{link}'></a>"
