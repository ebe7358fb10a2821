"""The options that several commands share, each described once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..methods.table import FILTERS, METHODS, SOLVERS
from ..networks.catalogue import DEFAULT, forms

NETWORK, ASK, DRAW, WRITE = "The network", "What is asked", "How it is drawn", "What is written"

Network = Annotated[
    str,
    typer.Option("--network", "-n", help=f"{forms()}; see 'l2caf networks'.", rich_help_panel=NETWORK),
]
Weights = Annotated[
    Path | None,
    typer.Option(
        help="A local file of weights (.pth, .pt, .safetensors), in place of the published ones.",
        rich_help_panel=NETWORK,
    ),
]
Layer = Annotated[
    str | None,
    typer.Option(
        "--layer",
        "-l",
        help="The layer whose map is explained; see 'l2caf layers'. [dim]Default: the last one with a map.[/dim]",
        rich_help_panel=NETWORK,
    ),
]
Whole = Annotated[
    bool,
    typer.Option(
        "--whole", help="Show the network the whole photograph, not only its centre.", rich_help_panel=NETWORK
    ),
]
Embedding = Annotated[
    bool | None,
    typer.Option(
        "--embedding/--classifier",
        help="What the output of a network of your own is, where it does not say so itself: an embedding, or scores of"
        " classes. [dim]Default: scores.[/dim]",
        show_default=False,
        rich_help_panel=NETWORK,
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.", rich_help_panel=NETWORK)]
Select = Annotated[
    str | None,
    typer.Option(
        help="Which part of the network's output is explained, by key or index, where it returns several.",
        rich_help_panel=NETWORK,
    ),
]
Classes = Annotated[
    list[str] | None,
    typer.Option("--class", "-c", help="A class, by name or number; repeat it for several.", rich_help_panel=ASK),
]
OneClass = Annotated[
    str | None,
    typer.Option("--class", "-c", help="A class, by name or number.", rich_help_panel=ASK),
]
Method = Annotated[
    str | None,
    typer.Option(
        "--method",
        "-m",
        help=f"One of {METHODS.words()}. [dim]Default: l2caf-prediction where the classes have names and none is asked"
        " about, else l2caf.[/dim]",
        rich_help_panel=ASK,
    ),
]
Filter = Annotated[str, typer.Option(help=f"The constraint on the filter: {FILTERS.words()}.", rich_help_panel=ASK)]
Solver = Annotated[str, typer.Option(help=f"How the filter is found: {SOLVERS.words()}.", rich_help_panel=ASK)]
Seed = Annotated[int, typer.Option(help="Of the random start of gradient descent.", rich_help_panel=ASK)]
Colormap = Annotated[
    str | None,
    typer.Option(help="A colour map of matplotlib. [dim]Default: turbo.[/dim]", rich_help_panel=DRAW),
]
Contours = Annotated[bool, typer.Option("--contours", help="Outline the hot regions.", rich_help_panel=DRAW)]
Out = Annotated[Path, typer.Option("--out", "-o", help="The folder to write to.", rich_help_panel=WRITE)]
OutFile = Annotated[
    Path, typer.Option("--out", "-o", help="The folder or the file to write to.", rich_help_panel=WRITE)
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, for machines.", rich_help_panel=WRITE)]

DEFAULT_NETWORK = DEFAULT
DEFAULT_OUT = Path("l2caf-out")
