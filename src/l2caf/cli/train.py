"""`l2caf train`: make networks from labelled pictures or clips; one command per recipe, its fields as options."""

from __future__ import annotations

import inspect
import os
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from ..datasets import trainable
from ..errors import InputError
from ..training import RECIPES
from ..training.recipe import BATCH, STEPS, Recipe
from . import common, options, terminal

if TYPE_CHECKING:
    from ..table import Entry
    from ..tasks.train import Trained


Precision = Annotated[
    str | None,
    typer.Option(help="As in Lightning Fabric: 32-true, bf16-mixed, 16-mixed.", rich_help_panel=options.NETWORK),
]
Minutes = Annotated[
    float | None,
    typer.Option(help="The longest that training may take, counted from its first iteration.", rich_help_panel=STEPS),
]


class _Recipes(common.Commands):
    """Finds a command in the table of recipes."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(RECIPES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return _command(RECIPES[cmd_name]) if cmd_name in RECIPES else None


group = typer.Typer(
    name="train",
    cls=_Recipes,
    add_completion=False,
    rich_markup_mode="rich",
    no_args_is_help=True,
    context_settings=common.SETTINGS,
)


def _train() -> None:
    """Train a network on labelled pictures or clips.

    \b
    [bold]Examples[/bold]
    l2caf train retrieval cub /data/CUB_200_2011 \\
        --loss triplet --out birds
    l2caf train video turns/ --out turns-network
    l2caf train wsol cub /data/CUB_200_2011 --recipe adl
    """


group.callback(help=common.unbroken(_train.__doc__ or ""))(_train)


def _command(entry: Entry) -> Any:
    """The command of a recipe: what all have, and its own fields as options."""
    recipe = entry.load()
    types = get_type_hints(recipe)
    own = [
        inspect.Parameter(
            one.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=one.default,
            annotation=Annotated[
                types[one.name], typer.Option(help=one.metadata["help"], rich_help_panel=one.metadata["panel"])
            ],
        )
        for one in fields(recipe)
        if "help" in one.metadata
    ]
    follow = _follow_own if recipe.layout else _follow
    shared = list(inspect.signature(follow, eval_str=True).parameters.values())[1:]
    if recipe.layout and not recipe.demo:
        shared = [one for one in shared if one.name != "demo"]
    places = [one for one in shared if one.kind is not inspect.Parameter.KEYWORD_ONLY]

    def command(**given: Any) -> int:
        settings = {one.name: given.pop(one.name) for one in own}
        return follow(recipe(**settings), **given)

    parameters = [*places, *own, *shared[len(places) :]]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    command.__doc__ = f"{entry.title}\n\n{inspect.cleandoc(recipe.about)}"
    return common.made(entry.key, command)


def _follow(
    recipe: Recipe,
    dataset: Annotated[str, typer.Argument(help=f"Layout of the dataset: {trainable().words()}.", show_default=False)],
    root: Annotated[Path, typer.Argument(metavar="DIR", help="Path to the dataset.", show_default=False)],
    *,
    device: options.Device = "auto",
    precision: Precision = None,
    minutes: Minutes = None,
    out: options.Out = Path("l2caf-training"),
    as_json: options.Json = False,
) -> int:
    from ..tasks.train import TrainRequest, train_network

    request = TrainRequest(recipe, dataset, root, out, device, precision, minutes)
    with terminal.bar("starting") as progress:
        trained = train_network(request, progress=progress)
    if os.environ.get("RANK", "0") == "0":  # of several processes one speaks
        _show(trained, as_json=as_json)
    return 0


def _follow_own(
    recipe: Recipe,
    root: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="Folder or list of the data.", show_default=False)
    ] = None,
    *,
    demo: Annotated[
        bool,
        typer.Option("--demo", help="Train on clips of moving shapes, which are made in OUT.", rich_help_panel=BATCH),
    ] = False,
    device: options.Device = "auto",
    precision: Precision = None,
    minutes: Minutes = None,
    out: options.Out = Path("l2caf-training"),
    as_json: options.Json = False,
) -> int:
    """The same for a recipe that has a layout of its own."""
    from ..tasks.train import demo_data

    if demo == (root is not None):
        raise InputError("Give either a folder of data or --demo, which makes its own.", field="demo")
    with terminal.bar("starting") as progress:
        root = demo_data(out, progress=progress) if root is None else root
    return _follow(
        recipe, recipe.layout, root, device=device, precision=precision, minutes=minutes, out=out, as_json=as_json
    )


def _show(trained: Trained, *, as_json: bool) -> None:
    result = trained.result
    for name, reason in result.bad.items():
        terminal.warn(f"{name}: {reason}")
    if as_json:
        terminal.print_json(trained.as_dict())
        return
    console, score = terminal.output(), result.score
    best = result.best.numbers[score.key]
    if best is not None:
        rows = [[f"before: {name}", f"{score.scale * value:.1f}"] for name, value in result.before.items()]
        rows.append([f"trained, iteration {result.best.iteration}", f"{score.scale * best:.1f}"])
        console.print(terminal.table(["", score.title], rows, right=[score.title]))
    why = {
        "iterations": "all iterations done",
        "minutes": "the time was up",
        "no better": f"{score.short} rose no more",
    }
    console.print(f"{result.iterations} iterations in {result.seconds:.0f} s: {why[result.ended]}", highlight=False)
    console.print(result.choice, highlight=False)
    for sentence in result.notes.get("cut", ()):
        console.print(f"less than published: {sentence}", highlight=False, markup=False)
    console.print(f"network: {result.checkpoint}", highlight=False)
