"""The pictures most like one, and one figure of why: the query above, its neighbours below."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from ..errors import InputError
from ..files import cut_name, write_json
from ..images import open_image, save_picture
from ..progress import Progress, silent
from ..rendering.grid import Cell, grid
from ..rendering.overlay import overlay
from ..rendering.style import Style, box_of, note
from ..runs.executor import Executor
from ..runs.spec import RunSpec
from ..solution import Outcome
from .network_choice import NetworkChoice
from .outputs import LONGEST_STEM, Failed, Skipped, gathered, ready_folder, unheard

if TYPE_CHECKING:
    from ..networks.model import Model
    from ..retrieval.match import Matches, Pair, Seen

_NUMBER = re.compile(r"^\d+[._ -]+")


@dataclass(frozen=True)
class MatchRequest:
    """A query, and the folder that is searched.

    top       how many neighbours
    contrast  the ranks of two neighbours that are told apart; None for the first and the nearest of another folder
    out       the folder for the figure, its document, and the index of the gallery
    """

    query: Path
    gallery: Path
    out: Path
    network: NetworkChoice = field(default_factory=NetworkChoice)
    top: int = 5
    contrast: tuple[int, int] | None = None
    style: Style = field(default_factory=Style)

    def __post_init__(self) -> None:
        if self.top < 1:
            raise InputError(f"{self.top} asks for no neighbour: give 1 or more.", field="top")
        self.style.check()


@dataclass(frozen=True)
class MatchResult:
    """The matches, and where their figure was written."""

    matches: Matches
    gallery: int  # pictures that were searched
    failed: tuple[Failed, ...]
    picture: Path
    compares: str  # what of the network's, in words
    assumed: Mapping[str, str]  # what was taken for granted about the network

    def as_dict(self) -> dict[str, Any]:
        found, contrast = self.matches, self.matches.contrast
        return {
            "query": str(found.query),
            "network": found.network,
            "assumed": dict(self.assumed),
            "layer": found.layer,
            "compares": self.compares,
            "compared_by": found.unit,
            "gallery": self.gallery,
            "neighbours": [
                {
                    "rank": pair.rank,
                    "file": str(pair.file),
                    "folder": pair.group or None,
                    found.unit: pair.score,
                    "in_query": _entry(pair.of_query),
                    "in_neighbour": _entry(pair.of_neighbour),
                }
                for pair in found.pairs
            ],
            "contrast": contrast
            and {
                "for": contrast.ours,
                "rather_than": contrast.theirs,
                "other": contrast.name,
                "in_query": _entry(contrast.seen),
            },
            "failed": [one.as_dict() for one in self.failed],
            "picture": str(self.picture),
        }


def match_pictures(
    request: MatchRequest,
    *,
    model: Model | None = None,
    executor: Executor | None = None,
    progress: Progress = silent,
    skipped: Skipped = unheard,
) -> MatchResult:
    """Search the gallery, explain every match, and write the figure; `model` gives embeddings."""
    open_image(request.query)  # a query that is no picture is told before a gallery is embedded
    files, refused = gathered([request.gallery], out=request.out)
    if refused or not files:
        raise (
            refused[0].error
            if refused
            else InputError(f"'{request.gallery}' holds no pictures but our own: give another.")
        )
    ready_folder(request.out)

    from ..retrieval.embed import Embedding
    from ..retrieval.index import CACHE, open_gallery
    from ..retrieval.match import match

    model = (model or request.network.load(progress)).as_embedding()
    spec = RunSpec.of(Embedding(request.network.select), request.network.spec(embedding=True), loaded=model)
    found = open_gallery(request.gallery, files, spec, cache=request.out / CACHE, executor=executor, progress=progress)
    failed = tuple(Failed(found.files[bad.name], InputError(bad.message)) for bad in found.bad)
    for one in failed:
        skipped(one)
    matches = match(
        model,
        request.query,
        found,
        top=request.top,
        contrast=request.contrast,
        layer=request.network.layer,
        output=request.network.select,
        progress=progress,
    )
    name = f"{cut_name(request.query.stem, LONGEST_STEM)}-match"
    picture = save_picture(sheet(matches, request.style), request.out / f"{name}.png")
    result = MatchResult(matches, len(found.index), failed, picture, model.compares, model.assumed)
    write_json(request.out / f"{name}.json", result.as_dict(), indent=2)
    return result


def _entry(seen: Seen) -> dict[str, Any]:
    return {"outcome": str(seen.outcome), "box": box_of(seen.heat)}


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
    maps = [seen for pair in matches.pairs for seen in (pair.of_query, pair.of_neighbour)]
    exact = all(seen.outcome == Outcome.EXACT and not seen.empty for seen in maps)
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
        legend=style.legend,
    )


def folder_title(group: str) -> str:
    """A folder's name as people write it.

    >>> folder_title("birds/005.Crested_Auklet")
    'Crested Auklet'
    """
    return _NUMBER.sub("", group.rpartition("/")[2]).replace("_", " ")


def _title(pair: Pair, unit: str) -> str:
    name = folder_title(pair.group) or pair.file.name
    # The name comes last: a long one is shortened, and must not take the score with it.
    return f"#{pair.rank} {unit} {pair.score:.2f}\n{name}"


def _contrast_title(matches: Matches) -> str:
    if matches.contrast is None:
        return ""
    contrast = matches.contrast
    other = f"#{contrast.theirs}"
    if contrast.theirs > len(matches.pairs):  # it is not shown, so that its number says nothing
        group, _, file = contrast.name.rpartition("/")
        other = folder_title(group) or file
    return f"red: for #{contrast.ours}\nblue: for {other}"


def _contrast(matches: Matches) -> Cell:
    if matches.contrast is None:
        return None
    if matches.contrast.seen.outcome.shows_nothing:
        return note("the two neighbours cannot be told apart", matches.view.size)
    return overlay(matches.view, matches.contrast.seen.heat, signed=True)


def _drawn(seen: Seen, view: Image.Image, style: Style) -> Image.Image:
    if seen.outcome.shows_nothing:
        return note("no place speaks for this pair more than another", view.size)
    if seen.empty and not style.signed:
        return note("no place speaks for this pair beyond what all of the gallery shares", view.size)
    return style.draw(view, seen.heat if style.signed else seen.shown)
