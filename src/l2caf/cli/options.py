"""The options that several commands share, each described once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

import typer

from ..errors import InputError
from ..methods.table import FILTERS, METHODS, SOLVERS
from ..networks.catalogue import DEFAULT, forms

VIEWS = ("crop", "whole", "squash")
NETWORK, ASK, DRAW, WRITE = "The network", "What is asked", "How it is drawn", "What is written"
RUN = "Where it runs"


def _starting(words: Iterable[str]) -> Callable[[str], list[str]]:
    """Completes a word in the shell."""
    known = list(words)

    def complete(incomplete: str) -> list[str]:
        return [word for word in known if word.startswith(incomplete)]

    return complete


def _no_picture(out: Path) -> Path:
    """Refuse the name of a picture where several files are written: a folder of that name is meant by nobody."""
    from ..tasks.outputs import looks_like_file

    if looks_like_file(out):
        raise InputError(f"'{out}' names a file, and this command writes several: give a folder.", field="out")
    return out


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
View = Annotated[
    str,
    typer.Option(
        "--view",
        help="What the network is shown: crop (resized, centre cut out), whole (all of it, in its own proportions),"
        " squash (all of it, stretched to the input).",
        autocompletion=_starting(VIEWS),
        rich_help_panel=NETWORK,
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
Device = Annotated[str, typer.Option(help="Device: auto, cpu, cuda, cuda:1, mps.", rich_help_panel=NETWORK)]
Output = Annotated[
    str | None,
    typer.Option(
        "--output",
        help="Which part of the network's output is explained, by key or index, where it returns several.",
        rich_help_panel=NETWORK,
    ),
]
Distance = Annotated[
    str | None,
    typer.Option(
        "--distance",
        help="How embeddings are compared: cosine, or euclidean. [dim]Default: as the network was trained; cosine for a"
        " network of your own.[/dim]",
        autocompletion=_starting(("cosine", "euclidean")),
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
        help=f"Attribution method: {METHODS.words()}. [dim]Default: l2caf-prediction where the classes have names and"
        " none is asked about, else l2caf.[/dim]",
        show_default=False,
        autocompletion=_starting(METHODS),
        rich_help_panel=ASK,
    ),
]
Methods = Annotated[
    list[str] | None,
    typer.Option(
        "--method",
        "-m",
        help=f"Attribution methods: {METHODS.words()}; repeat it for several. [dim]Default: "
        f"{', '.join(METHODS.default_in('evaluate'))}, those of them that fit.[/dim]",
        autocompletion=_starting(METHODS),
        show_default=False,
        rich_help_panel=ASK,
    ),
]
Filter = Annotated[
    str,
    typer.Option(
        help=f"Constraint on the filter: {FILTERS.words()}.", autocompletion=_starting(FILTERS), rich_help_panel=ASK
    ),
]
Solver = Annotated[
    str,
    typer.Option(
        help=f"How the filter is found: {SOLVERS.words()}.", autocompletion=_starting(SOLVERS), rich_help_panel=ASK
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of the random start of gradient descent.", rich_help_panel=ASK)]
Signed = Annotated[
    bool,
    typer.Option(
        "--signed",
        help="Show what speaks for a class and what against it, in two colours; of the best class if none is named.",
        rich_help_panel=DRAW,
    ),
]
Cmap = Annotated[
    str | None,
    typer.Option("--cmap", help="Colour map of matplotlib. [dim]Default: turbo.[/dim]", rich_help_panel=DRAW),
]
Alpha = Annotated[
    float, typer.Option("--alpha", help="Opacity of the map, 0 to 1.", show_default=True, rich_help_panel=DRAW)
]
Contours = Annotated[bool, typer.Option("--contours", help="Outline the hot regions.", rich_help_panel=DRAW)]
Out = Annotated[
    Path,
    typer.Option("--out", "-o", help="Folder to write to.", callback=_no_picture, rich_help_panel=WRITE),
]
OutFile = Annotated[Path, typer.Option("--out", "-o", help="Folder or file to write to.", rich_help_panel=WRITE)]
Engine = Annotated[
    str,
    typer.Option(
        "--engine",
        help="What does the work: local, or ray (workers of a Ray cluster, or several processes of this machine).",
        autocompletion=_starting(("local", "ray")),
        rich_help_panel=RUN,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        help="Workers of Ray. [dim]Default: as many as there is room for.[/dim]",
        show_default=False,
        rich_help_panel=RUN,
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        help="A running Ray cluster, such as auto or ray://head:10001. [dim]Default: one is started here.[/dim]",
        show_default=False,
        rich_help_panel=RUN,
    ),
]
GpusPerWorker = Annotated[
    float,
    typer.Option("--gpus-per-worker", help="GPUs of each worker of Ray; 0.5 is half of one.", rich_help_panel=RUN),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, for machines.", rich_help_panel=WRITE)]

DEFAULT_NETWORK = DEFAULT
DEFAULT_ALPHA = 0.65
DEFAULT_OUT = Path("l2caf-out")
