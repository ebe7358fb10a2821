"""`l2caf match`: the pictures that a network finds most like one, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InputError
from . import options, terminal

if TYPE_CHECKING:
    from ..retrieval.index import Gallery
    from ..retrieval.match import Matches, Seen


def command(
    query: Annotated[Path, typer.Argument(metavar="QUERY", help="A photograph.", show_default=False)],
    gallery: Annotated[
        Path, typer.Argument(metavar="GALLERY_DIR", help="The folder to search, and those below.", show_default=False)
    ],
    network: Annotated[
        str,
        typer.Option(
            "--network",
            "-n",
            help="A checkpoint of 'l2caf train retrieval', or any name from 'l2caf networks': of a classifier the"
            " pooled features are compared.",
            rich_help_panel=options.NETWORK,
        ),
    ] = options.DEFAULT_NETWORK,
    weights: options.Weights = None,
    layer: options.Layer = None,
    device: options.Device = "auto",
    top: Annotated[int, typer.Option("--top", "-k", help="How many neighbours.", rich_help_panel=options.ASK)] = 5,
    contrast: Annotated[
        str | None,
        typer.Option(
            metavar="A:B",
            help="What in the query speaks for neighbour A rather than B, by rank. [dim]Default: the first against the"
            " nearest of another folder.[/dim]",
            rich_help_panel=options.ASK,
        ),
    ] = None,
    signed: Annotated[
        bool,
        typer.Option("--signed", help="Also what speaks against a pair, in blue.", rich_help_panel=options.DRAW),
    ] = False,
    colormap: options.Colormap = None,
    contours: options.Contours = False,
    out: options.Out = options.DEFAULT_OUT,
    as_json: options.Json = False,
) -> int:
    """Find the pictures most like one, and show what in either speaks for the match.

    For each pair the query is asked what makes it like the neighbour, and the neighbour what makes it like the query.
    OUT gets the figure, a JSON file, and the index of the gallery, which is used again while its files are the same.

    [bold]Examples[/bold]

    \b
    l2caf match bird.jpg birds/
    l2caf match bird.jpg birds/ --network out/embedding.safetensors --top 8
    l2caf match bird.jpg birds/ --contrast 1:3 --signed
    """
    from ..images import open_image
    from ..rendering.style import Style
    from ..tasks.outputs import gathered, ready_folder

    ranks = _ranks(contrast)
    if top < 1:
        raise InputError(f"{top} asks for no neighbour: give 1 or more.", field="top")
    style = Style(colormap=colormap, contours=contours, signed=signed)
    style.check()
    open_image(query)  # a query that is no picture is told before a gallery is embedded
    files, refused = gathered([gallery], out=out)
    if refused or not files:
        raise refused[0][1] if refused else InputError(f"'{gallery}' holds no pictures but our own: give another.")
    ready_folder(out)

    from ..files import write_whole
    from ..images import save_picture
    from ..retrieval.embed import Embedding
    from ..retrieval.index import CACHE, open_gallery
    from ..retrieval.match import match
    from ..tasks.match import sheet

    model = options.model(network, weights, device=device).as_embedding()
    with terminal.bar("embedding", len(files)) as progress:
        found = open_gallery(gallery, files, Embedding().on(model), cache=out / CACHE, progress=progress)
    for bad in found.bad:
        terminal.warn(bad.message)
    with terminal.working("explaining"):
        matches = match(model, query, found, top=top, contrast=ranks, layer=layer)
        picture = save_picture(sheet(matches, style), out / f"{query.stem[:100]}-match.png")
    document = _document(matches, found, picture)
    with write_whole(out / f"{query.stem[:100]}-match.json") as temporary:
        temporary.write_text(terminal.as_json(document), encoding="utf-8")
    if as_json:
        terminal.print_json(document)
        return 0
    console = terminal.output()
    heads = ["#", matches.unit, "picture", "outcome"]
    rows = [[str(pair.rank), f"{pair.score:.4g}", pair.name, pair.of_query.outcome] for pair in matches.pairs]
    console.print(terminal.table(heads, rows, right=["#", matches.unit]))
    console.print(str(picture), highlight=False, soft_wrap=True)
    return 0


def _ranks(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    ours, _, theirs = text.partition(":")
    if not (ours.isdecimal() and theirs.isdecimal()):
        raise InputError(f"{text} names no two neighbours: give their ranks, as in 1:3.", field="contrast")
    return int(ours), int(theirs)


def _document(matches: Matches, gallery: Gallery, picture: Path) -> dict[str, Any]:
    contrast = matches.contrast
    return {
        "query": str(matches.query),
        "network": matches.network,
        "layer": matches.layer,
        "compared_by": matches.unit,
        "gallery": len(gallery.index),
        "neighbours": [
            {
                "rank": pair.rank,
                "file": str(pair.file),
                "folder": pair.group or None,
                matches.unit: pair.score,
                "in_query": _entry(pair.of_query),
                "in_neighbour": _entry(pair.of_neighbour),
            }
            for pair in matches.pairs
        ],
        "contrast": contrast
        and {"for": contrast.ours, "rather_than": contrast.theirs, "in_query": _entry(contrast.seen)},
        "failed": [{"file": str(gallery.files[bad.name]), "error": bad.message} for bad in gallery.bad],
        "picture": str(picture),
    }


def _entry(seen: Seen) -> dict[str, Any]:
    from ..rendering.style import box_of

    return {"outcome": seen.outcome, "box": box_of(seen.heat)}
