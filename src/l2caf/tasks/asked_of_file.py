"""A question put to an exported file: what of it the file can answer, and its answer as an `Explained`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..errors import InputError, MethodError
from ..rendering.style import Style, box_of
from .asked import Asked, Ready, on_photograph
from .explained import Explained, Map
from .question import Question

if TYPE_CHECKING:
    from ..exported.answer import Answer
    from ..exported.network import About, ExportedNetwork

METHODS = ("l2caf", "l2caf-prediction", "l2caf-class")


def settled(question: Question, network: ExportedNetwork) -> Question:
    """The question with its method named, checked against what is in the file, before a photograph is read.

    Where no method is named and the file has no map that would be taken, it is another that the file has.
    """
    asked = question.settled(network)  # type: ignore[arg-type]  # it asks for names and kind, which both have
    _refuse_other_methods(asked)
    if question.method is None and question == replace(asked, method=None) and _about(asked) not in network.card.maps:
        kind = network.question()
        return replace(question, method="l2caf-class" if kind == "class" else "l2caf")
    kind = network.question(_about(asked), asks_class=bool(question.classes) or question.top is not None)
    _classes(asked, network)
    if kind == "class":
        network.check_top(asked.top or 1)
    return asked


def _refuse_other_methods(asked: Question) -> None:
    if asked.is_about_region:
        field = "region" if asked.region is not None else "channel"
        raise InputError("An exported network gives no image-like output: ask about no part of it.", field=field)
    if asked.entry.key not in METHODS:
        raise MethodError(
            f"An exported network has the maps of {', '.join(METHODS)}, and not of {asked.entry.key}: take one of"
            " these, or the network that it was made from.",
            field="method",
        )
    chosen = {
        "filter": asked.filter != "l2",
        "solver": asked.solver not in ("auto", "exact"),
        "published": asked.published,
    }
    for field in (field for field, given in chosen.items() if given):
        raise InputError(
            f"An exported network has unit filters that were solved exactly, and no other {field}: leave this out.",
            field=field,
        )


def _about(asked: Question) -> About:
    if asked.is_about_prediction:
        return "prediction"
    return "output" if asked.is_class_oblivious else "class"


def _classes(asked: Question, network: ExportedNetwork) -> list[int] | None:
    return [network.class_index(str(one)) for one in asked.classes] or None


@dataclass(frozen=True)
class AskedOfFile(Asked):
    """What is asked of every batch, by ONNX Runtime."""

    network: ExportedNetwork
    question: Question
    style: Style

    def explained(self, batch: list[Ready]) -> list[Explained]:
        about = _about(self.question)
        top = self.question.top or (None if self.question.classes or about != "class" else 1)
        inputs = [ready.input for ready in batch]
        answer = self.network.run(inputs, about=about, classes=_classes(self.question, self.network), top=top)
        predictions = answer.predictions()
        maps = self._maps_of(answer)
        return [
            Explained(
                view=ready.view,
                maps=maps(sample, ready),
                prediction=predictions[sample],
                layer=self.network.card.layer,
                solver="Exact",
                reason="computed in the exported graph",
                endpoint="output",
                file=ready.file,
                seen=None if ready.crop is None else round(ready.crop.share, 4),
            )
            for sample, ready in enumerate(batch)
        ]

    def _maps_of(self, answer: Answer) -> Callable[[int, Ready], tuple[Map, ...]]:
        signed = self.style.signed
        heats, grids = answer.signed if signed else answer.maps, answer.grids(signed=signed)

        def maps(sample: int, ready: Ready) -> tuple[Map, ...]:
            found = []
            for which, (heat, grid) in enumerate(zip(heats[sample], grids[sample], strict=True)):
                box = box_of(heat, level=self.style.threshold)
                found.append(
                    Map(
                        heat,
                        answer.about_map(sample, which),
                        answer.outcomes[sample][which],
                        box=box,
                        grid=grid,
                        box_on_photograph=on_photograph(box, ready.crop),
                    )
                )
            return tuple(found)

        return maps
