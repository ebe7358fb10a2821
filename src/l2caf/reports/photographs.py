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
    cards = f"<div class=cards>{''.join(_card(one) for one in listed)}</div>"
    return write_page(path, [cards, unread(failed)], title=title, settings=settings)


def _card(one: Listed) -> str:
    words = {
        "photograph": one.photograph,
        "predicted": one.predicted,
        "maps": ", ".join(one.about),
        "outcome": ", ".join(one.outcomes),
    }
    lines = "".join(f"<dt>{name}</dt><dd>{escape(value)}</dd>" for name, value in words.items() if value)
    return f"<div class=card>{''.join(_linked(path) for path in one.pictures)}<dl>{lines}</dl></div>"


def _linked(path: Path) -> str:
    # By its bytes: a name need not be UTF-8. What begins with a letter and a colon would be taken for a scheme.
    link = f"./{quote(os.fsencode(path.name))}"
    return f"<a href='{link}'><img loading=lazy alt='{escape(path.name, quote=True)}' src='{link}'></a>"
