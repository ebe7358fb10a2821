"""`l2caf video`: clips, each with where the network looked in its frames."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import options, terminal
from .patterns import expanded

if TYPE_CHECKING:
    from ..tasks.video import Filmed, VideoResult


def command(
    clips: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="CLIP",
            help="Clips (mp4, webm, mkv, avi, gif), folders of frames, folders of clips.",
            show_default=False,
        ),
    ] = None,
    network: options.Network = options.DEFAULT_NETWORK,
    weights: options.Weights = None,
    layer: options.Layer = None,
    output: options.Output = None,
    view: options.View = "crop",
    device: options.Device = "auto",
    embedding: options.Embedding = None,
    classes: options.Classes = None,
    top: Annotated[
        int | None,
        typer.Option("--top", "-k", help="A map for each of the K best classes.", rich_help_panel=options.ASK),
    ] = None,
    method: options.Method = None,
    filter: options.Filter = "l2",
    solver: options.Solver = "auto",
    seed: options.Seed = 0,
    frames: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Frames that a network for clips sees at once. [dim]Default: what it was made for, else 16.[/dim]",
            rich_help_panel=options.ASK,
        ),
    ] = None,
    stride: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Take every Nth frame. [dim]Default: as the network's frame rate wants it, else all.[/dim]",
            rich_help_panel=options.ASK,
        ),
    ] = None,
    window: Annotated[
        str | None,
        typer.Option(
            help="Which frames a network for clips sees: slide (one stretch after the other), middle (one stretch),"
            " spread (over all of the clip). [dim]Default: spread for a recurrent network, else slide.[/dim]",
            rich_help_panel=options.ASK,
        ),
    ] = None,
    fps: Annotated[
        float | None,
        typer.Option(
            help="Frames of a folder that make a second. [dim]Default: 25; a file tells its own times.[/dim]",
            rich_help_panel=options.DRAW,
        ),
    ] = None,
    smooth: Annotated[
        int,
        typer.Option(
            min=1,
            help="Let each map be the mean over so many frames, for a network of single pictures.",
            rich_help_panel=options.DRAW,
        ),
    ] = 1,
    signed: options.Signed = False,
    cmap: options.Cmap = None,
    alpha: options.Alpha = options.DEFAULT_ALPHA,
    contours: options.Contours = False,
    width: Annotated[
        int | None,
        typer.Option(
            help="Width of the film in pixels. [dim]Default: as the clip.[/dim]", rich_help_panel=options.DRAW
        ),
    ] = None,
    gif: Annotated[
        bool, typer.Option("--gif", help="A GIF in place of an mp4.", rich_help_panel=options.WRITE)
    ] = False,
    demo: Annotated[
        bool, typer.Option("--demo", help="Make a clip to look at, and explain that.", rich_help_panel=options.WRITE)
    ] = False,
    out: options.OutFile = options.DEFAULT_OUT,
    batch: Annotated[
        int, typer.Option(min=1, help="Single pictures that run at once.", rich_help_panel=options.WRITE)
    ] = 4,
    as_json: options.Json = False,
) -> int:
    """Show where a network looked in clips, as films.

    A network for single pictures is asked frame by frame; one for clips, recurrent or 3-D, about several frames at
    once. Of each clip there are a film, a strip of its moments, a curve (how much each frame weighs, or how sure the
    network is), and the maps as numbers (.npz).

    Exit code: 0 if all were explained, 1 if some were skipped, 2 if none could be.

    \b
    [bold]Examples[/bold]
    l2caf video --demo
    l2caf video clip.mp4
    l2caf video clip.mp4 --class "sports car" --signed
    l2caf video clips/ --out films --width 640
    l2caf video clip.mp4 --network nets.py:i3d \\
        --window middle --frames 64
    l2caf video clip.mp4 --out where.gif --stride 3
    l2caf video frames/ --fps 10
    """
    from ..rendering.style import Style
    from ..tasks.moments import Sampling
    from ..tasks.network_choice import NetworkChoice, part_named
    from ..tasks.question import Question
    from ..tasks.video import VideoRequest, explain_clips

    request = VideoRequest(
        expanded(clips or []),
        out,
        NetworkChoice(network, weights, layer, part_named(output), view, device, embedding),
        Question(method, tuple(classes or ()), top=top, filter=filter, solver=solver, seed=seed),
        Style(cmap=cmap, alpha=alpha, contours=contours, signed=signed),
        Sampling(frames, stride, window, batch),
        smooth=smooth,
        gif=gif,
        width=width,
        demo=demo,
        fps=fps,
    )
    with terminal.bar(f"loading {network}") as progress:
        result = explain_clips(request, progress=progress, skipped=lambda one: terminal.warn(str(one.error)))
    terminal.say_assumed(result.assumed)
    for note in dict.fromkeys(note for one in result.written for note in one.notes):
        terminal.say_note(note)
    if result.written:
        terminal.made(result.written[0].files.film)
    if as_json:
        terminal.print_json(result.as_dict())
    elif result.written:
        _report(result, request.folder)
    else:
        terminal.fail(result.nothing(where="the lines above say why"), as_json=False)
    if not result.written:
        return 2
    return 1 if result.failed else 0


def _report(result: VideoResult, out: Path) -> None:
    console = terminal.output()
    console.print(
        terminal.table(["file", "frames", "seen", "layer", "solver", "outcome", "film"], map(_row, result.written))
    )
    skipped = f", {len(result.failed)} skipped" if result.failed else ""
    plural = "" if len(result.written) == 1 else "s"
    console.print(
        f"{len(result.written)} clip{plural} explained{skipped}; films, strips, curves and numbers in {out}",
        highlight=False,
    )


def _row(one: Filmed) -> list[str]:
    seen = "; ".join(map(str, one.seen[:2])) + ("; …" if len(one.seen) > 2 else "")
    outcomes = ", ".join(
        f"{count} {outcome}" if len(one.outcomes) > 1 else outcome for outcome, count in one.outcomes.items()
    )
    return [
        str(one.file),
        str(one.frames),
        seen or "-",
        one.layer,
        one.solver or "-",
        outcomes or "-",
        one.files.film.name,
    ]
