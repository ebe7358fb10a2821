"""`l2caf time`: how long one map takes on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import options, terminal

if TYPE_CHECKING:
    from ..tasks.time import TimeResult

MEASURING = "How it is measured"


def command(
    networks: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NETWORK",
            help="Names from 'l2caf networks'."
            " [dim]Default: the embedded one, ResNet-50, GoogLeNet, DenseNet-161, VGG-16.[/dim]",
            show_default=False,
        ),
    ] = None,
    image: Annotated[
        Path | None,
        typer.Option(help="A photograph. [dim]Default: an installed one.[/dim]", rich_help_panel=MEASURING),
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=1, help="How often each is timed; the median counts.", rich_help_panel=MEASURING)
    ] = 5,
    out: options.Out = options.DEFAULT_OUT,
    as_json: options.Json = False,
) -> int:
    """Time one map on this machine: solved, by fast descent and by vanilla descent, and Grad-CAM.

    Draws the paper's timing figure for this machine, with the paper's numbers
    beside it. Networks whose trained weights are not available are timed with
    random ones: a step costs the same, but the number of steps may differ.

    [bold]Examples[/bold]

    \b
    l2caf time
    l2caf time tf_efficientnet_lite0 torchvision:vgg16 --rounds 9
    l2caf time timm:convnext_tiny --image photo.jpg --json
    """
    from ..tasks.time import TimeRequest, time_maps

    with terminal.bar("loading") as progress:
        result = time_maps(TimeRequest(networks or [], out, image, rounds), progress=progress)
    if as_json:
        terminal.print_json(result.as_dict())
    else:
        _report(result)
    return 0


def _report(result: TimeResult) -> None:
    from ..evaluation.timing import TIMED
    from ..tasks.time import short

    console = terminal.output()
    columns = ["network", "weights", "solver", *TIMED.values(), "steps"]
    rows = []
    for timing in result.timings:
        cells = [
            ("~" if name in timing.extrapolated else "") + short(timing.seconds[name])
            if name in timing.seconds
            else "-"
            for name in TIMED
        ]
        rows.append([timing.network, timing.weights, timing.solver, *cells, str(timing.steps)])
        if timing.paper:
            cells = [short(timing.paper[name]) if name in timing.paper else "" for name in TIMED]
            rows.append(["  in the paper", "trained", "", *cells, ""])
    console.print(terminal.table(columns, rows, right=columns[3:]))
    console.print(
        "~ extrapolated from a few steps to as many as fast descent took; the paper's machine is unknown,"
        f" this one: {result.machine}.",
        highlight=False,
    )
    if any(timing.weights == "random" for timing in result.timings):
        console.print(
            "Random weights cost the same per step, but may need another number of steps than trained ones.",
            highlight=False,
        )
    for timing in result.timings:
        for name, refusal in timing.refused.items():
            console.print(f"{timing.network}, {TIMED[name]}: {refusal}", highlight=False, markup=False)
    console.print(", ".join(map(str, result.written)), highlight=False, soft_wrap=True)
