"""`l2caf match`: the pictures or clips that a network finds most like one, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InputError
from . import options, terminal

if TYPE_CHECKING:
    from ..retrieval.match import Seen


def command(
    query: Annotated[Path, typer.Argument(metavar="QUERY", help="A photograph, or a clip.", show_default=False)],
    gallery: Annotated[
        Path,
        typer.Argument(metavar="GALLERY_DIR", help="The folder to search, with those below it.", show_default=False),
    ],
    network: Annotated[
        str,
        typer.Option(
            "--network",
            "-n",
            help="A checkpoint of 'l2caf train', or any name from 'l2caf networks': for a classifier, its pooled"
            " features are compared. Clips need one of 'l2caf train video'.",
            rich_help_panel=options.NETWORK,
        ),
    ] = options.DEFAULT_NETWORK,
    weights: options.Weights = None,
    layer: options.Layer = None,
    device: options.Device = "auto",
    output: options.Output = None,
    embedding: options.Embedding = None,
    distance: options.Distance = None,
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
    cmap: options.Cmap = None,
    alpha: options.Alpha = options.DEFAULT_ALPHA,
    contours: options.Contours = False,
    out: options.Out = options.DEFAULT_OUT,
    engine: options.Engine = "local",
    workers: options.Workers = None,
    address: options.Address = None,
    gpus_per_worker: options.GpusPerWorker = 0.0,
    as_json: options.Json = False,
) -> int:
    """Find the pictures, or clips, most like one, and show what in either speaks for the match.

    For each pair: what in the query makes it like the neighbour, and what in
    the neighbour makes it like the query. The folder gets the figure, a JSON
    file, and the index of the gallery, which is used again while its files are
    the same. Of clips it also tells which frame weighs how much.

    \b
    [bold]Examples[/bold]
    l2caf match bird.jpg birds/
    l2caf match bird.jpg birds/ \\
        --network out/embedding.safetensors --top 8
    l2caf match bird.jpg birds/ --contrast 1:3 --signed
    l2caf match turn.mp4 turns/ \\
        --network out/clips.safetensors
    """
    from ..rendering.style import Style
    from ..tasks.engine import EngineChoice
    from ..tasks.match import MatchRequest, match_pictures
    from ..tasks.network_choice import NetworkChoice, part_named

    request = MatchRequest(
        query,
        gallery,
        out,
        NetworkChoice(
            network, weights, layer, part_named(output), device=device, embedding=embedding, distance=distance
        ),
        top,
        _ranks(contrast),
        Style(cmap=cmap, alpha=alpha, contours=contours, signed=signed),
    )
    executor = EngineChoice(engine, workers, address, gpus_per_worker).executor()
    with terminal.bar(f"loading {network}") as progress:
        result = match_pictures(
            request, executor=executor, progress=progress, skipped=lambda one: terminal.warn(str(one.error))
        )
    terminal.say_assumed(result.assumed)
    terminal.made(result.picture)
    if as_json:
        terminal.print_json(result.as_dict())
        return 0
    console = terminal.output()
    matches = result.matches
    moving = any(pair.of_query.frames for pair in matches.pairs)
    heads = ["#", matches.unit, "clip" if moving else "picture", *(["frame"] if moving else []), "outcome"]
    rows = [
        [str(pair.rank), f"{pair.score:.4g}", pair.name, *_frame(pair.of_query.frames), _found(pair.of_query)]
        for pair in matches.pairs
    ]
    console.print(terminal.table(heads, rows, right=["#", matches.unit]))
    console.print(f"compared, by {matches.unit}: {result.compares}", highlight=False, markup=False)
    console.print(str(result.picture), highlight=False, soft_wrap=True)
    return 0


def _found(seen: Seen) -> str:
    """How the search in the query ended; a map that shows nothing says so, since "exact" alone promises a picture."""
    empty = seen.empty and not seen.outcome.shows_nothing
    return f"{seen.outcome}, no place speaks for it" if empty else str(seen.outcome)


def _frame(weights: tuple[float, ...]) -> list[str]:
    """Which frame of the query weighs most; nothing where it is no clip, "none" where no frame alone speaks for it."""
    if not weights:
        return []
    most = max(weights)
    return [f"{weights.index(most) + 1} of {len(weights)} ({most:.0%})" if most > 0 else "none"]


def _ranks(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    ours, _, theirs = text.partition(":")
    if not (ours.isdecimal() and theirs.isdecimal()):
        raise InputError(f"{text} names no two neighbours: give their ranks, as in 1:3.", field="contrast")
    return int(ours), int(theirs)
