"""`Subject`: a network of the catalogue, ready to be asked about photographs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from PIL import Image
from torch import Tensor

from ..errors import InputError, L2cafError, NetworkError, first_line
from ..preprocessing import Preprocess
from ..recorder import Recording, record
from ..recording.inputs import Select
from .catalogue import CatalogueEntry, Preprocessing, class_index, load
from .embedding import EmbeddingNetwork

SMALLEST, LARGEST = 448, 720  # pixels of a picture's height: 224 is tiny on a screen, more than 720 is waste
CELL = 32  # the stride of most networks: a whole picture is brought to a multiple of it
LONGEST = 4  # times as long as wide is the most that a whole picture may be


@dataclass(frozen=True)
class Prediction:
    """What the network takes a photograph for."""

    index: int
    name: str
    probability: float

    def __str__(self) -> str:
        return f"{self.name}, {percent(self.probability)}"

    def as_dict(self) -> dict[str, int | str | float]:
        return {"index": self.index, "name": self.name, "probability": self.probability}


@dataclass(frozen=True)
class Subject:
    """A network and how it is to be looked at.

    layer   where the filter sits; None for the last layer with a map
    select  which part of the network's answer is explained
    whole   show the network the whole photograph, in its own proportions, not only its centre
    """

    entry: CatalogueEntry
    layer: str | None = None
    select: Select = None
    whole: bool = False
    device: str = "cpu"

    @classmethod
    def of(
        cls,
        name: str,
        *,
        weights: str | None = None,
        layer: str | None = None,
        select: Select = None,
        whole: bool = False,
        device: str = "cpu",
    ) -> Subject:
        """Load a network by its name, onto a device."""
        where = device_named(device)
        entry = load(name, weights=weights)
        if whole and not isinstance(entry.preprocess, Preprocessing):
            raise InputError(f"{name} prepares its pictures itself, so they cannot be shown to it whole.")
        entry.network.to(where)
        return cls(entry, layer, select, whole, where)

    def tensor(self, image: Image.Image) -> Tensor:
        """Prepare a photograph for the network, without a batch axis."""
        try:
            return self._preprocess(image)(image)
        except L2cafError:
            raise
        except Exception as error:  # the user's own preprocessing may fail in any way
            raise InputError(f"{self.entry.name} cannot prepare this picture ({first_line(error)}).") from error

    def view(self, image: Image.Image) -> Image.Image:
        """The part of a photograph that the network sees, as sharp as the photograph is."""
        prepare = self._preprocess(image)
        if not isinstance(prepare, Preprocessing):
            seen = prepare.view(image)
            scale = max(1.0, SMALLEST / seen.height)
            size = (round(seen.width * scale), round(seen.height * scale))
            return seen.resize(size, Image.Resampling.BICUBIC)
        _, top, _, bottom = prepare.seen_box(image)
        height = min(max(bottom - top, SMALLEST), LARGEST)
        # The same preparation at a finer scale cuts out the same region.
        scale = height / prepare.input_size[0]
        finer = replace(
            prepare,
            input_size=_scaled(prepare.input_size, scale),
            resize_size=_scaled(prepare.resize_size, scale),
        )
        return finer.view(image)

    def run(self, tensors: Sequence[Tensor]) -> Recording:
        """Run the network once on a batch; any number of methods can then be put to it."""
        batch = torch.stack(list(tensors)).to(self.device)
        try:
            return record(self.entry.network, batch, layer=self.layer, select=self.select)
        except L2cafError:
            raise
        except Exception as error:  # any network may fail in any way
            shape = " × ".join(map(str, batch.shape))
            raise NetworkError(f"{self.entry.name} failed on an input of {shape} ({first_line(error)}).") from error

    def predictions(self, output: Tensor) -> list[Prediction | None]:
        """The best class of every sample; None where the output is no row of finite scores."""
        if output.ndim != 2 or output.shape[1] < 2 or isinstance(self.entry.network, EmbeddingNetwork):
            return [None] * len(output)
        return [
            Prediction(int(row.argmax()), self.class_name(int(row.argmax())), float(row.max()))
            if bool(row.isfinite().all())
            else None
            for row in probabilities(output)
        ]

    def class_name(self, index: int) -> str:
        names = self.entry.class_names
        return names[index] if index < len(names) else f"class {index}"

    def class_index(self, text: str) -> int:
        return class_index(self.entry, text)

    def _preprocess(self, image: Image.Image) -> Preprocess:
        prepare = self.entry.preprocess
        if not self.whole or not isinstance(prepare, Preprocessing):
            return prepare
        size = _whole_size(image.size, shortest=min(prepare.input_size))
        return replace(prepare, input_size=size, resize_size=size, fit="squash")


def probabilities(output: Tensor) -> Tensor:
    """Scores as probabilities; those of a network that ends in softmax stay as they are."""
    scores = output.detach().float()
    ready = bool((scores >= 0).all()) and bool((scores.sum(dim=1) - 1).abs().max() < 1e-3)
    return scores if ready else scores.softmax(dim=1)


def percent(share: float) -> str:
    """A share as people write it.

    >>> percent(0.394), percent(0.0041), percent(0.9996)
    ('39%', '0.4%', '99.96%')
    """
    if share < 0.0995:
        return f"{100 * share:.1f}%"
    return f"{100 * share:.2f}%" if 0.995 <= share < 0.99995 else f"{100 * share:.0f}%"


def device_named(name: str) -> str:
    """The device that a name stands for; `auto` is the fastest here."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(1, device=name)
    except Exception as error:  # each backend says in its own way that it is not there
        raise InputError(f"There is no device {name!r} here: take auto, cpu, cuda or mps.") from error
    return name


def _scaled(size: tuple[int, int], scale: float) -> tuple[int, int]:
    return round(size[0] * scale), round(size[1] * scale)


def _whole_size(size: tuple[int, int], *, shortest: int) -> tuple[int, int]:
    """Height and width in whole cells, the shorter side as the network likes it."""
    width, height = size
    ratio = min(max(width, height) / min(width, height), LONGEST)
    longest = max(1, round(shortest * ratio / CELL)) * CELL if not math.isclose(ratio, 1) else shortest
    return (shortest, max(longest, shortest)) if width >= height else (max(longest, shortest), shortest)
