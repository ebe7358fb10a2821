"""`l2caf animate`: how a filter finds its place, in slow motion."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import options, terminal


def command(
    image: Annotated[Path, typer.Argument(metavar="IMG", help="A photograph.", show_default=False)],
    network: options.Network = options.DEFAULT_NETWORK,
    weights: options.Weights = None,
    layer: options.Layer = None,
    output: options.Output = None,
    view: options.View = "crop",
    device: options.Device = "auto",
    embedding: options.Embedding = None,
    of_class: options.OneClass = None,
    seed: options.Seed = 0,
    steps: Annotated[
        int, typer.Option(min=2, help="The most steps that descent may take.", rich_help_panel=options.ASK)
    ] = 1000,
    frames: Annotated[
        int, typer.Option(min=2, max=400, help="The most frames of the GIF.", rich_help_panel=options.DRAW)
    ] = 40,
    cmap: options.Cmap = None,
    alpha: options.Alpha = options.DEFAULT_ALPHA,
    contours: options.Contours = False,
    out: options.OutFile = options.DEFAULT_OUT,
    as_json: options.Json = False,
) -> int:
    """Show a filter on its way from a random start, as a GIF with the loss beside it.

    The motion is steady: slow motion where the filter moves fast.

    \b
    [bold]Examples[/bold]
    l2caf animate photo.jpg
    l2caf animate photo.jpg --class espresso \\
        --out espresso.gif
    l2caf animate photo.jpg --seed 7 --frames 80
    """
    from ..rendering.style import Style
    from ..tasks.animate import AnimateRequest, animate_filter
    from ..tasks.network_choice import NetworkChoice, part_named

    request = AnimateRequest(
        image,
        out,
        NetworkChoice(network, weights, layer, part_named(output), view, device, embedding),
        of_class,
        Style(cmap=cmap, alpha=alpha, contours=contours),
        frames=frames,
        steps=steps,
        seed=seed,
    )
    with terminal.bar(f"loading {network}") as progress:
        result = animate_filter(request, progress=progress)
    terminal.say_assumed(result.assumed)
    terminal.made(result.picture)
    if as_json:
        terminal.print_json(result.as_dict())
        return 0
    shown = result.film
    console = terminal.output()
    console.print(
        f"{shown.about}, layer {shown.layer}: {shown.taken} steps ({shown.outcome}),"
        f" loss {shown.losses[0]:.4g} to {shown.losses[-1]:.4g}, shown in {len(shown.steps)} frames",
        highlight=False,
    )
    console.print(f"cosine with the filter of {shown.found_by}: {shown.agreement:.5f}", highlight=False)
    console.print(str(result.picture), highlight=False, soft_wrap=True)
    return 0
