"""`l2caf serve`: the page, for people who would rather look than read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import options, terminal

PAGE, OFFERED, LIMITS = "Where it is", "What it offers", "Limits"


def command(
    host: Annotated[
        str,
        typer.Option(help="The address to listen at; any but 127.0.0.1 needs --auth.", rich_help_panel=PAGE),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", "-p", help="The port; 0 for any that is free.", rich_help_panel=PAGE)
    ] = 7860,
    auth: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME:PASSWORD",
            help="Who may come in; repeat it for several.",
            envvar="L2CAF_AUTH",
            show_envvar=True,
            rich_help_panel=PAGE,
        ),
    ] = None,
    root_path: Annotated[
        str,
        typer.Option(help="The page's address behind a proxy, as https://example.org/l2caf.", rich_help_panel=PAGE),
    ] = "",
    opening: Annotated[
        bool, typer.Option("--open", help="Open it in this machine's browser.", rich_help_panel=PAGE)
    ] = False,
    networks: Annotated[
        list[str] | None,
        typer.Option(
            "--network",
            "-n",
            help="A network to offer first: a name, a checkpoint, or code of yours; repeat it for several."
            " [dim]Visitors can type timm:NAME and torchvision:NAME, and no files.[/dim]",
            rich_help_panel=OFFERED,
        ),
    ] = None,
    device: options.Device = "auto",
    gallery: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="A folder of pictures that queries are matched with.", rich_help_panel=OFFERED
        ),
    ] = None,
    report: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            help="The folder of an evaluation, or of several; repeat it for more.",
            rich_help_panel=OFFERED,
        ),
    ] = None,
    pictures: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the images of these evaluations lie.", rich_help_panel=OFFERED),
    ] = None,
    upload_mb: Annotated[
        float, typer.Option("--upload-mb", help="Megabytes of one upload.", rich_help_panel=LIMITS)
    ] = 50,
    megapixels: Annotated[
        float, typer.Option("--megapixels", help="Megapixels of one picture.", rich_help_panel=LIMITS)
    ] = 40,
    frames: Annotated[
        int, typer.Option("--frames", min=1, help="Frames of a clip that are explained.", rich_help_panel=LIMITS)
    ] = 600,
) -> int:
    """Open a page in the browser that shows where a network looks.

    Pictures, matches, clips and evaluations, without a line of code. The page
    asks nothing of the internet, and keeps nothing of a visit.

    \b
    [bold]Examples[/bold]
    l2caf serve
    l2caf serve --open --port 0
    l2caf serve --network torchvision:resnet50
    l2caf serve --network out/embedding.safetensors \\
        --gallery birds/
    l2caf serve --report results/ --pictures images/
    l2caf serve --host 0.0.0.0 --auth ann:secret
    """
    from ..web.limits import Limits
    from ..web.server import Server, ServeRequest, read_auth

    request = ServeRequest(
        host,
        port,
        read_auth(auth or ()),
        networks=tuple(networks or ()),
        device=device,
        gallery=gallery,
        reports=tuple(report or ()),
        pictures=pictures,
        limits=Limits(upload_mb, megapixels, frames),
        root_path=root_path,
    )
    server = Server(request)
    try:
        address = server.open(in_browser=opening)
        console = terminal.output()
        console.print(f"{address}  (Ctrl-C ends it)", highlight=False)
        console.file.flush()  # whoever started it with a pipe waits for the address
        server.wait()
    finally:
        server.close()
    return 0
