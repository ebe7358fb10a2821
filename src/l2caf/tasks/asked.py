"""`Asked`: a question put to a network that takes photographs; one for a network in torch, one for an exported file."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from ..preprocessing import Crop, Input
from .explained import Explained


@dataclass(frozen=True)
class Ready:
    """A photograph that was made ready; `view` is the picture of what the network sees."""

    file: Path | None
    input: Input
    view: Image.Image
    crop: Crop | None


class Asked(abc.ABC):
    """What is asked of every batch."""

    @abc.abstractmethod
    def explained(self, batch: list[Ready]) -> list[Explained]:
        """Explain photographs that were made ready, one for each."""


def on_photograph(box: tuple[int, int, int, int] | None, crop: Crop | None) -> tuple[float, ...] | None:
    """A box in pixels of the photograph, where its place there is known."""
    return None if box is None or crop is None else tuple(crop.to_image([box])[0].round(2).tolist())
