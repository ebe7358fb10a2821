"""What the catalogue hands out: a network with all that is needed to feed it and to read its answer."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from ..preprocessing import Preprocess


@dataclass(frozen=True)
class CatalogueEntry:
    """A network, ready to run, with its preprocessing and its class names.

    network      in eval mode
    preprocess   PIL image -> float tensor (3, H, W); `preprocess.view(image)` is the picture of what it sees
    class_names  one short name a class, in the order of the outputs; empty where they are unknown
    source       where the network and its weights came from, in words
    """

    name: str
    network: nn.Module
    preprocess: Preprocess
    class_names: tuple[str, ...] = ()
    source: str = ""

    @property
    def input_size(self) -> tuple[int, int] | None:
        """Height and width of the network's input; None where only the user's own preprocessing knows."""
        return self.preprocess.input_size
