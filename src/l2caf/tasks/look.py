"""One photograph that somebody looks at: explained once for each question, and drawn again without solving."""

from __future__ import annotations

import io
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from ..deadline import time_limit
from ..errors import InputError
from ..networks.class_names import Prediction
from ..progress import Progress, silent
from ..rendering.style import Style, note
from .explained import Explained, Map, caption_of, photograph_title
from .network_choice import NetworkChoice
from .photographs import BothWays, explain_both_ways
from .question import Question

if TYPE_CHECKING:
    from ..networks.model import Model

BEST = 5  # classes that are told


@dataclass(frozen=True)
class LookRequest:
    """A photograph that is open already, under the name by which its owner knows it, and what is asked.

    seconds   after which a search ends with the best map so far; None for as long as it takes
    """

    image: Image.Image = field(repr=False)
    name: str = "photo.png"
    network: NetworkChoice = field(default_factory=NetworkChoice)
    question: Question = field(default_factory=Question)
    seconds: float | None = None


@dataclass(frozen=True)
class Look:
    """What was found, as it is shown and with its sign; `seconds` is what the network and the solver took.

    question   as it was put: where no method was named, with the one that was taken
    """

    request: LookRequest
    question: Question
    found: BothWays
    network: str
    seconds: float
    assumed: Mapping[str, str]  # what was taken for granted about the network

    @property
    def shown(self) -> Explained:
        """What was found, with maps as they are shown."""
        return self.found.shown

    @property
    def best(self) -> tuple[Prediction, ...]:
        """The network's best classes; none where its output is no row of scores."""
        return self.found.best

    @property
    def speaks_for_and_against(self) -> bool:
        """Whether the maps are about classes, so that their sign means something."""
        return all(one.about is not None for one in self.shown.maps)

    def styled(self, style: Style) -> Style:
        """The style as far as these maps can be drawn so."""
        return style if self.speaks_for_and_against else replace(style, signed=False)

    def explained(self, style: Style) -> Explained:
        """The maps that a style draws."""
        return self.found.signed if self.styled(style).signed else self.found.shown

    def pictures(self, style: Style, *, height: int | None = None) -> list[Drawn]:
        """Each map on what the network saw; at the size of the download, or not above a height for a screen."""
        found, style = self.explained(style), self.styled(style)
        view = found.view
        if height is not None and view.height > height:
            view = view.resize((max(1, round(view.width * height / view.height)), height), Image.Resampling.LANCZOS)
        return [Drawn(one.title, _drawn(one, view, style), one) for one in found.maps]

    def picture(self, style: Style) -> Image.Image:
        """One map as the picture alone, several beside the photograph with their titles."""
        style = self.styled(style)
        found = self.explained(style)
        if len(found.maps) == 1:
            return found.maps[0].drawn(found.view, style)
        caption = caption_of(found, method=self.question.title, network=self.network)
        return found.sheet(style, heading=self.request.name, caption=caption)

    def numbers(self, style: Style) -> bytes:
        """The maps as an .npy file: (height, width), or (maps, height, width) for several."""
        heats = np.stack([one.heat for one in self.explained(style).maps])
        stream = io.BytesIO()
        np.save(stream, heats[0] if len(heats) == 1 else heats)
        return stream.getvalue()

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.request.name,
            "network": self.network,
            "method": self.question.title,
            "best": [one.as_dict() for one in self.best],
            "seconds": self.seconds,
            "assumed": dict(self.assumed),
            **{key: value for key, value in self.shown.as_dict().items() if key != "file"},
        }


@dataclass(frozen=True)
class Drawn:
    """A map as a picture, with its title."""

    title: str
    picture: Image.Image = field(repr=False)
    map: Map | None = None


def look(request: LookRequest, *, model: Model | None = None, progress: Progress = silent) -> Look:
    """Ask one question about one photograph; `model` is the request's network, where it is loaded already."""
    model = model or request.network.load(progress)
    if model.clip is not None:
        raise InputError(f"{model.name} takes clips: give it one, or choose a network for pictures.", field="network")
    question = request.question.settled(model)
    method = question.as_method(model)
    began = time.perf_counter()
    choice = request.network
    with time_limit(request.seconds):
        found = explain_both_ways(model, request.image, method, layer=choice.layer, select=choice.select, best=BEST)
        found.shown  # noqa: B018 - described now, while the clock runs
    taken = time.perf_counter() - began
    return Look(request, question, found, model.name, taken, model.assumed)


def title_of(found: Look) -> str:
    """What the network takes the photograph for."""
    return photograph_title(found.shown.prediction)


def _drawn(one: Map, view: Image.Image, style: Style) -> Image.Image:
    if one.outcome is not None and one.outcome.shows_nothing:
        return note(f"no map: {one.outcome.sentence}", view.size)
    return one.drawn(view, style)
