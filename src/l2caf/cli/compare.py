"""`l2caf compare`: one photograph, every method, one sheet."""

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
    cmap: options.Cmap = None,
    alpha: options.Alpha = options.DEFAULT_ALPHA,
    contours: options.Contours = False,
    out: options.OutFile = options.DEFAULT_OUT,
    as_json: options.Json = False,
) -> int:
    """Set every method side by side on one photograph.

    L2-CAF (class-oblivious, of the prediction, class-specific), CAM, Grad-CAM,
    its magnitude, and filters with other constraints; the network runs once
    for all of them.
    A method that does not fit the network says so in its cell. An embedding
    is shown to the methods that need no class.

    \b
    [bold]Examples[/bold]
    l2caf compare photo.jpg
    l2caf compare photo.jpg --class espresso \\
        --out comparison.png
    l2caf compare photo.jpg --network torchvision:vgg16 \\
        --contours
    """
    from ..rendering.style import Style
    from ..tasks.compare import CompareRequest, compare_methods
    from ..tasks.network_choice import NetworkChoice, part_named

    request = CompareRequest(
        image,
        out,
        NetworkChoice(network, weights, layer, part_named(output), view, device, embedding),
        of_class,
        Style(cmap=cmap, alpha=alpha, contours=contours),
    )
    with terminal.bar(f"loading {network}") as progress:
        result = compare_methods(request, progress=progress)
    terminal.say_assumed(result.assumed)
    terminal.made(result.picture)
    if as_json:
        terminal.print_json(result.as_dict())
        return 0
    console = terminal.output()
    rows = [
        [
            one.title,
            one.solver or "-",
            one.outcome or "-",
            f"does not fit: {one.refusal}" if one.refusal else "shown",
        ]
        for one in result.comparison.answers
    ]
    console.print(terminal.table(["method", "solver", "outcome", "cell"], rows))
    console.print(f"{result.picture}", highlight=False, soft_wrap=True)
    return 0
