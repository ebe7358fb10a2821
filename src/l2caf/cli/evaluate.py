"""`l2caf evaluate`: how well the maps find the objects of a labelled data set, and what a network retrieves there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..datasets import LAYOUTS
from ..methods.table import METHODS
from . import options, terminal

if TYPE_CHECKING:
    from ..evaluation.localization import LocalizationResult
    from ..evaluation.own_thresholds import OwnThresholds
    from ..evaluation.retrieval import RetrievalResult

MEASURE = "What is measured"


def command(
    dataset: Annotated[str, typer.Argument(help=f"Layout of the dataset: {LAYOUTS.words()}.", show_default=False)],
    root: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="Path to the dataset: its folder; for manifest, the file.", show_default=False
        ),
    ],
    network: options.Network = options.DEFAULT_NETWORK,
    weights: options.Weights = None,
    layer: options.Layer = None,
    device: options.Device = "auto",
    output: options.Output = None,
    embedding: options.Embedding = None,
    distance: options.Distance = None,
    protocol: Annotated[
        str,
        typer.Option(
            help="localisation: boxes of the maps; retrieval: R@K, NMI and LOC of an embedding.",
            rich_help_panel=MEASURE,
        ),
    ] = "localisation",
    split: Annotated[
        str | None,
        typer.Option(
            "--split",
            help="Of localisation: train or test pictures of cub and cars; held-out, those that the training of this"
            " network left aside; all. [dim]Default: those that it was not trained on, else all.[/dim] Of retrieval:"
            " unseen (the second half of the classes), seen (the first), held-out (pictures of the first that training"
            " left aside), all. [dim]Default: unseen for"
            f" {', '.join(entry.key for entry in LAYOUTS.values() if entry.halves)}, else all.[/dim]",
            rich_help_panel=MEASURE,
        ),
    ] = None,
    method: options.Methods = None,
    classes: Annotated[
        str | None,
        typer.Option(
            "--classes",
            help="What maps of a class are about: labels (those of the data number the network's outputs), predicted"
            " (each image's best class). [dim]Default: labels where their names are those of the network's classes;"
            " else there are no such maps, and no top-1.[/dim]",
            rich_help_panel=MEASURE,
        ),
    ] = None,
    threshold: Annotated[
        str,
        typer.Option(
            "--threshold",
            help="Where a map is cut: fixed (20 % of its maximum), or held-out (pictures that are not measured choose a"
            " threshold for each method; the fixed one is shown beside it).",
            rich_help_panel=MEASURE,
        ),
    ] = "fixed",
    view: options.View = "crop",
    limit: Annotated[
        int | None, typer.Option(help="At most this many images, spread over the data set.", rich_help_panel=MEASURE)
    ] = None,
    batch: Annotated[int, typer.Option(help="Batch size.", rich_help_panel=MEASURE)] = 16,
    out: options.Out = Path("l2caf-evaluation"),
    engine: options.Engine = "local",
    workers: options.Workers = None,
    address: options.Address = None,
    gpus_per_worker: options.GpusPerWorker = 0.0,
    as_json: options.Json = False,
) -> int:
    """Measure how well the maps of several methods find the objects of a labelled data set.

    The network runs once per image for all methods. Rows are written as
    they are measured; run the same command again to resume a run that was
    stopped. The folder gets rows.jsonl, results.json and report.html.

    \b
    [bold]Examples[/bold]
    l2caf evaluate imagenet /data/imagenet --limit 1000 \\
        --out results
    l2caf evaluate cub /data/CUB_200_2011 --view squash \\
        -m l2caf -m gradcam
    l2caf evaluate manifest boxes.csv \\
        --network mypackage.nets:build --classes labels \\
        --threshold held-out
    l2caf evaluate cub /data/CUB_200_2011 \\
        --network out/embedding.safetensors \\
        --protocol retrieval
    """
    from ..evaluation.localization import LocalizationResult
    from ..tasks.engine import EngineChoice
    from ..tasks.evaluate import EvaluationRequest, evaluate
    from ..tasks.network_choice import NetworkChoice, part_named

    request = EvaluationRequest(
        dataset=dataset,
        root=root,
        out=out,
        network=NetworkChoice(
            network, weights, layer, part_named(output), device=device, embedding=embedding, distance=distance
        ),
        protocol=protocol,
        split=split,
        methods=tuple(method or ()),
        classes=classes,
        view=view,
        limit=limit,
        batch=batch,
        threshold=threshold,
    )
    executor = EngineChoice(engine, workers, address, gpus_per_worker).executor()
    with terminal.bar("starting") as progress:
        evaluation = evaluate(request, executor=executor, progress=progress)
    result = evaluation.result
    terminal.say_assumed(result.assumed)
    terminal.made(evaluation.report)
    if isinstance(result, LocalizationResult) and result.left_out:
        terminal.say_left_out(result.left_out)
    for name, reason in result.bad.items():
        terminal.warn(f"{name}: {reason}")
    if as_json:
        terminal.print_json(evaluation.as_dict())
    elif isinstance(result, LocalizationResult):
        _show(result, evaluation.report)
    else:
        _show_retrieval(result, evaluation.report)
    return 0


def _show_retrieval(result: RetrievalResult, report: Path) -> None:
    from ..evaluation.retrieval import BASELINE, RETRIEVAL_MEASURES
    from ..evaluation.scores import MEASURES
    from ..reports.page import shown

    console = terminal.output()
    heads = list(RETRIEVAL_MEASURES.values())
    found = [shown(result.retrieval[measure]) for measure in RETRIEVAL_MEASURES]
    console.print(terminal.table(heads, [found], right=heads))
    compared = result.comparison
    if compared.methods:
        margins = {
            row.ours: shown(row.points)
            for row in compared.differences
            if row.theirs == BASELINE and row.measure == "loc"
        }
        rows = [
            [METHODS.title(name), *(shown(scores.measures[m]) for m in compared.measures), margins.get(name, "")]
            for name, scores in compared.methods.items()
        ]
        for row in result.published:
            cells = [f"{row.loc:.1f}", *[""] * (len(compared.measures) - 1), f"{row.margin:.1f}"]
            rows.append([f"in the paper: {row.method}, {row.backbone}, {row.loss}", *cells])
        heads = [*(MEASURES[measure] for measure in compared.measures), "LOC − that of Grad-CAM"]
        console.print(terminal.table(["", *heads], rows, right=heads))
    console.print(f"compared: {result.compares}", highlight=False, markup=False)
    words = (
        f"{compared.images} images of {result.classes} classes, {len(result.bad)} files could not be used;"
        " per cent, with 95 % intervals"
    )
    console.print(words, highlight=False)
    console.print(f"report: {report}", highlight=False)


def _show(result: LocalizationResult, report: Path) -> None:
    from ..evaluation.published import localisation_rows
    from ..evaluation.scores import MEASURES
    from ..reports.page import shown

    console = terminal.output()
    compared = result.comparison
    rows = [
        [METHODS.title(name), *(shown(scores.measures[measure]) for measure in compared.measures)]
        for name, scores in compared.methods.items()
    ]
    for row in localisation_rows(result.published):
        cells = {"loc_top1": f"{row.loc_top1:.1f}", "loc_top5": f"{row.loc_top5:.1f}"}
        rows.append([f"in the paper: {row.method}, {row.backbone}", *(cells.get(m, "") for m in compared.measures)])
    heads = [MEASURES[measure] for measure in compared.measures]
    console.print(terminal.table(["", *heads], rows, right=heads))
    if result.own is not None:
        _show_own(result, result.own)
    for key, value in result.classification.items():
        console.print(f"classification {key}: {shown(value)}", highlight=False)
    words = f"{compared.images} images, {len(result.bad)} files could not be read; per cent, with 95 % intervals"
    console.print(words, highlight=False)
    console.print(f"report: {report}", highlight=False)


def _show_own(result: LocalizationResult, own: OwnThresholds) -> None:
    from ..reports.thresholds import chosen_by, head_of, rows_of

    console, heads = terminal.output(), head_of(result.comparison, own)
    console.print(terminal.table(heads, rows_of(result.comparison, own), right=heads[1:]))
    console.print(chosen_by(own), highlight=False)
