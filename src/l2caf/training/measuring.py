"""R@1 on pictures that were held out of training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..retrieval.scores import recalled, retrieve
from .batches import Ints
from .sources import Source

AT_ONCE = 64  # pictures that run through a network together


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Pictures by their places in a source, their labels, and how embeddings of them are compared."""

    source: Source
    places: Ints
    labels: Ints
    normalized: bool
    device: torch.device

    def __bool__(self) -> bool:
        return len(self.places) > 0

    def recall(self, part: Callable[[Tensor], Tensor]) -> float:
        """The share of the pictures whose nearest other one is of their class; `part` goes on from the cut."""
        embeddings = run_from_cut(part, self.source, self.places, device=self.device)
        found = retrieve(embeddings.numpy(), self.labels, normalized=self.normalized, top=1)
        return float(recalled(found, self.labels, rank=1).mean())


def run_from_cut(part: Callable[[Tensor], Tensor], source: Source, places: Ints, *, device: torch.device) -> Tensor:
    """What a part of a network makes of the plain view of pictures, without gradients, on the processor."""
    with torch.no_grad():
        made = [
            part(source.plain(places[first : first + AT_ONCE]).to(device)).float().cpu()
            for first in range(0, len(places), AT_ONCE)
        ]
    return torch.cat(made)
