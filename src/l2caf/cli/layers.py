"""`l2caf layers`: where in a network a filter can sit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from . import options, terminal

if TYPE_CHECKING:
    from ..recording.layout import Layout


def command(
    network: Annotated[str, typer.Argument(help="A name from 'l2caf networks'.", show_default=False)],
    output: options.Output = None,
    as_json: options.Json = False,
) -> int:
    """List the layers whose output holds a map, as one run of the network shows them.

    Weights do not matter for this, so none are downloaded.

    \b
    [bold]Examples[/bold]
    l2caf layers efficientnet_lite0
    l2caf layers timm:resnet50
    l2caf layers mynets.py:build --json
    """
    from ..tasks.layers import LayersRequest, list_layers
    from ..tasks.network_choice import part_named

    with terminal.bar(f"looking through {network}") as progress:
        result = list_layers(LayersRequest(network, part_named(output)), progress=progress)
    if as_json:
        terminal.print_json(result.as_dict())
        return 0
    cells = [
        [
            f"{row}{'  (default)' if row == result.default else ''}",
            row.kind,
            " × ".join(map(str, row.shape)),
            _laid_out(row.layout),
            " × ".join(map(str, row.layout.grid)),
            str(row.verdict),
            "yes" if row.reaches else "no",
        ]
        for row in result.layers
    ]
    columns = ["layer", "type", "shape", "layout", "grid", "positions", "reaches the output"]
    console = terminal.output()
    console.print(terminal.table(columns, cells))
    console.print(f"{len(result.layers)} layers of {network}; the default is {result.default}", highlight=False)
    return 0


def _laid_out(layout: Layout) -> str:
    beside = [f"{count} {where}" for count, where in ((layout.prefix, "before"), (layout.suffix, "behind")) if count]
    order = [] if layout.order is None else [f"order {layout.order}"]
    return ", ".join([layout.kind.replace("_", " "), *beside, *order])
