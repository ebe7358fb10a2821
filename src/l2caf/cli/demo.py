"""`l2caf demo`: a folder of pictures from nothing but what is installed."""

from __future__ import annotations

from pathlib import Path

from . import options, terminal

DEFAULT_OUT = Path("l2caf-demo")


def command(out: options.Out = DEFAULT_OUT, as_json: options.Json = False) -> int:
    """Show what it can do, on photographs and with a network that are installed already.

    [bold]Examples[/bold]

    \b
    l2caf demo
    l2caf demo --out pictures
    """
    from ..tasks.outputs import ready_folder

    ready_folder(out)
    model = options.model(options.DEFAULT_NETWORK, None, device="cpu")

    from ..tasks.demo import exhibits

    made = []
    stages = exhibits(model, out)
    with terminal.bar("drawing", len(stages)) as progress:
        for stage in stages:
            made.append(stage())
            progress("drawing", len(made), len(stages))
    if as_json:
        terminal.print_json(
            {
                "network": model.name,
                "pictures": [{"picture": str(one.path), "shows": one.shows, "measured": one.measured} for one in made],
            }
        )
        return 0
    console = terminal.output()
    rows = [
        [
            one.path.name,
            "\n".join([one.shows, *(f"  {key}: {value:.3f}" for key, value in one.measured.items())]),
        ]
        for one in made
    ]
    console.print(terminal.table(["picture", "what it shows"], rows))
    console.print(f"{len(made)} pictures in {out}", highlight=False, soft_wrap=True)
    return 0
