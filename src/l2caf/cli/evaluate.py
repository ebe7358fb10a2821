"""`l2caf evaluate`: how well the maps find the objects of a labelled data set, and what a network retrieves there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..datasets import LAYOUTS
from ..errors import InputError
from ..methods.table import METHODS
from . import options, terminal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MEASURE = "What is measured"


def command(
    dataset: Annotated[str, typer.Argument(help=f"{LAYOUTS.words()}.", show_default=False)],
    root: Annotated[Path, typer.Argument(metavar="DIR", help="Where it lies.", show_default=False)],
    network: options.Network = options.DEFAULT_NETWORK,
    weights: options.Weights = None,
    layer: options.Layer = None,
    device: options.Device = "auto",
    protocol: Annotated[
        str,
        typer.Option(
            help="localisation: boxes of the maps; retrieval: R@K, NMI and LOC of an embedding.",
            rich_help_panel=MEASURE,
        ),
    ] = "localisation",
    part: Annotated[
        str | None,
        typer.Option(
            help="Of retrieval: unseen (the second half of the classes), seen (the first), held-out (pictures of the"
            " first that training left aside), all. [dim]Default: unseen for cub and cars, else all.[/dim]",
            rich_help_panel=MEASURE,
        ),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            "-m",
            help=f"{METHODS.words()}; repeat it for several. [dim]Default:"
            f" {', '.join(METHODS.default_in('evaluate'))}; of retrieval l2caf, gradcam-abs, gradcam.[/dim]",
            rich_help_panel=MEASURE,
        ),
    ] = None,
    view: Annotated[
        str,
        typer.Option(
            help="crop: resize and cut out the centre; squash: the whole image, stretched.",
            rich_help_panel=MEASURE,
        ),
    ] = "crop",
    limit: Annotated[
        int | None, typer.Option(help="At most N images, spread over all.", rich_help_panel=MEASURE)
    ] = None,
    batch: Annotated[int, typer.Option(help="Images at once.", rich_help_panel=MEASURE)] = 16,
    out: options.Out = Path("l2caf-evaluation"),
    as_json: options.Json = False,
) -> int:
    """Measure how well the maps of several methods find the objects of a labelled data set.

    The network runs once an image for all methods. Rows are written as they are measured: a run that is stopped goes on
    where it was when the same command is given again. OUT gets rows.jsonl, results.json and report.html.

    [bold]Examples[/bold]

    \b
    l2caf evaluate imagenet /data/imagenet --limit 1000 --out results
    l2caf evaluate cub /data/CUB_200_2011 --view squash -m l2caf -m gradcam
    l2caf evaluate manifest boxes.csv --network mypackage.nets:build
    l2caf evaluate cub /data/CUB_200_2011 --network out/embedding.safetensors --protocol retrieval
    """
    if protocol == "retrieval":
        return _retrieval(
            dataset, root, network, weights, layer, device, method=method, view=view, part=part, limit=limit,
            batch=batch, out=out, as_json=as_json,
        )  # fmt: skip
    if protocol != "localisation" or part is not None:
        raise InputError(
            f"There is no protocol {protocol!r}: take localisation or retrieval."
            if protocol != "localisation"
            else "--part belongs to retrieval: leave it out, or take --protocol retrieval."
        )
    from .. import datasets
    from ..evaluation.localization import Trial
    from ..preprocessing import viewed
    from ..tasks.evaluate import REPORT, Names, run_evaluation

    methods = METHODS.checked(method or METHODS.default_in("evaluate"))
    model = options.model(network, weights, device=device)
    found = datasets.read(dataset, root).limit(limit)
    trial = Trial(
        network=model.network,
        methods=methods,
        view=viewed(model.preprocess, view),
        labels_are_classes=_same_classes(dataset, found.class_names, model.class_names),
        layer=layer,
        device=model.device,
    )
    names = Names(found.name, model.name, view, "table1_imagenet_standard" if dataset == "imagenet" else None)
    with _bar(len(found.samples)) as watch:
        results = run_evaluation(found, trial, out, names=names, size=batch, watch=watch)
    for name, reason in results["bad"].items():
        terminal.warn(f"{name}: {reason}")
    if as_json:
        terminal.print_json(results)
        return 0
    _show(results, out / REPORT)
    return 0


def _retrieval(
    dataset: str, root: Path, network: str, weights: Path | None, layer: str | None, device: str, **how: Any
) -> int:
    from ..datasets.splits import part_of, trained_by
    from ..evaluation.retrieval import DEFAULT_METHODS, RetrievalTrial
    from ..preprocessing import viewed
    from ..reports.retrieval import published_rows
    from ..tasks.evaluate import REPORT, Names, run_retrieval

    methods = METHODS.for_embeddings().checked(how["method"] or DEFAULT_METHODS)
    methods = tuple(sorted(methods, key=lambda key: key == "gradcam"))  # vanilla Grad-CAM last: others less it
    found, part = part_of(dataset, root, part=how["part"], network=network)
    found = found.limit(how["limit"])
    model = options.model(network, weights, device=device).as_embedding()
    trial = RetrievalTrial(model, viewed(model.preprocess, how["view"]), methods, layer)
    names = Names(found.name, model.name, how["view"])
    paper = published_rows(dataset, trained_by(network)) if part == "unseen" else []
    with _bar(len(found.samples)) as watch:
        results = run_retrieval(
            found, trial, how["out"], names=names, part=part, paper=paper, size=how["batch"], watch=watch
        )
    for name, reason in results["bad"].items():
        terminal.warn(f"{name}: {reason}")
    if how["as_json"]:
        terminal.print_json(results)
        return 0
    _show_retrieval(results, how["out"] / REPORT)
    return 0


def _show_retrieval(results: Mapping[str, Any], report: Path) -> None:
    from ..evaluation.scores import MEASURES
    from ..reports.page import shown
    from ..reports.retrieval import RETRIEVAL_MEASURES
    from ..reports.sections import measures_of

    console = terminal.output()
    heads = list(RETRIEVAL_MEASURES.values())
    found = [shown(results["retrieval"][measure]) for measure in RETRIEVAL_MEASURES]
    console.print(terminal.table(heads, [found], right=heads))
    if results["methods"]:
        measures = measures_of(results)
        to_vanilla = [row for row in results["differences"] if row["theirs"] == "gradcam"]
        margins = {row["ours"]: row for row in to_vanilla if row["measure"] == "loc"}
        rows = [
            [
                METHODS[name].title,
                *(shown(scores[m]) for m in measures),
                shown(margins[name]) if name in margins else "",
            ]
            for name, scores in results["methods"].items()
        ]
        for row in results["published"]:
            cells = [f"{row['loc']:.1f}", *[""] * (len(measures) - 1), f"{row['margin']:.1f}"]
            rows.append([f"in the paper: {row['method']}, {row['backbone']}, {row['loss']}", *cells])
        heads = [*(MEASURES[measure] for measure in measures), "LOC − that of Grad-CAM"]
        console.print(terminal.table(["", *heads], rows, right=heads))
    words = (
        f"{results['images']} images of {results['classes']} classes, {len(results['bad'])} files could not be used;"
        " per cent, with 95 % intervals"
    )
    console.print(words, highlight=False)
    console.print(f"report: {report}", highlight=False)


def _same_classes(dataset: str, theirs: Mapping[int, str], ours: tuple[str, ...]) -> bool:
    """Whether the labels are classes of the network: by definition, or because the names agree."""
    if not LAYOUTS[dataset].own_classes:
        return True
    return bool(ours) and all(label < len(ours) and ours[label] == name for label, name in theirs.items())


def _show(results: Mapping[str, Any], report: Path) -> None:
    from ..evaluation.published import published
    from ..evaluation.scores import MEASURES
    from ..reports.page import shown
    from ..reports.sections import measures_of

    console = terminal.output()
    measures = measures_of(results)
    rows = [
        [METHODS[name].title, *(shown(scores[measure]) for measure in measures)]
        for name, scores in results["methods"].items()
    ]
    if results["published"]:
        for row in published()[results["published"]]["rows"]:
            cells = {"loc_top1": f"{row['loc_top1']:.1f}", "loc_top5": f"{row['loc_top5']:.1f}"}
            rows.append([f"in the paper: {row['method']}, {row['backbone']}", *(cells.get(m, "") for m in measures)])
    heads = [MEASURES[measure] for measure in measures]
    console.print(terminal.table(["", *heads], rows, right=heads))
    for key, value in results["classification"].items():
        console.print(f"classification {key}: {shown(value)}", highlight=False)
    words = f"{results['images']} images, {len(results['bad'])} files could not be read; per cent, with 95 % intervals"
    console.print(words, highlight=False)
    console.print(f"report: {report}", highlight=False)


def _bar(total: int) -> Any:
    from contextlib import contextmanager

    @contextmanager
    def shown() -> Iterator[Any]:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        console = terminal.errors()
        columns = (
            TextColumn("measuring"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[scores]}"),
        )
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
            task = bar.add_task("measuring", total=total, scores="")

            def watch(done: int, _: int, scores: Mapping[str, float]) -> None:
                words = "  ".join(f"{name} {score:.1f}" for name, score in scores.items())
                bar.update(task, completed=done, scores=words)

            yield watch

    return shown()
