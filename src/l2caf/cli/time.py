"""`l2caf time`: how long one map takes on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import options, terminal

if TYPE_CHECKING:
    from ..evaluation.timing import Timing
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

    \b
    [bold]Examples[/bold]
    l2caf time
    l2caf time efficientnet_lite0 torchvision:vgg16 \\
        --rounds 9
    l2caf time timm:convnext_tiny --image photo.jpg --json
    """
    from ..tasks.time import TimeRequest, time_maps

    with terminal.bar("loading") as progress:
        result = time_maps(TimeRequest(networks or [], out, image, rounds), progress=progress)
    terminal.made(result.written[-1])
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
        cells = [_cell(timing, name) for name in TIMED]
        rows.append([timing.network, timing.weights, timing.solver, *cells, str(timing.steps)])
        if timing.paper:
            cells = [short(timing.paper[name]) if name in timing.paper else "" for name in TIMED]
            rows.append(["  in the paper", "trained", "", *cells, ""])
    console.print(terminal.table(columns, rows, right=columns[3:]))
    console.print(
        "Medians of the rounds, and quartiles below; ~ extrapolated from a few steps to as many as fast descent took;"
        " the paper's machine is unknown,"
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
        for sentence in timing.warnings:
            terminal.say_note(f"{timing.network}: {sentence}.")
    console.print(", ".join(map(str, result.written)), highlight=False, soft_wrap=True)


def _cell(timing: Timing, name: str) -> str:
    from ..tasks.time import short

    if name not in timing.seconds:
        return "-"
    spread = timing.quartiles.get(name)
    within = f"\n{short(spread[0])} to {short(spread[1])}" if spread else ""
    return f"{'~' if name in timing.extrapolated else ''}{short(timing.seconds[name])}{within}"
