"""`Card`: what an exported file says of itself, as JSON in its metadata; the names of what goes in and comes out."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from ..errors import InputError, L2cafError
from ..preprocessing import Preprocessing

SUFFIX = ".onnx"
KEY = "l2caf"  # in the metadata of the file
FORMAT = 1  # of the card; what reads one format refuses another
IMAGES, OUTPUT, COLUMNS = "images", "output", "columns"
LARGEST_INPUT = 1 << 14  # pixels along a side: what is more is damaged, or would fill the memory


class Names(NamedTuple):
    """The outputs of one kind of map; empty where there is none."""

    map: str
    residual: str = ""
    classes: str = ""


MAPS = {
    "output": Names("output_map", residual="output_residual"),
    "class": Names("class_maps", classes="classes"),
    "prediction": Names("prediction_map", residual="prediction_residual"),
}
"""The kinds of maps: what keeps the output, what speaks for each of the best classes, what keeps the prediction."""


@dataclass(frozen=True)
class Card:
    """All that is needed to feed an exported network and to read its answer.

    network, layer, grid   what it was made of: a name, the layer of the maps, and their size
    input_size             height and width of the input, (B, 3, height, width)
    preprocessing          from a photograph to the input; None where only the function of one's own knew
    class_names            one per output; empty where they are unknown, and of an embedding
    maps                   the kinds of maps that the graph gives, of `MAPS`
    top                    how many of the best classes have a map
    temperature            of the softmax that the map of the prediction keeps
    products               multiplications that the filter of the output is found by; that of the prediction by one more
    precision              float32 or int8
    identity               a hash of the weights and all else that decides what a photograph gets
    made_by, checked       the version that wrote it; how near its maps are to the library's, on how many photographs
    """

    network: str
    layer: str
    grid: tuple[int, ...]
    input_size: tuple[int, int]
    preprocessing: Preprocessing | None = None
    class_names: tuple[str, ...] = ()
    embedding: bool = False
    normalized: bool = True
    maps: tuple[str, ...] = ("output",)
    top: int = 0
    temperature: float = 2.0
    products: int = 4
    precision: str = "float32"
    identity: str = ""
    made_by: str = ""
    checked: Mapping[str, Any] = field(default_factory=dict)

    @property
    def about(self) -> str:
        """What the file is, in a few words."""
        return f"{self.network} with exact attention maps of layer {self.layer}, by l2caf {self.made_by}"

    @property
    def outputs(self) -> dict[str, str]:
        """What each output of the graph is, in words."""
        grid = ", ".join(map(str, self.grid))
        said = {OUTPUT: "what the network itself gives"}
        for key in self.maps:
            names = MAPS[key]
            said[names.map] = {
                "output": f"(batch, {grid}): the unit filter that keeps the output as it is",
                "class": f"(batch, {self.top}, {grid}): the unit filters that raise the best classes above the others",
                "prediction": f"(batch, {grid}): the unit filter that keeps the prediction as it is",
            }[key]
            if names.classes:
                said[names.classes] = f"(batch, {self.top}): the best classes, best first"
            if names.residual:
                said[names.residual] = f"(batch,): how exact the filter is; above {CONVERGED} it did not converge"
        return said

    def as_json(self) -> str:
        """As the metadata of a file has it."""
        return json.dumps({"format": FORMAT, **asdict(self), "outputs": self.outputs}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Card:
        """Read what `as_json` gave.

        >>> card = Card("net", "layer4", (7, 7), (224, 224), Preprocessing())
        >>> Card.from_json(card.as_json()) == card
        True
        """
        try:
            return cls._from(json.loads(text))
        except L2cafError:
            raise
        except Exception as error:
            raise InputError(
                f"What the file says of itself cannot be read ({type(error).__name__}): export the network again."
            ) from error

    @classmethod
    def _from(cls, document: dict[str, Any]) -> Card:
        given = document.pop("format")
        if given != FORMAT:
            raise InputError(
                f"The file has format {given}, and this version of l2caf reads {FORMAT}: export the network again, or"
                " take the version of l2caf that exported it."
            )
        document.pop("outputs")
        prepared = document.pop("preprocessing")
        card = cls(**{name: _frozen(value) for name, value in document.items() if name != "checked"})
        card = cls(**{**card.__dict__, "checked": document["checked"]})
        if prepared is not None:
            known = Preprocessing(**{name: _frozen(value) for name, value in prepared.items()})
            card = cls(**{**card.__dict__, "preprocessing": known})
        card._check()
        return card

    def _check(self) -> None:
        """Refuse sizes that are none: the file may come from anywhere."""
        sizes = [*self.grid, *self.input_size]
        if self.preprocessing is not None:
            sizes += [*self.preprocessing.input_size, *self.preprocessing.resize_size]
            assert self.preprocessing.input_size == self.input_size
        assert all(type(size) is int and 0 < size <= LARGEST_INPUT for size in sizes)
        assert len(self.input_size) == 2
        assert set(self.maps) <= set(MAPS)
        assert math.isfinite(self.temperature)


CONVERGED = 2e-4
"""The residual below which a filter is taken for exact: where the multiplier is above zero, the error before the last
multiplication is no longer than the residual. Each multiplication leaves less; on photographs, a sixth."""


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
