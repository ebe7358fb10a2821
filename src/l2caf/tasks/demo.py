"""The demonstration: what the method shows, on photographs that everybody has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..images import save_picture
from ..networks.class_names import percent
from ..progress import Progress, silent
from ..rendering.grid import grid
from ..rendering.style import Style
from .animate import film
from .compare import compare
from .explained import Explained
from .network_choice import NetworkChoice
from .outputs import ready_folder
from .photographs import explain_image
from .question import Question
from .samples import sample, two_objects

if TYPE_CHECKING:
    from ..networks.model import Model

CLASSES = ("tiger cat", "espresso")  # what is on the left and on the right of the two objects
# A first picture has to be clear: of the rocket, of which the network is unsure, the hottest places lie beside it.
SHOWN = ("cup", "motorcycle", "photographer", "cat")
DEPTHS = {"blocks.4": "the layer blocks.4", "blocks.5": "the layer blocks.5", "": "the last map"}


@dataclass(frozen=True)
class DemoRequest:
    """Where the pictures go; they are of photographs and of a network that are installed."""

    out: Path


@dataclass(frozen=True)
class Exhibit:
    """One picture of the demonstration, what it shows, and what was measured on the way."""

    path: Path
    shows: str
    measured: dict[str, float]

    def as_dict(self) -> dict[str, Any]:
        return {"picture": str(self.path), "shows": self.shows, "measured": self.measured}


@dataclass(frozen=True)
class DemoResult:
    """The pictures in the order of the story."""

    network: str
    exhibits: tuple[Exhibit, ...]

    def as_dict(self) -> dict[str, Any]:
        return {"network": self.network, "pictures": [one.as_dict() for one in self.exhibits]}


def demonstrate(request: DemoRequest, *, progress: Progress = silent) -> DemoResult:
    """Draw every picture of the demonstration."""
    ready_folder(request.out)
    model = NetworkChoice(device="cpu").load(progress)
    stages = exhibits(model, request.out)
    made = []
    for stage in stages:
        made.append(stage())
        progress("drawing", len(made), len(stages))
    return DemoResult(model.name, tuple(made))


def exhibits(model: Model, folder: Path) -> list[Callable[[], Exhibit]]:
    """The pictures, each made when it is called; together they tell the story in order."""
    return [
        lambda: where_it_looked(model, folder / "1-where-it-looked.png"),
        lambda: each_its_own(model, folder / "2-two-objects.png"),
        lambda: for_and_against(model, folder / "3-for-and-against.png"),
        lambda: all_methods(model, folder / "4-methods.png"),
        lambda: layer_by_layer(model, folder / "5-layers.png"),
        lambda: slow_motion(model, folder / "6-slow-motion.gif"),
    ]


def where_it_looked(model: Model, path: Path) -> Exhibit:
    """Several photographs, and what kept the prediction."""
    method = Question().settled(model).as_method(model)
    found = [explain_image(model.whole(), sample(name), method) for name in SHOWN]
    picture = grid(
        [[one.view for one in found], [one.maps[0].drawn(one.view, Style()) for one in found]],
        column_titles=[str(one.prediction) for one in found],
        row_labels=["what it saw", "where it looked"],
        heading="Where did it look?",
        caption="The places that keep the network's prediction; no class was named.",
        cell_height=256,
        legend=Style().legend,
    )
    save_picture(picture, path)
    return Exhibit(path, f"where the network looked in {len(found)} photographs, no class named", {})


def each_its_own(model: Model, path: Path) -> Exhibit:
    """Two objects in one picture: the map of each class lies on its own object."""
    rows = [_about_both(model, Question(classes=CLASSES, published=form)) for form in (False, True)]
    shares = [[half_share(one.heat, right=right) for right, one in enumerate(row.maps)] for row in rows]
    measured = {
        f"share of {name} on its own half{form}": share
        for form, row in zip(("", ", as published"), shares, strict=True)
        for name, share in zip(CLASSES, row, strict=True)
    }
    picture = grid(
        [[row.view, *(one.drawn(row.view, Style()) for one in row.maps)] for row in rows],
        titles=[
            [
                "photograph",
                *(f"{name}: {percent(share)} on its half" for name, share in zip(CLASSES, row, strict=True)),
            ]
            for row in shares
        ],
        row_labels=["centred", "as published"],
        heading="Which part speaks for which class?",
        caption="The share of each map's energy on the half that holds its object. The published objective"
        " follows what all classes have in common; on centred scores each class finds its own object.",
        cell_height=224,
        legend=Style().legend,
    )
    save_picture(picture, path)
    return Exhibit(path, f"two objects: the maps of {CLASSES[0]} and {CLASSES[1]}, each on its own", measured)


def for_and_against(model: Model, path: Path) -> Exhibit:
    """The same two classes, with what speaks against them."""
    found = _about_both(model, Question(classes=CLASSES), signed=True)
    style = Style(signed=True)
    picture = grid(
        [[found.view, *(one.drawn(found.view, style) for one in found.maps)]],
        titles=[["photograph", *CLASSES]],
        heading="What speaks for a class, and what against it?",
        cell_height=224,
        legend=style.legend,
    )
    save_picture(picture, path)
    return Exhibit(path, "what speaks for each class (warm) and against it (cool)", {})


def all_methods(model: Model, path: Path) -> Exhibit:
    """Every method on the two objects."""
    comparison = compare(model.whole(), two_objects(), of_class=model.class_index(CLASSES[1]))
    save_picture(comparison.sheet(Style(), heading="Other methods, other filters", cell_height=224), path)
    return Exhibit(path, f"L2-CAF beside CAM, Grad-CAM and other filters, asked about {CLASSES[1]}", {})


def layer_by_layer(model: Model, path: Path) -> Exhibit:
    """The same question, put to earlier layers."""
    image = sample("cup")
    found = [explain_image(model.whole(), image, Question().as_method(), layer=layer or None) for layer in DEPTHS]
    picture = grid(
        [[found[0].view, *(one.maps[0].drawn(one.view, Style()) for one in found)]],
        titles=[["photograph", *DEPTHS.values()]],
        heading="How does it come about?",
        caption="Class-oblivious maps at earlier layers are finer, and found by descent; the last is exact.",
        cell_height=224,
        legend=Style().legend,
    )
    save_picture(picture, path)
    return Exhibit(path, "the same photograph at earlier layers", {})


def slow_motion(model: Model, path: Path) -> Exhibit:
    """The filter on its way from a random start."""
    shown = film(model.whole(), two_objects(), of_class=model.class_index(CLASSES[0]))
    shown.save(path, Style())
    return Exhibit(
        path,
        f"the filter of {CLASSES[0]} on its way from a random start",
        {f"cosine with the filter of {shown.found_by}": shown.agreement},
    )


def half_share(heat: npt.NDArray[np.float32], *, right: bool | int) -> float:
    """The share of a map's energy (its squares) on the left or the right half of the picture."""
    energy = np.square(heat, dtype=np.float64).sum(axis=0)
    half = energy[len(energy) // 2 :] if right else energy[: len(energy) // 2]
    return float(half.sum() / max(energy.sum(), 1e-300))


def _about_both(model: Model, question: Question, *, signed: bool = False) -> Explained:
    return explain_image(model.whole(), two_objects(), question.as_method(model), signed=signed)
