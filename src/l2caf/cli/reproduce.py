"""`l2caf reproduce`: the tables of the paper, measured again on what a person has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..tasks.reproduce_tables import ALL, TABLES
from . import options, terminal

if TYPE_CHECKING:
    from ..evaluation.reproduction import Reproduced

MEASURED = "How it is measured"


def command(
    tables: Annotated[
        list[str],
        typer.Argument(metavar="TABLE", help=f"{TABLES.words()}, or {ALL}; several if you like.", show_default=False),
    ],
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIR",
            help="A folder with ImageNet's validation images, CUB-200-2011 or Stanford Cars, or with folders of them;"
            " each is known by its files. timing needs none, and sanity takes the photographs that are installed"
            " where there is none.",
            rich_help_panel=MEASURED,
        ),
    ] = None,
    network: Annotated[
        list[str] | None,
        typer.Option(
            "--network",
            "-n",
            help="In place of the paper's; of table2 and table3, a backbone. Repeat it for several. [dim]Default: those"
            " of the paper whose weights can be had, else tf_efficientnet_lite0, and the output says so.[/dim]",
            rich_help_panel=options.NETWORK,
        ),
    ] = None,
    weights: options.Weights = None,
    device: options.Device = "auto",
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            help="The most that each training may take: iterations (500), or minutes or hours (20m, 1.5h; of table3"
            " they begin when features are stored). [dim]Default: 300 on a CPU; on a GPU as published.[/dim]",
            rich_help_panel=MEASURED,
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(help="At most this many images in each evaluation, spread over them.", rich_help_panel=MEASURED),
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=1, help="Of timing: how often each is timed.", rich_help_panel=MEASURED)
    ] = 5,
    out: options.Out = Path("l2caf-reproduced"),
    as_json: options.Json = False,
) -> int:
    """Measure tables of the paper again, and show ours beside the paper's.

    Networks are trained where a table needs it. What was not as in the paper (data, networks, weights, iterations) is
    said. Nothing is trained or measured twice: run the same command again to resume a run that was stopped, or with
    another table to add it. The folder gets results.json, report.html for all tables, and a folder for each.

    \b
    [bold]Examples[/bold]
    l2caf reproduce table1 --data /data/imagenet
    l2caf reproduce table2 table3 --data /data --budget 1h
    l2caf reproduce timing --network torchvision:googlenet
    l2caf reproduce all --data /data --limit 300 --out again
    """
    from ..tasks.reproduce import ReproduceRequest, reproduce

    request = ReproduceRequest(tuple(tables), out, data, tuple(network or ()), weights, budget, limit, rounds, device)
    with terminal.bar("looking for data") as progress:
        result = reproduce(request, progress=progress)
    terminal.made(result.report)
    for sentence in result.left_out:
        terminal.say_left_out(sentence)
    if as_json:
        terminal.print_json(result.as_dict())
        return 0
    for one in result.tables:
        _show(one)
    terminal.output().print(f"report: {result.report}", highlight=False, soft_wrap=True)
    return 0


def _show(found: Reproduced) -> None:
    from ..reports.reproduction import grid_of

    console = terminal.output()
    console.print(found.title, style="bold", highlight=False)
    for margins in (False, True) if found.margins else (False,):
        heads, lines = grid_of(found, margins=margins)
        rows = [[cell.text for cell in line] for line in lines]
        console.print(terminal.table(heads, rows, right=[one.title for one in found.measures]))
    console.print(found.note, highlight=False)
    for one in found.unmet:
        console.print(f"not as in the paper, {one.about}: {one.words}", highlight=False, soft_wrap=True)
    console.print("")
