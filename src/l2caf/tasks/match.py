"""Matches as one figure: the query above, its neighbours below, and what speaks for each pair."""

from __future__ import annotations

import re

from PIL import Image

from ..rendering.grid import Cell, grid
from ..rendering.overlay import overlay
from ..rendering.style import Style, note
from ..retrieval.match import Matches, Pair, Seen

_NUMBER = re.compile(r"^\d+[._ -]+")


def sheet(matches: Matches, style: Style, *, cell_height: int = 288) -> Image.Image:
    """Draw all pairs; the query's own picture and the contrast stand to the left."""
    above: list[Cell] = [matches.view]
    below: list[Cell] = [_contrast(matches)]
    above += [_drawn(pair.of_query, matches.view, style) for pair in matches.pairs]
    below += [_drawn(pair.of_neighbour, pair.view, style) for pair in matches.pairs]
    titles = [
        ["query", *(f"in the query, for #{pair.rank}" for pair in matches.pairs)],
        [_contrast_title(matches), *(_title(pair, matches.unit) for pair in matches.pairs)],
    ]
    exact = all(seen.outcome == "exact" for pair in matches.pairs for seen in (pair.of_query, pair.of_neighbour))
    caption = [
        "above: what in the query makes it like that neighbour, below: what in the neighbour makes it like the query,"
        " each beyond what all of the gallery shares",
        f"{matches.network}, layer {matches.layer}",
        "solved exactly" if exact else "",
    ]
    return grid(
        [above, below],
        titles=titles,
        heading=f"Why does {matches.query.name} match?",
        caption="  ·  ".join(filter(None, caption)),
        cell_height=cell_height,
    )


def readable(group: str) -> str:
    """A folder's name as people write it.

    >>> readable("birds/005.Crested_Auklet")
    'Crested Auklet'
    """
    return _NUMBER.sub("", group.rpartition("/")[2]).replace("_", " ")


def _title(pair: Pair, unit: str) -> str:
    name = readable(pair.group) or pair.file.name
    return f"#{pair.rank} {name}\n{unit} {pair.score:.2f}"


def _contrast_title(matches: Matches) -> str:
    if matches.contrast is None:
        return ""
    return f"in the query: red for #{matches.contrast.ours},\nblue for #{matches.contrast.theirs}"


def _contrast(matches: Matches) -> Cell:
    if matches.contrast is None:
        return None
    if matches.contrast.seen.outcome == "uninformative":
        return note("the two neighbours cannot be told apart", matches.view.size)
    return overlay(matches.view, matches.contrast.seen.heat, signed=True)


def _drawn(seen: Seen, view: Image.Image, style: Style) -> Image.Image:
    if seen.outcome in ("uninformative", "non_finite"):
        return note("no place speaks for this pair more than another", view.size)
    return style.draw(view, seen.heat if style.signed else seen.shown)
