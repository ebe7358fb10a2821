"""`l2caf sanity`: do the maps depend on what the network has learnt?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ImageError, InputError
from ..methods.table import METHODS
from . import options, terminal

if TYPE_CHECKING:
    from PIL import Image

    from ..evaluation.verdicts import Finding, Sanity

TESTS = "How it is tested"
FEW = 3  # photographs; with fewer there is too little to compare with, and the installed ones join in


def command(
    images: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="IMG",
            help="Files and folders. [dim]Default: photographs that are installed.[/dim]",
            show_default=False,
        ),
    ] = None,
    network: options.Network = options.DEFAULT_NETWORK,
    weights: options.Weights = None,
    layer: options.Layer = None,
    select: options.Select = None,
    device: options.Device = "auto",
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            "-m",
            help=f"{METHODS.words()}; repeat it. [dim]Default: {', '.join(METHODS.default_in('evaluate'))}.[/dim]",
            rich_help_panel=TESTS,
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Random networks that are made.", rich_help_panel=TESTS)] = 3,
    stages: Annotated[
        int,
        typer.Option(
            help="Points on the way from the logits layer to all layers; 0 for every layer.",
            rich_help_panel=TESTS,
        ),
    ] = 12,
    out: options.Out = options.DEFAULT_OUT,
    as_json: options.Json = False,
) -> int:
    """Check that the maps depend on what the network has learnt.

    A copy of the network is randomised layer by layer, from the logits down, and its maps are compared with
    those of the trained network. Maps that stay as they were are about the photograph alone. What counts as
    changed is measured too: how alike the maps of different photographs are.

    [bold]Examples[/bold]

    \b
    l2caf sanity
    l2caf sanity holiday/ --method l2caf --method gradcam --seeds 5
    l2caf sanity holiday/ --network torchvision:resnet50 --stages 0 --out trust
    """
    if stages == 1 or stages < 0:
        raise InputError(f"{stages} is no cascade: give 2 or more, or 0 for every layer.", field="stages")
    names = METHODS.checked(method or METHODS.default_in("evaluate"))
    photographs = _photographs(images or [], out)
    from ..tasks.outputs import ready_folder

    ready_folder(out)
    model = options.model(network, weights, device=device)

    from ..evaluation.randomize import cascade
    from ..evaluation.sanity import sanity_check

    batch = model.batch([model.prepare(photograph).input for photograph in photographs.values()])
    plan = cascade(model.network, batch, stages=stages or None)
    with terminal.bar("randomising") as progress:
        found = sanity_check(
            model.network,
            batch,
            methods=names,
            seeds=seeds,
            stages=plan,
            layer=layer,
            select=options.part(select),
            progress=progress,
        )
    document = {"network": model.name, "photographs": list(photographs), **found.as_json()}
    first = next(iter(photographs))
    written = _write(found, document, out, model.name, model.view(photographs[first]), name=first)
    document["written"] = [str(path) for path in written]
    if as_json:
        terminal.print_json(document)
    else:
        _report(found, written)
    return 0


def _photographs(paths: list[Path], out: Path) -> dict[str, Image.Image]:
    """The photographs by name, and the installed ones where too few are given."""
    from ..images import open_image
    from ..tasks.outputs import gathered
    from ..tasks.samples import SAMPLES, sample_path

    files, refused = gathered(paths, out=out)
    if paths and not files:
        raise refused[0][1] if refused else InputError("There are no photographs: give files or folders.")
    for _, error in refused:
        terminal.warn(str(error))
    opened = {}
    for file in files:
        try:
            opened[str(file)] = open_image(file)
        except ImageError as error:
            if len(files) == 1:
                raise
            terminal.warn(str(error))
    if paths and not opened:
        raise InputError(f"None of the {len(files)} photographs can be read: the lines above say why.")
    if len(opened) < FEW:
        opened |= {str(sample_path(name)): open_image(sample_path(name)) for name in SAMPLES}
    return opened


def _write(
    found: Sanity, document: dict[str, Any], out: Path, network: str, view: Image.Image, *, name: str
) -> list[Path]:
    from ..files import write_whole
    from ..images import save_picture
    from ..rendering.figures import save
    from ..tasks.sanity import plot, sheet

    paths = [out / "sanity.json", out / "sanity.png", out / "sanity-maps.png"]
    with write_whole(paths[0]) as temporary:
        temporary.write_text(json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n", "utf-8")
    save(plot(found, title=f"Do the maps of {network} depend on what it has learnt?"), paths[1])
    save_picture(sheet(found, view, heading=f"{network}, randomised from the top: {Path(name).name}"), paths[2])
    return paths


def _report(found: Sanity, written: list[Path]) -> None:
    console = terminal.output()
    columns = ["method", "test", "verdict", "likeness kept (95 %)", "rank", "SSIM", "HOG"]
    rows = []
    for name, measured in found.methods.items():
        title = METHODS.title(name)
        rows.append([title, "logits layer random", *_cells(measured.logits)])
        rows.append(["", "all weights random", *_cells(measured.all_layers)])
    console.print(terminal.table(columns, rows, right=columns[4:]))
    console.print("kept: 1 = as before, 0 = as maps of other images; in brackets, how alike those are", highlight=False)
    for name, measured in found.methods.items():
        console.print(f"\n{METHODS.title(name)}. {measured.sentence}", highlight=False, markup=False)
    for name, refusal in found.refused.items():
        console.print(f"\n{METHODS.title(name)}. Not checked: {refusal}", highlight=False, markup=False)
    console.print(f"\n{', '.join(map(str, written))}", highlight=False, soft_wrap=True)


def _cells(finding: Finding) -> list[str]:
    kept = finding.kept
    alike = [f"{value.value:.2f} ({finding.control[measure]:.2f})" for measure, value in finding.similarity.items()]
    return [str(finding.verdict), f"{kept.value:.2f} ({kept.low:.2f} to {kept.high:.2f})", *alike]
