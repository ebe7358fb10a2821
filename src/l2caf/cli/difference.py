"""`l2caf difference`: two runs of `evaluate` against each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..methods.table import METHODS
from . import options, terminal

if TYPE_CHECKING:
    from ..evaluation.difference import Unshared


def command(
    first: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run of evaluate.", show_default=False)],
    second: Annotated[Path, typer.Argument(metavar="OTHER", help="Folder of another.", show_default=False)],
    as_json: options.Json = False,
) -> int:
    """Compare two runs of evaluate, image by image.

    Each measure of RUN less that of OTHER, on the images that both have, with paired 95 % bootstrap intervals:
    what makes an image hard for both does not widen them. NMI is no mean over images, and is not compared.

    \b
    [bold]Examples[/bold]
    l2caf difference results-resnet50 results-vgg16
    l2caf difference epoch-20 epoch-10 --json
    """
    from ..evaluation.retrieval import RETRIEVAL_MEASURES
    from ..evaluation.scores import MEASURES
    from ..reports.page import shown
    from ..tasks.difference import DifferenceRequest, compare_runs

    with terminal.bar("reading") as progress:
        result = compare_runs(DifferenceRequest(first, second), progress=progress)
    if as_json:
        terminal.print_json(result.as_dict())
        return 0
    titles = {**MEASURES, **RETRIEVAL_MEASURES}
    rows = []
    for one in result.differences:
        names = dict.fromkeys(METHODS.title(name) for name in (one.ours_method, one.theirs_method) if name)
        verdict = "" if one.significant else "not significantly different"
        numbers = [f"{one.ours:.1f}", f"{one.theirs:.1f}", shown(one.points)]
        rows.append([titles[one.measure], " against ".join(names), *numbers, verdict])
    heads = ["measure", "method", "RUN", "OTHER", "RUN − OTHER (95 %)", ""]
    console = terminal.output()
    console.print(terminal.table(heads, rows, right=heads[2:5]))
    apart = f", {result.left_out} that only one has left out" if result.left_out else ""
    console.print(f"{result.images} images{apart}; per cent, with paired 95 % intervals", highlight=False)
    for line in _unshared(result.unshared, titles):
        console.print(line, highlight=False, markup=False)
    return 0


def _unshared(found: Unshared, titles: Mapping[str, str]) -> Iterator[str]:
    """What was not compared, and what is not the same, a line each."""
    for place, run in enumerate(("RUN", "OTHER")):
        names = [METHODS.title(name) for name in found.methods[place]]
        names += [titles[name] for name in found.measures[place]]
        if names:
            yield f"only in {run}, and not compared: {', '.join(names)}"
    for setting, (ours, theirs) in found.settings.items():
        yield f"{setting.replace('_', ' ')} differs: {_word(ours)} in RUN, {_word(theirs)} in OTHER"


def _word(value: Any) -> str:
    return "the default" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)
