"""`l2caf time`: how long one map takes on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..progress import part
from . import options, terminal

if TYPE_CHECKING:
    from ..evaluation.timing import Timing

MEASURING = "How it is measured"


def command(
    networks: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NETWORK",
            help="Names from 'l2caf networks'."
            " [dim]Default: the embedded one, ResNet-50, GoogLeNet, DenseNet-161, VGG-16.[/dim]",
            show_default=False,
        ),
    ] = None,
    image: Annotated[
        Path | None,
        typer.Option(help="A photograph. [dim]Default: an installed one.[/dim]", rich_help_panel=MEASURING),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; the median counts.", rich_help_panel=MEASURING)] = 5,
    out: options.Out = options.DEFAULT_OUT,
    as_json: options.Json = False,
) -> int:
    """Time one map on this machine: solved, by fast descent and by vanilla descent, and Grad-CAM.

    The same picture as the paper's timing figure, whose own numbers stand beside it. Networks whose trained
    weights cannot be had are timed with random ones: a step costs the same, but their number may differ.

    [bold]Examples[/bold]

    \b
    l2caf time
    l2caf time efficientnet_lite0 torchvision:vgg16 --rounds 9
    l2caf time timm:convnext_tiny --image photo.jpg --json
    """
    from ..images import open_image
    from ..tasks.outputs import ready_folder
    from ..tasks.samples import sample_path

    photograph = open_image(image or sample_path("cat"))
    ready_folder(out)
    with terminal.working("loading"):
        from ..evaluation.timing import EXTRA, NETWORKS, time_network
        from ..networks.untrained import trained_or_random

    names = list(dict.fromkeys(networks or NETWORKS))
    timings: list[Timing] = []
    each = rounds + EXTRA
    with terminal.bar("timing") as progress:
        for number, name in enumerate(names):
            model = trained_or_random(name, photograph)
            inputs = model.batch([model.prepare(photograph).input])
            so_far = part(progress, number * each, len(names) * each)
            timings.append(time_network(model, inputs, rounds=rounds, progress=so_far))
    machine = _machine()
    document: dict[str, Any] = {"machine": machine, "networks": [timing.as_json() for timing in timings]}
    written = _write(timings, document, out, machine)
    document["written"] = [str(path) for path in written]
    if as_json:
        terminal.print_json(document)
    else:
        _report(timings, machine, written)
    return 0


def _write(timings: list[Timing], document: dict[str, Any], out: Path, machine: str) -> list[Path]:
    from ..files import write_whole
    from ..rendering.figures import save
    from ..tasks.time import plot

    paths = [out / "time.json", out / "time.png"]
    with write_whole(paths[0]) as temporary:
        temporary.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", "utf-8")
    save(plot(timings, machine=machine), paths[1])
    return paths


def _report(timings: list[Timing], machine: str, written: list[Path]) -> None:
    from ..evaluation.timing import TITLES
    from ..tasks.time import short

    console = terminal.output()
    columns = ["network", "weights", "solver", *TITLES.values(), "steps"]
    rows = []
    for timing in timings:
        cells = [
            ("~" if name in timing.extrapolated else "") + short(timing.seconds[name])
            if name in timing.seconds
            else "-"
            for name in TITLES
        ]
        rows.append([timing.network, timing.weights, timing.solver, *cells, str(timing.steps)])
        if timing.paper:
            cells = [short(timing.paper[name]) if name in timing.paper else "" for name in TITLES]
            rows.append(["  in the paper", "trained", "", *cells, ""])
    console.print(terminal.table(columns, rows, right=columns[3:]))
    console.print(
        "~ extrapolated from a few steps to as many as fast descent took; the paper's machine is unknown,"
        f" this one: {machine}.",
        highlight=False,
    )
    if any(timing.weights == "random" for timing in timings):
        console.print(
            "Random weights cost the same a step, but may need another number of steps than trained ones.",
            highlight=False,
        )
    for timing in timings:
        for name, refusal in timing.refused.items():
            console.print(f"{timing.network}, {TITLES[name]}: {refusal}", highlight=False, markup=False)
    console.print(", ".join(map(str, written)), highlight=False, soft_wrap=True)


def _machine() -> str:
    import platform

    import torch

    return f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}"
