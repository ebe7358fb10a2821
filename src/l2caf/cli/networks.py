"""`l2caf networks`: what the catalogue offers."""

from __future__ import annotations

from typing import Annotated

import typer

from . import options, terminal


def command(
    pattern: Annotated[str | None, typer.Argument(help="A part of a name, or wildcards.", show_default=False)] = None,
    as_json: options.Json = False,
) -> int:
    """List the networks that can be named.

    \b
    [bold]Examples[/bold]
    l2caf networks
    l2caf networks resnet
    l2caf networks "timm:convnext*"
    """
    from ..tasks.networks import NetworksRequest, list_networks

    with terminal.bar("looking through the catalogue") as progress:
        result = list_networks(NetworksRequest(pattern), progress=progress)
    rows = result.rows
    if as_json:
        terminal.print_json(result.as_list())
        return 0
    cells = [
        [row.name, f"{row.parameters / 1e6:.1f} M" if row.parameters else "-", row.needs, row.description]
        for row in rows
    ]
    console = terminal.output()
    console.print(terminal.table(["name", "parameters", "needs", "what it is"], cells, right=["parameters"]))
    if pattern is not None:
        console.print(f"{len(rows)} network{'' if len(rows) == 1 else 's'}", highlight=False)
    return 0
