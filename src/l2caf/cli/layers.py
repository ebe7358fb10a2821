"""`l2caf layers`: where in a network a filter can sit."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from . import options, terminal


def command(
    network: Annotated[str, typer.Argument(help="A name from 'l2caf networks'.", show_default=False)],
    select: options.Select = None,
    as_json: options.Json = False,
) -> int:
    """List the layers whose output holds a map, as one run of the network shows them.

    Weights do not matter for this, so none are downloaded.

    [bold]Examples[/bold]

    \b
    l2caf layers efficientnet_lite0
    l2caf layers timm:resnet50
    l2caf layers mynets.py:build --json
    """
    with terminal.working(f"looking through {network}"):
        from ..networks.untrained import layers_of
        from ..tasks.network import part_named

        rows, default = layers_of(network, select=part_named(select))
    if as_json:
        document: list[dict[str, Any]] = [
            {
                "name": row.name,
                "type": row.kind,
                "shape": list(row.shape),
                "layout": row.layout.kind,
                "grid": list(row.layout.grid),
                "prefix": row.layout.prefix,
                "call": row.call,
                "calls": row.calls,
                "reaches_output": row.reaches,
                "default": row == default,
            }
            for row in rows
        ]
        terminal.print_json({"network": network, "default": default.name, "layers": document})
        return 0
    cells = [
        [
            f"{row}{'  (default)' if row == default else ''}",
            row.kind,
            " × ".join(map(str, row.shape)),
            row.layout.kind.replace("_", " ") + (f", {row.layout.prefix} before" if row.layout.prefix else ""),
            " × ".join(map(str, row.layout.grid)),
            "yes" if row.reaches else "no",
        ]
        for row in rows
    ]
    columns = ["layer", "type", "shape", "layout", "grid", "reaches the output"]
    console = terminal.output()
    console.print(terminal.table(columns, cells))
    console.print(f"{len(rows)} layers of {network}; the default is {default}", highlight=False)
    return 0
