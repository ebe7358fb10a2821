"""`l2caf explain`: photographs and folders of them, each with where the network looked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InputError
from ..tasks.question import Question, check_classes
from . import options, terminal

if TYPE_CHECKING:
    from ..tasks.explained import Explained, Failed, Written

SHOWN = 100  # rows of the closing table; a folder of thousands would bury the summary


def command(
    images: Annotated[list[Path], typer.Argument(metavar="IMG", help="Files and folders.", show_default=False)],
    network: options.Network = options.DEFAULT_NETWORK,
    weights: options.Weights = None,
    layer: options.Layer = None,
    select: options.Select = None,
    whole: options.Whole = False,
    device: options.Device = "auto",
    classes: options.Classes = None,
    top: Annotated[
        int | None,
        typer.Option("--top", "-k", help="A map for each of the K best classes.", rich_help_panel=options.ASK),
    ] = None,
    method: options.Method = "l2caf",
    filter: options.Filter = "l2",
    solver: options.Solver = "auto",
    published: Annotated[
        bool,
        typer.Option(
            "--published", help="The class objective to the letter, not centred.", rich_help_panel=options.ASK
        ),
    ] = False,
    seed: options.Seed = 0,
    signed: Annotated[
        bool,
        typer.Option(
            "--signed",
            help="What speaks for a class and against it, in two colours.",
            rich_help_panel=options.DRAW,
        ),
    ] = False,
    colormap: options.Colormap = None,
    contours: options.Contours = False,
    box: Annotated[
        bool, typer.Option("--box", help="A box around the hottest region.", rich_help_panel=options.DRAW)
    ] = False,
    bare: Annotated[
        bool,
        typer.Option("--bare", help="The map on the picture alone, no titles.", rich_help_panel=options.DRAW),
    ] = False,
    npy: Annotated[
        bool, typer.Option("--npy", help="The maps as numbers, too.", rich_help_panel=options.WRITE)
    ] = False,
    out: options.Out = options.DEFAULT_OUT,
    batch: Annotated[int, typer.Option(min=1, help="Photographs at a time.", rich_help_panel=options.WRITE)] = 16,
    as_json: options.Json = False,
) -> int:
    """Show where a network looked, in one photograph or in thousands.

    With no class given, the map shows what keeps the network's answer as it is (class-oblivious).

    [bold]Examples[/bold]

    \b
    l2caf explain photo.jpg
    l2caf explain holiday/ cat.png --top 3 --out heatmaps
    l2caf explain photo.jpg --class "tiger cat" --class espresso --signed
    l2caf explain photo.jpg --network torchvision:vgg16 --layer features.28 --method gradcam
    l2caf explain photos/ --json --npy > maps.json
    """
    from ..rendering.style import Style
    from ..tasks.outputs import gathered, ready_folder

    asked: dict[str, Any] = {
        "method": method,
        "top": top,
        "published": published,
        "filter": filter,
        "solver": solver,
        "seed": seed,
        "about_a_class": signed,
    }
    # What contradicts itself is said before anything is loaded.
    check_classes(bool(classes), top)
    Question(**asked)
    style = Style(colormap=colormap, contours=contours, box=box, signed=signed)
    style.check()
    files, refused = gathered(images, out=out)
    if not files:
        raise refused[0][1] if refused else InputError("There are no photographs: give files or folders.")
    for _, error in refused:
        terminal.warn(str(error))
    ready_folder(out)
    model = options.model(network, weights, device=device, whole=whole)
    question = Question(**asked, classes=[model.class_index(text) for text in classes or []])

    from ..tasks.explained import Failed, Writer
    from ..tasks.photographs import explain_files

    writer = Writer(out, files, question, style, bare=bare, npy=npy)
    written: list[Written] = []
    failed = [Failed(path, error) for path, error in refused]
    with terminal.bar("explaining", len(files)) as progress:
        answers = explain_files(
            model,
            files,
            question.as_method(),
            layer=layer,
            select=options.part(select),
            batch=batch,
            signed=signed,
        )
        for done, found in enumerate(answers, start=1):
            if isinstance(found, Failed):
                failed.append(found)
                if len(files) > 1:
                    terminal.warn(str(found.error))
            else:
                written.append(writer.write(found, network=model.name))
            progress("explaining", done, len(files))
    if as_json:
        terminal.print_json(_document(model.name, question.title, written, failed))
    elif written:
        _report(written, failed, out)
    else:
        terminal.fail(_nothing(failed), as_json=False)
    return 0 if written else 2


def _report(written: list[Written], failed: list[Failed], out: Path) -> None:
    console = terminal.output()
    columns = ["file", "predicted", "layer", "solver", "outcome", "picture"]
    console.print(terminal.table(columns, (_row(one) for one in written[:SHOWN])))
    if len(written) > SHOWN:
        console.print(f"… and {len(written) - SHOWN} more")
    skipped = f", {len(failed)} skipped" if failed else ""
    plural = "" if len(written) == 1 else "s"
    console.print(f"{len(written)} photograph{plural} explained{skipped}; pictures in {out}", highlight=False)


def _nothing(failed: list[Failed]) -> str:
    """The sentence for a run in which no photograph went well."""
    if len(failed) == 1:
        return str(failed[0].error)
    return f"None of the {len(failed)} photographs could be explained: the lines above say why."


def _row(one: Written) -> list[str]:
    found = one.explained
    outcomes = ", ".join(dict.fromkeys(each.outcome for each in found.maps if each.outcome))
    pictures = ", ".join(path.name for path in one.pictures)
    predicted = str(found.prediction) if found.prediction else "-"
    return [str(found.file), predicted, found.layer, found.solver or "-", outcomes or "-", pictures]


def _document(network: str, method: str, written: list[Written], failed: list[Failed]) -> dict[str, Any]:
    return {
        **({} if written else {"error": _nothing(failed).replace("the lines above say why", "see 'failed'")}),
        "network": network,
        "method": method,
        "images": [_entry(one) for one in written],
        "failed": [{"file": str(one.file), "error": str(one.error)} for one in failed],
    }


def _entry(one: Written) -> dict[str, Any]:
    found: Explained = one.explained
    return {
        "file": str(found.file),
        "predicted": found.prediction.as_dict() if found.prediction else None,
        "layer": found.layer,
        "solver": found.solver or None,
        "reason": found.reason or None,
        "endpoint": found.endpoint or None,
        "maps": [
            {
                "class": each.about.as_dict() if each.about else None,
                "outcome": each.outcome or None,
                "loss": each.loss,
                "steps": each.steps,
                "evaluations": each.evaluations,
                "box": each.box,
            }
            for each in found.maps
        ],
        "pictures": [str(path) for path in one.pictures],
        "npy": str(one.numbers) if one.numbers else None,
    }
