"""`l2caf atlas`: where a network looks in a whole folder, the unusual pictures first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..datasets import LAYOUTS
from ..methods.table import METHODS
from . import options, terminal

if TYPE_CHECKING:
    from ..tasks.atlas import AtlasResult

ROWS = 10  # of the closing table; the page shows more


def command(
    root: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Folder of pictures, by class in sub-folders or not.", show_default=False),
    ],
    dataset: Annotated[
        str,
        typer.Option(
            "--dataset",
            help=f"Layout of the folder: {LAYOUTS.words()}; with boxes, the share of the attention on the object is"
            " measured too.",
            rich_help_panel=options.ASK,
        ),
    ] = "folder",
    network: options.Network = options.DEFAULT_NETWORK,
    weights: options.Weights = None,
    layer: options.Layer = None,
    output: options.Output = None,
    view: options.View = "crop",
    device: options.Device = "auto",
    embedding: options.Embedding = None,
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            "-m",
            help=f"Attribution method: {METHODS.words()}. [dim]Default: l2caf-class, about each picture's best class;"
            " of an embedding, l2caf.[/dim]",
            show_default=False,
            rich_help_panel=options.ASK,
        ),
    ] = None,
    clusters: Annotated[
        int,
        typer.Option(
            "--clusters", help="Groups of pictures that are looked at in the same places.", rich_help_panel=options.ASK
        ),
    ] = 8,
    limit: Annotated[
        int | None, typer.Option(help="At most this many pictures, spread over all.", rich_help_panel=options.ASK)
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Batch size.", rich_help_panel=options.WRITE)] = 16,
    out: options.Out = Path("l2caf-atlas"),
    as_json: options.Json = False,
) -> int:
    """Find the pictures of a folder in which a network looks at unusual places.

    Every picture is explained once. Those whose attention lies where that of
    the others of their class seldom does come first: there one finds
    shortcuts, such as watermarks, borders and backgrounds. The folder gets
    rows.jsonl, atlas.json and the page atlas.html; run the same command again
    to resume a run that was stopped.

    \b
    [bold]Examples[/bold]
    l2caf atlas photos/ --out atlas
    l2caf atlas train/ --network mypackage.nets:build \\
        --weights mine.safetensors
    l2caf atlas /data/CUB_200_2011 --dataset cub --limit 2000
    """
    from ..tasks.atlas import AtlasRequest, make_atlas
    from ..tasks.network_choice import NetworkChoice, part_named

    request = AtlasRequest(
        root,
        out,
        NetworkChoice(network, weights, layer, part_named(output), view, device, embedding),
        dataset,
        method,
        clusters,
        limit,
        batch,
    )
    with terminal.bar(f"loading {network}") as progress:
        result = make_atlas(request, progress=progress)
    terminal.say_assumed(result.assumed)
    terminal.made(result.page)
    for name, reason in result.found.bad.items():
        terminal.warn(f"{name}: {reason}")
    if as_json:
        terminal.print_json(result.as_dict())
    else:
        _report(result)
    return 0


def _report(result: AtlasResult) -> None:
    console = terminal.output()
    found = result.found
    shown = list(enumerate(found.pictures[:ROWS]))
    boxes = any(one.numbers["on_object"] is not None for one in found.pictures)
    heads = ["looked at in unusual places", "class", "surprise", *(["on the object"] if boxes else [])]
    rows = []
    for place, one in shown:
        share = one.numbers["on_object"]
        cells = [one.image, found.groups[place] or "-", f"{found.surprise[place]:.2f}"]
        rows.append([*cells, *(["-" if share is None else f"{share:.0%}"] if boxes else [])])
    console.print(terminal.table(heads, rows, right=heads[2:]))
    bad = f", {len(found.bad)} files could not be used" if found.bad else ""
    empty = f", {len(found.unseen)} with no map" if found.unseen else ""
    words = f"{len(found.pictures)} pictures in {len(found.clusters)} groups{bad}{empty}"
    console.print(words, highlight=False)
    console.print(f"page: {result.page}", highlight=False, soft_wrap=True)
