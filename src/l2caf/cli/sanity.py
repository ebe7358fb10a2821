"""`l2caf sanity`: do the maps depend on what the network has learnt?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..methods.table import METHODS
from . import options, terminal
from .patterns import expanded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..evaluation.verdicts import Finding, Sanity

TESTS = "How it is tested"


def command(
    images: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="IMG",
            help="Photographs, folders of them, and patterns such as 'photos/*.jpg'."
            " [dim]Default: photographs that are installed.[/dim]",
            show_default=False,
        ),
    ] = None,
    network: options.Network = options.DEFAULT_NETWORK,
    weights: options.Weights = None,
    layer: options.Layer = None,
    output: options.Output = None,
    device: options.Device = "auto",
    embedding: options.Embedding = None,
    method: options.Methods = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many random networks are drawn.", rich_help_panel=TESTS)] = 3,
    stages: Annotated[
        int,
        typer.Option(
            help="How many points of the way from the logits layer to all layers; 0 for every layer.",
            rich_help_panel=TESTS,
        ),
    ] = 12,
    out: options.Out = options.DEFAULT_OUT,
    as_json: options.Json = False,
) -> int:
    """Check that the maps depend on what the network has learnt.

    A copy of the network is randomised layer by layer, from the logits down,
    and its maps are compared with those of the trained network. Maps that stay
    the same say nothing of what it has learnt. How alike the maps of different
    photographs are is measured too, and tells what counts as changed.

    \b
    [bold]Examples[/bold]
    l2caf sanity
    l2caf sanity holiday/ --method l2caf --method gradcam \\
        --seeds 5
    l2caf sanity holiday/ --network torchvision:resnet50 \\
        --stages 0 --out trust
    """
    from ..tasks.network_choice import NetworkChoice, part_named
    from ..tasks.sanity import SanityRequest, check_sanity

    request = SanityRequest(
        expanded(images or []),
        out,
        NetworkChoice(network, weights, layer, part_named(output), device=device, embedding=embedding),
        method or METHODS.default_in("evaluate"),
        seeds,
        stages,
    )
    with terminal.bar(f"loading {network}") as progress:
        result = check_sanity(request, progress=progress, skipped=lambda one: terminal.warn(str(one.error)))
    terminal.say_assumed(result.assumed)
    if result.added:
        given = len(result.photographs) - len(result.added)
        terminal.say_note(
            f"{given} photograph{'' if given == 1 else 's'} can be compared with too few others, so {len(result.added)}"
            f" that are installed joined in ({', '.join(Path(name).name for name in result.added)}); give 3 or more to"
            " have yours alone."
        )
    terminal.made(result.written[1])
    if as_json:
        terminal.print_json(result.as_dict())
    else:
        _report(result.found, result.written)
    return 0


def _report(found: Sanity, written: Sequence[Path]) -> None:
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
