"""`l2caf explain`: photographs and folders of them, each with where the network looked."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InputError
from . import options, terminal
from .patterns import expanded

if TYPE_CHECKING:
    from ..tasks.explain import ExplainResult
    from ..tasks.explained import Written

MOST_ROWS = 100  # rows of the closing table; a folder of thousands would bury the summary


def command(
    images: Annotated[
        list[Path],
        typer.Argument(
            metavar="IMG",
            help="Photographs, folders of them, and patterns such as 'photos/*.jpg'; signals (.wav, .npy); volumes"
            " (.nii, .nii.gz, .npy).",
            show_default=False,
        ),
    ],
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
    published: Annotated[
        bool,
        typer.Option(
            "--published",
            help="The paper's objective for a class as printed, on scores that are not centred.",
            rich_help_panel=options.ASK,
        ),
    ] = False,
    seed: options.Seed = 0,
    region: Annotated[
        str | None,
        typer.Option(
            "--region",
            help="A part of an image-like output: x0,y0,x1,y1 in its pixels, or the file of a mask; of a volume"
            " i0,j0,k0,i1,j1,k1 in its voxels, or a mask on them.",
            rich_help_panel=options.ASK,
        ),
    ] = None,
    channel: Annotated[
        int | None,
        typer.Option(
            "--channel",
            help="The channel of such an output to raise there; alone, where it is predicted.",
            rich_help_panel=options.ASK,
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate", help="Samples per second of a signal in .npy; a WAV tells.", rich_help_panel=options.DRAW
        ),
    ] = None,
    plane: Annotated[
        str | None,
        typer.Option(
            "--slice",
            metavar="NAME:N",
            help="One plane of a volume, such as axial:90, in place of three through the peak.",
            rich_help_panel=options.DRAW,
        ),
    ] = None,
    montage: Annotated[
        str | None,
        typer.Option(
            "--montage",
            metavar="NAME",
            help="Many planes of a volume side by side: axial, coronal, sagittal.",
            rich_help_panel=options.DRAW,
        ),
    ] = None,
    spacing: Annotated[
        str | None,
        typer.Option(
            "--spacing",
            metavar="A,B,C",
            help="How far apart the voxels of an .npy are along its axes; a NIfTI tells.",
            rich_help_panel=options.DRAW,
        ),
    ] = None,
    nifti: Annotated[
        bool,
        typer.Option(
            "--nifti", help="Write the maps on the voxels of the scan (.nii.gz), too.", rich_help_panel=options.WRITE
        ),
    ] = False,
    signed: options.Signed = False,
    cmap: options.Cmap = None,
    alpha: options.Alpha = options.DEFAULT_ALPHA,
    contours: options.Contours = False,
    box: Annotated[
        bool, typer.Option("--box", help="Draw a box around the hottest region.", rich_help_panel=options.DRAW)
    ] = False,
    threshold: Annotated[
        float,
        typer.Option(
            "--threshold",
            help="Heat at which boxes end, as a share of the greatest, 0 to 1.",
            rich_help_panel=options.DRAW,
        ),
    ] = 0.25,
    bare: Annotated[
        bool,
        typer.Option("--bare", help="The map over the photograph alone, without titles.", rich_help_panel=options.DRAW),
    ] = False,
    npy: Annotated[
        bool, typer.Option("--npy", help="Write the maps as arrays (.npy), too.", rich_help_panel=options.WRITE)
    ] = False,
    out: options.OutFile = options.DEFAULT_OUT,
    batch: Annotated[int, typer.Option(min=1, help="Batch size.", rich_help_panel=options.WRITE)] = 16,
    engine: options.Engine = "local",
    workers: options.Workers = None,
    address: options.Address = None,
    gpus_per_worker: options.GpusPerWorker = 0.0,
    as_json: options.Json = False,
) -> int:
    """Show where a network looked, in one photograph or in thousands.

    With no class given, the map shows what keeps the prediction, or all of the output where its classes have no names;
    with --method l2caf, what keeps all scores as they are (class-oblivious, as in the paper).

    Of several photographs, index.html lists the pictures. Run the same
    command again to resume a run that was stopped. Exit code: 0 if all were
    explained, 1 if some were skipped, 2 if none could be.

    \b
    [bold]Examples[/bold]
    l2caf explain photo.jpg
    l2caf explain photo.jpg --method l2caf
    l2caf explain holiday/ cat.png --top 3 --out heatmaps
    l2caf explain photo.jpg --class "tiger cat" \\
        --class espresso --signed
    l2caf explain photo.jpg --network torchvision:vgg16 \\
        --layer features.28 --method gradcam
    l2caf explain photo.jpg --network unet.py:build \\
        --region 40,60,90,120 --channel 1
    l2caf explain tone.wav --network nets.py:build
    l2caf explain scan.nii.gz --network nets.py:build --nifti
    l2caf explain scan.nii.gz --network nets.py:build \\
        --out scroll.gif
    l2caf explain photo.jpg --network model.onnx
    l2caf explain photos/ --json --npy > maps.json
    """
    from ..rendering.style import Style
    from ..tasks.engine import EngineChoice
    from ..tasks.explain import ExplainRequest, explain_photographs
    from ..tasks.network_choice import NetworkChoice, part_named
    from ..tasks.question import Question
    from ..tasks.signals import are_signals, explain_signals
    from ..tasks.volumes import Planes, explain_volumes, volumes_among
    from .app import said

    request = ExplainRequest(
        expanded(images),
        out,
        NetworkChoice(network, weights, layer, part_named(output), view, device, embedding),
        Question(
            method,
            tuple(classes or ()),
            top=top,
            published=published,
            filter=filter,
            solver=solver,
            seed=seed,
            region=region,
            channel=channel,
        ),
        Style(cmap=cmap, alpha=alpha, contours=contours, box=box, threshold=threshold, signed=signed),
        bare=bare,
        npy=npy,
        batch=batch,
    )
    executor = EngineChoice(engine, workers, address, gpus_per_worker).executor()
    volumes = volumes_among(request.images)
    explained: Any = partial(explain_photographs, executor=executor)
    if are_signals(request.images) or volumes is not None:
        if executor is not None:
            raise InputError("Volumes and signals are explained here: take the engine local.", field="engine")
        explained = partial(explain_signals, rate=rate)
    if volumes is not None:
        request = replace(request, images=volumes)
        explained = partial(explain_volumes, planes=Planes(plane, montage, _steps(spacing), nifti))
    with terminal.bar(f"loading {network}") as progress:
        result = explained(request, progress=progress, skipped=lambda one: terminal.warn(said(one.error, ["explain"])))
    terminal.say_assumed(result.assumed)
    if result.written:
        terminal.made(result.page or result.written[0].pictures[0])
    cut = [one.explained for one in result.written if one.explained.cut_off]
    if cut and view == "crop":
        least = min(cut, key=lambda one: one.seen or 0)
        one = len(cut) == 1
        which = f"{least.file} was shown" if one else f"{len(cut)} photographs was shown, least of {least.file}"
        whole = "all of it" if one else "all of each"
        wider = "squash" if request.network.is_exported else "whole"
        terminal.say_note(f"only the centre of {which} ({least.seen:.0%}); --view {wider} shows {whole}.")
    if as_json:
        terminal.print_json(result.as_dict())
    elif result.written:
        _report(result, request.folder)
    else:
        alone = result.failed[0].error if len(result.failed) == 1 else None
        why = said(alone, ["explain"]) if alone is not None else result.nothing(where="the lines above say why")
        terminal.fail(why, as_json=False)
    if not result.written:
        return 2
    return 1 if result.failed else 0


def _steps(text: str | None) -> tuple[float, float, float] | None:
    """Three lengths from what was typed."""
    if text is None:
        return None
    try:
        a, b, c = (float(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(f"{text!r} is not three lengths: give such as 3,1,1.", field="spacing") from error
    return a, b, c


def _report(result: ExplainResult, out: Path) -> None:
    from ..signals import is_signal
    from ..volumes import is_volume

    console = terminal.output()
    columns = ["file", "predicted", "layer", "solver", "outcome", "picture"]
    written = result.written
    console.print(terminal.table(columns, (_row(one) for one in written[:MOST_ROWS])))
    if len(written) > MOST_ROWS:
        console.print(f"… and {len(written) - MOST_ROWS} more")
    skipped = f", {len(result.failed)} skipped" if result.failed else ""
    plural = "" if len(written) == 1 else "s"
    first = written[0].explained.file or Path()
    what = "signal" if is_signal(first) else "volume" if is_volume(first) else "photograph"
    console.print(f"{len(written)} {what}{plural} explained{skipped}; pictures in {out}", highlight=False)
    if result.page:
        console.print(f"all of them: {result.page}", highlight=False, soft_wrap=True)


def _row(one: Written) -> list[str]:
    found = one.explained
    pictures = ", ".join(path.name for path in one.pictures)
    predicted = str(found.prediction) if found.prediction else "-"
    return [str(found.file), predicted, found.layer, found.solver or "-", ", ".join(found.outcomes) or "-", pictures]
