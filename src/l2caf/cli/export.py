"""`l2caf export`: a network with its exact maps as an ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import options, terminal
from .patterns import expanded

if TYPE_CHECKING:
    from ..exporter.onnx_file import Exported


def command(
    network: Annotated[
        str,
        typer.Argument(metavar="NETWORK", help="A name from 'l2caf networks', or a checkpoint.", show_default=False),
    ],
    weights: options.Weights = None,
    layer: options.Layer = None,
    view: options.View = "crop",
    embedding: options.Embedding = None,
    maps: Annotated[
        list[str] | None,
        typer.Option(
            "--maps",
            help="What the maps are about: output, class, prediction; repeat it for several. [dim]Default: all that"
            " the network can be asked.[/dim]",
            show_default=False,
            rich_help_panel=options.ASK,
        ),
    ] = None,
    top: Annotated[
        int, typer.Option("--top", "-k", help="How many of the best classes have a map.", rich_help_panel=options.ASK)
    ] = 5,
    products: Annotated[
        int | None,
        typer.Option(
            "--products",
            help="Multiplications that a filter is found by; one more leaves a sixth of the error. [dim]Default:"
            " 4.[/dim]",
            show_default=False,
            rich_help_panel=options.ASK,
        ),
    ] = None,
    photographs: Annotated[
        list[Path] | None,
        typer.Option(
            "--photos",
            help="Photographs, folders or patterns, to check the file with, and to calibrate int8 with; repeat it for"
            " several. [dim]Default: those that are installed.[/dim]",
            show_default=False,
            rich_help_panel=options.WRITE,
        ),
    ] = None,
    precision: Annotated[
        str, typer.Option("--precision", help="float32 or int8.", rich_help_panel=options.WRITE)
    ] = "float32",
    opset: Annotated[
        int | None,
        typer.Option(
            "--opset",
            help="Version of ONNX's operators. [dim]Default: 18.[/dim]",
            show_default=False,
            rich_help_panel=options.WRITE,
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write.", rich_help_panel=options.WRITE)] = Path(
        "model.onnx"
    ),
    as_json: options.Json = False,
) -> int:
    """Write a network and its exact maps as an ONNX file, which needs no torch to run.

    The network has to end in a mean over its last map and a linear layer, as most
    convolutional networks do. Before the file is left behind, ONNX Runtime runs
    it on photographs and its maps are compared with the library's.

    \b
    [bold]Examples[/bold]
    l2caf export tf_efficientnet_lite0
    l2caf export timm:resnet50 --maps class --top 3 \\
        --out resnet50.onnx
    l2caf export birds/embedding.safetensors --out birds.onnx
    l2caf export tf_efficientnet_lite0 --precision int8 \\
        --photos photos/ --out int8.onnx
    l2caf explain photo.jpg --network model.onnx
    """
    from ..tasks.export import ExportRequest, export_network
    from ..tasks.network_choice import NetworkChoice

    request = ExportRequest(
        out,
        NetworkChoice(network, weights, layer, view=view, device="cpu", embedding=embedding),
        maps,
        top=top,
        precision=precision,
        photographs=None if photographs is None else expanded(photographs),
        products=products,
        opset=opset,
    )
    with terminal.bar(f"loading {network}") as progress:
        result = export_network(request, progress=progress)
    if as_json:
        terminal.print_json(result.as_dict())
    else:
        _report(result)
    return 0


def _report(result: Exported) -> None:
    console = terminal.output()
    console.print(terminal.table(["output", "what it is"], result.card.outputs.items()))
    rows = [
        [
            kind,
            str(one.maps),
            f"{one.error:.1e}",
            f"{one.correlation:.4f}",
            f"{one.least_correlation:.4f}",
            str(one.not_converged),
        ]
        for kind, one in result.check.maps.items()
    ]
    heads = ["maps of", "compared", "largest error", "rank correlation", "least", "not converged"]
    console.print(terminal.table(heads, rows, right=heads[1:]))
    same = result.check.same_best
    best = "" if same is None else f", the same best class on {same:.0%}"
    plural = "" if result.check.photographs == 1 else "s"
    said = f"against the library on {result.check.photographs} photograph{plural}{best}"
    console.print(f"{said}; {result.card.precision}, {result.path.stat().st_size / 1e6:.1f} MB", highlight=False)
    console.print(f"written: {result.path}", highlight=False, soft_wrap=True)
