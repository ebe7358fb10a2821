"""`l2caf train`: make networks from labelled pictures; one command a recipe."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..datasets import trainable
from ..errors import InputError
from . import options, terminal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..datasets import Dataset
    from ..training.retrieval.recipe import TrainingResult
    from ..training.trainer import Watch

DATA, BATCH, STEPS = "The data", "What a batch is", "How it learns"

group = typer.Typer(name="train", add_completion=False, rich_markup_mode="rich", no_args_is_help=True)


@group.callback()
def _train() -> None:
    """Train a network on labelled pictures.

    [bold]Examples[/bold]

    \b
    l2caf train retrieval cub /data/CUB_200_2011 --loss triplet --out birds
    """


@group.command("retrieval", no_args_is_help=True)
def retrieval(
    dataset: Annotated[str, typer.Argument(help=f"{trainable().words()}.", show_default=False)],
    root: Annotated[Path, typer.Argument(metavar="DIR", help="Where it lies.", show_default=False)],
    backbone: Annotated[
        str, typer.Option(help="efficientnet_lite0 or timm:NAME.", rich_help_panel=options.NETWORK)
    ] = options.DEFAULT_NETWORK,
    dimension: Annotated[int, typer.Option(help="Numbers an embedding has.", rich_help_panel=options.NETWORK)] = 128,
    freeze: Annotated[
        str,
        typer.Option(
            help="The last module that stays as it is; none; trunk: all of the backbone; auto: none on a GPU, else all"
            " but the last stage.",
            rich_help_panel=options.NETWORK,
        ),
    ] = "auto",
    device: options.Device = "auto",
    precision: Annotated[
        str | None,
        typer.Option(
            help="As Lightning Fabric has it: 32-true, bf16-mixed, 16-mixed.", rich_help_panel=options.NETWORK
        ),
    ] = None,
    loss: Annotated[
        str,
        typer.Option(help="triplet (semi-hard, on the unit circle) or npair (raw).", rich_help_panel=STEPS),
    ] = "triplet",
    iterations: Annotated[int, typer.Option(help="At most.", rich_help_panel=STEPS)] = 5000,
    minutes: Annotated[float | None, typer.Option(help="At most, in all.", rich_help_panel=STEPS)] = None,
    patience: Annotated[
        int, typer.Option(help="Measurements without a better R@1 before it ends.", rich_help_panel=STEPS)
    ] = 6,
    rate: Annotated[
        float | None,
        typer.Option(
            help="Learning rate of the linear layer. [dim]Default: what suits the loss.[/dim]", rich_help_panel=STEPS
        ),
    ] = None,
    trunk_rate: Annotated[
        float | None, typer.Option(help="Learning rate of what moves in the backbone.", rich_help_panel=STEPS)
    ] = None,
    keep: Annotated[
        float | None,
        typer.Option(
            help="Share of the start in the weights that are shipped. [dim]Default: what suits the loss.[/dim]",
            rich_help_panel=STEPS,
        ),
    ] = None,
    classes: Annotated[
        int | None,
        typer.Option(help="Classes. [dim]Default: such that it has up to 64 pictures.[/dim]", rich_help_panel=BATCH),
    ] = None,
    each: Annotated[
        int | None,
        typer.Option(help="Pictures of each. [dim]Default: 4; npair takes 2.[/dim]", rich_help_panel=BATCH),
    ] = None,
    views: Annotated[
        int | None,
        typer.Option(
            help="Views of a picture whose features are stored; 0: read and cut out anew each time."
            " [dim]Default: 4 on a processor, else 0.[/dim]",
            rich_help_panel=BATCH,
        ),
    ] = None,
    held_out: Annotated[
        float, typer.Option(help="Share of each class that is only measured with.", rich_help_panel=BATCH)
    ] = 0.3,
    seed: Annotated[int, typer.Option(help="Of all that is drawn.", rich_help_panel=BATCH)] = 0,
    out: options.Out = Path("l2caf-training"),
    as_json: options.Json = False,
) -> int:
    """Train a network whose embeddings find pictures of the same class.

    Of cub and cars the first half of the classes is trained on. A run that is stopped goes on where it was when the
    same command is given again. OUT gets embedding.safetensors (and .json), log.json and curves.png. On several
    processors or machines, start it with torchrun.

    [bold]Examples[/bold]

    \b
    l2caf train retrieval cub /data/CUB_200_2011 --out birds
    l2caf train retrieval folder products/ --backbone timm:resnet50 --loss npair
    torchrun --nproc-per-node 2 -m l2caf train retrieval cars /data/cars --out cars
    """
    from ..training.retrieval.recipe import RetrievalRecipe, train_retrieval

    recipe = RetrievalRecipe(
        backbone=backbone,
        loss=loss,
        dimension=dimension,
        iterations=iterations,
        classes=classes,
        each=each,
        rate=rate,
        trunk_rate=trunk_rate,
        freeze=freeze,
        views=views,
        held_out=held_out,
        keep=keep,
        patience=patience,
        seed=seed,
    )
    found = _read(dataset, root)
    with _bar() as watch:
        result = train_retrieval(found, recipe, out, device=device, precision=precision, minutes=minutes, watch=watch)
    _show(result, as_json=as_json)
    return 0


def _read(kind: str, root: Path) -> Dataset:
    from .. import datasets

    if kind not in trainable():
        raise InputError(f"A retrieval network cannot be trained on {kind!r}: take one of {trainable().words()}.")
    return datasets.read(kind, root, half="first") if trainable()[kind].halves else datasets.read(kind, root)


def _show(result: TrainingResult, *, as_json: bool) -> None:
    import os

    if os.environ.get("RANK", "0") != "0":  # of several processes one speaks
        return
    for name, reason in result.bad.items():
        terminal.warn(f"{name}: {reason}")
    log = result.log
    if as_json:
        terminal.print_json({"checkpoint": str(result.checkpoint), **{k: v for k, v in log.items() if k != "losses"}})
        return
    console = terminal.output()
    rows = [[f"before: {name}", f"{100 * score:.1f}"] for name, score in log["before"].items()]
    best = log["best"]
    if best["recall_at_1"] is not None:
        rows.append([f"trained, iteration {best['iteration']}", f"{100 * best['recall_at_1']:.1f}"])
        held = "R@1 on held-out pictures, %"
        console.print(terminal.table(["", held], rows, right=[held]))
    why = {"iterations": "all iterations done", "minutes": "the time was up", "no better": "R@1 rose no more"}
    console.print(f"{log['iterations']} iterations in {log['seconds']:.0f} s: {why[log['ended']]}", highlight=False)
    console.print(f"network: {result.checkpoint}", highlight=False)


@contextmanager
def _bar() -> Iterator[Watch]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = terminal.errors()
    columns: tuple[Any, ...] = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[numbers]}"),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=None, numbers="")

        def watch(words: str, done: int, total: int, numbers: Mapping[str, float]) -> None:
            shown = "  ".join(f"{name} {number:.3f}" for name, number in numbers.items())
            bar.update(task, description=words, completed=done, total=total, numbers=shown)

        yield watch
