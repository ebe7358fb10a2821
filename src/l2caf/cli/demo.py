"""`l2caf demo`: a folder of pictures from nothing but what is installed."""

from __future__ import annotations

from pathlib import Path

from . import options, terminal

DEFAULT_OUT = Path("l2caf-demo")


def command(out: options.Out = DEFAULT_OUT, as_json: options.Json = False) -> int:
    """Show what l2caf can do, on photographs and a network that come with it.

    \b
    [bold]Examples[/bold]
    l2caf demo
    l2caf demo --out pictures
    """
    from ..tasks.demo import DemoRequest, demonstrate

    with terminal.bar("loading") as progress:
        result = demonstrate(DemoRequest(out), progress=progress)
    terminal.made(out)
    if as_json:
        terminal.print_json(result.as_dict())
        return 0
    console = terminal.output()
    rows = [
        [
            one.path.name,
            "\n".join([one.shows, *(f"  {key}: {value:.3f}" for key, value in one.measured.items())]),
        ]
        for one in result.exhibits
    ]
    console.print(terminal.table(["picture", "what it shows"], rows))
    console.print(f"{len(rows)} pictures in {out}", highlight=False, soft_wrap=True)
    return 0
