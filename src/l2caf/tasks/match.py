"""The pictures, or clips, most like one, and one figure of why: the query above, its neighbours below."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from ..clips import SUFFIXES as CLIPS
from ..datasets.clips import clips_in
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

MOST_FRAMES = 4  # of a clip in the figure
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


@dataclass(frozen=True)
class Found:
    """The matches, before anything is drawn of them."""

    matches: Matches
    gallery: int  # pictures that were searched
    failed: tuple[Failed, ...]
    compares: str  # what of the network's, in words
    assumed: Mapping[str, str]  # what was taken for granted about the network
    is_of_clips: bool


def match_pictures(
    request: MatchRequest,
    *,
    model: Model | None = None,
    executor: Executor | None = None,
    progress: Progress = silent,
    skipped: Skipped = unheard,
) -> MatchResult:
    """Search the gallery, explain every match, and write the figure; `model` gives embeddings."""
    found = find_matches(request, model=model, executor=executor, progress=progress, skipped=skipped)
    matches = found.matches
    name = f"{cut_name(request.query.stem, LONGEST_STEM)}-match"
    drawn = sheet_of_clips(matches, request.style) if found.is_of_clips else sheet(matches, request.style)
    picture = save_picture(drawn, request.out / f"{name}.png")
    result = MatchResult(matches, found.gallery, found.failed, picture, found.compares, found.assumed)
    write_json(request.out / f"{name}.json", result.as_dict(), indent=2)
    return result


def find_matches(
    request: MatchRequest,
    *,
    model: Model | None = None,
    executor: Executor | None = None,
    progress: Progress = silent,
    skipped: Skipped = unheard,
) -> Found:
    """Search the gallery and explain every match; nothing is written but the index of the gallery."""
    moving = _is_clip(request.query)
    if not moving:  # what is no picture is told before a network is loaded and a gallery embedded
        open_image(request.query)
        files = _searched(request, moving=False)
    ready_folder(request.out)

    from ..retrieval.embed import Embedding
    from ..retrieval.index import CACHE, open_gallery
    from ..retrieval.match import match

    model = (model or request.network.load(progress)).as_embedding()
    if moving != (model.clip is not None) and request.query.suffix.lower() != ".gif":  # which may be either
        raise _other_kind(request.query, model.name, moving=moving)
    if model.clip is not None:
        files = _searched(request, moving=True)
    spec = RunSpec.of(Embedding(request.network.select), request.network.spec(embedding=True), loaded=model)
    gallery = open_gallery(
        request.gallery, files, spec, cache=request.out / CACHE, executor=executor, progress=progress
    )
    failed = tuple(Failed(gallery.files[bad.name], InputError(bad.message)) for bad in gallery.bad)
    for one in failed:
        skipped(one)
    matches = match(
        model,
        request.query,
        gallery,
        top=request.top,
        contrast=request.contrast,
        layer=request.network.layer,
        output=request.network.select,
        progress=progress,
    )
    return Found(matches, len(gallery.index), failed, model.compares, model.assumed, model.clip is not None)


def _is_clip(path: Path) -> bool:
    """Whether a query is a clip whatever the network: a folder of frames, or a file of moving pictures."""
    return path.is_dir() or path.suffix.lower() in CLIPS - {".gif"}


def _other_kind(query: Path, network: str, *, moving: bool) -> InputError:
    if moving:
        what = "is a folder, which is a clip if it holds its frames" if query.is_dir() else "is a clip"
        return InputError(
            f"'{query}' {what}, and {network} takes single pictures: give a network for clips, such as a checkpoint"
            " of 'l2caf train video'.",
            field="network",
        )
    return InputError(f"{network} takes clips, and '{query}' is a picture: give a clip, or a folder of frames.")


def _searched(request: MatchRequest, *, moving: bool) -> list[Path]:
    """The files of the gallery, but for our own."""
    if moving:
        home = request.out.resolve()
        if not request.gallery.is_dir():
            raise InputError(f"'{request.gallery}' is no folder: give the folder of the clips to compare with.")
        files = [file for file in clips_in(request.gallery) if not file.resolve().is_relative_to(home)]
    else:
        files, refused = gathered([request.gallery], out=request.out)
        if refused:
            raise refused[0].error
    if not files:
        raise InputError(f"'{request.gallery}' holds no {'clips' if moving else 'pictures'} but our own: give another.")
    return files


def _entry(seen: Seen) -> dict[str, Any]:
    if not seen.frames:
        return {"outcome": str(seen.outcome), "box": box_of(seen.heat)}
    frames = [
        {"frame": number, "weight": round(weight, 4), "box": box_of(heat)}
        for number, (weight, heat) in enumerate(zip(seen.frames, seen.heat, strict=True))
    ]
    return {"outcome": str(seen.outcome), "frames": frames}


def sheet(matches: Matches, style: Style, *, cell_height: int = 288) -> Image.Image:
    """Draw all pairs; the query's own picture and the contrast stand to the left."""
    above: list[Cell] = [matches.view]
    below: list[Cell] = [contrast_drawn(matches)]
    above += [drawn_on(pair.of_query, matches.view, style) for pair in matches.pairs]
    below += [drawn_on(pair.of_neighbour, pair.view, style) for pair in matches.pairs]
    titles = [
        ["query", *(f"in the query, for #{pair.rank}" for pair in matches.pairs)],
        [contrast_title(matches), *(pair_title(pair, matches.unit) for pair in matches.pairs)],
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


def sheet_of_clips(matches: Matches, style: Style, *, cell_height: int = 200) -> Image.Image:
    """Draw all pairs of clips, one below the other: the frames of the query to the left, of the neighbour to the right.

    Above each frame stands how much it weighs; of many frames, the heaviest are shown.
    """
    rows: list[list[Cell]] = []
    titles: list[list[str]] = []
    labels: list[str] = []
    for pair in matches.pairs:
        cells: list[Cell] = []
        words: list[str] = []
        for who, seen, views in (("query", pair.of_query, matches.views), ("neighbour", pair.of_neighbour, pair.views)):
            for number in _heaviest(seen.frames):
                cells.append(drawn_on(seen.frame(number), views[number], style))
                words.append(f"{who}, frame {number + 1}: {seen.frames[number]:.0%}")
        rows.append(cells)
        titles.append(words)
        labels.append(pair_title(pair, matches.unit))
    if matches.contrast is not None and not matches.contrast.seen.outcome.shows_nothing:
        seen = matches.contrast.seen
        shown = _heaviest(seen.frames)
        rows.append([overlay(matches.views[number], seen.heat[number], signed=True) for number in shown])
        titles.append([f"query, frame {number + 1}: {seen.frames[number]:.0%}" for number in shown])
        labels.append(contrast_title(matches))
    caption = [
        "left: what in the query makes it like that neighbour, right: what in the neighbour makes it like the query,"
        " each beyond what all of the gallery shares; per cent: how much the frame weighs",
        f"{matches.network}, layer {matches.layer}",
    ]
    return grid(
        rows,
        titles=titles,
        row_labels=labels,
        heading=f"Why does {matches.query.name} match?",
        caption="  ·  ".join(caption),
        cell_height=cell_height,
        legend=style.legend,
    )


def _heaviest(weights: Sequence[float]) -> list[int]:
    """The frames that are shown, in order of time: all, or the heaviest of many.

    >>> _heaviest([0.1, 0.2, 0.1, 0.1, 0.2, 0.1, 0.2])
    [0, 1, 4, 6]
    """
    if len(weights) <= MOST_FRAMES:
        return list(range(len(weights)))
    ranked = sorted(range(len(weights)), key=lambda number: -weights[number])
    return sorted(ranked[:MOST_FRAMES])


def folder_title(group: str) -> str:
    """A folder's name as people write it.

    >>> folder_title("birds/005.Crested_Auklet")
    'Crested Auklet'
    """
    return _NUMBER.sub("", group.rpartition("/")[2]).replace("_", " ")


def pair_title(pair: Pair, unit: str) -> str:
    """A neighbour's rank, how near it is, and what it is called."""
    name = folder_title(pair.group) or pair.file.name
    # The name comes last: a long one is shortened, and must not take the score with it.
    return f"#{pair.rank} {unit} {pair.score:.2f}\n{name}"


def contrast_title(matches: Matches) -> str:
    """Which neighbours the two colours of the contrast stand for; empty where there is none."""
    if matches.contrast is None:
        return ""
    contrast = matches.contrast
    other = f"#{contrast.theirs}"
    if contrast.theirs > len(matches.pairs):  # it is not shown, so that its number says nothing
        group, _, file = contrast.name.rpartition("/")
        other = folder_title(group) or file
    return f"red: for #{contrast.ours}\nblue: for {other}"


def contrast_drawn(matches: Matches) -> Cell:
    """What in the query speaks for one neighbour, and what for the other."""
    if matches.contrast is None:
        return None
    if matches.contrast.seen.outcome.shows_nothing:
        return note("the two neighbours cannot be told apart", matches.view.size)
    return overlay(matches.view, matches.contrast.seen.heat, signed=True)


def drawn_on(seen: Seen, view: Image.Image, style: Style) -> Image.Image:
    """One map of a pair over its picture, or words where nothing speaks for the pair."""
    if seen.outcome.shows_nothing:
        return note("no place speaks for this pair more than another", view.size)
    if seen.empty and not style.signed:
        return note("no place speaks for this pair beyond what all of the gallery shares", view.size)
    return style.draw(view, seen.heat if style.signed else seen.shown)
