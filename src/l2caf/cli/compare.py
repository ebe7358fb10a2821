"""`l2caf compare`: one photograph, every method, one sheet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options, terminal

if TYPE_CHECKING:
    from ..tasks.compare import Comparison


def command(
    image: Annotated[Path, typer.Argument(metavar="IMG", help="A photograph.", show_default=False)],
    network: options.Network = options.DEFAULT_NETWORK,
    weights: options.Weights = None,
    layer: options.Layer = None,
    select: options.Select = None,
    whole: options.Whole = False,
    device: options.Device = "auto",
    of_class: options.OneClass = None,
    colormap: options.Colormap = None,
    contours: options.Contours = False,
    out: options.OutFile = options.DEFAULT_OUT,
    as_json: options.Json = False,
) -> int:
    """Set every method side by side on one photograph.

    L2-CAF (class-oblivious and class-specific), CAM, Grad-CAM, its magnitude, and the filters held to other
    constraints; the network runs once for all of them. A method that does not fit the network says so in its
    cell.

    [bold]Examples[/bold]

    \b
    l2caf compare photo.jpg
    l2caf compare photo.jpg --class espresso --out comparison.png
    l2caf compare photo.jpg --network torchvision:vgg16 --contours
    """
    from ..images import open_image
    from ..rendering.style import Style
    from ..tasks.outputs import target

    style = Style(colormap=colormap, contours=contours)
    style.check()
    photograph = open_image(image)
    path = target(out, f"{image.stem}-compare", ending=".png")
    model = options.model(network, weights, device=device, whole=whole)

    from ..images import save_picture
    from ..tasks.compare import compare

    with terminal.working("comparing"):
        comparison = compare(
            model,
            photograph,
            of_class=model.class_index(of_class) if of_class else None,
            layer=layer,
            select=options.part(select),
        )
        save_picture(comparison.sheet(style, heading=image.name), path)
    if as_json:
        terminal.print_json(_document(comparison, image, path))
        return 0
    console = terminal.output()
    rows = [
        [
            one.title,
            one.solver or "-",
            one.outcome or "-",
            f"does not fit: {one.refusal}" if one.refusal else "shown",
        ]
        for one in comparison.contestants
    ]
    console.print(terminal.table(["method", "solver", "outcome", "cell"], rows))
    console.print(f"{path}", highlight=False, soft_wrap=True)
    return 0


def _document(comparison: Comparison, image: Path, path: Path) -> dict[str, Any]:
    return {
        "file": str(image),
        "network": comparison.network,
        "layer": comparison.layer,
        "predicted": comparison.prediction.as_dict() if comparison.prediction else None,
        "class": comparison.about.as_dict() if comparison.about else None,
        "methods": [
            {
                "method": one.title,
                "fits": one.heatmap is not None,
                "solver": one.solver or None,
                "outcome": one.outcome or None,
                "refusal": one.refusal or None,
            }
            for one in comparison.contestants
        ],
        "picture": str(path),
    }
