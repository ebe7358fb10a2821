"""`NetworkChoice`: which network is asked, and how it is looked at; a part of most requests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import CatalogueError, InputError, LayerError, WeightsError
from ..networks.catalogue import DEFAULT, is_exported, load
from ..progress import Progress, silent
from ..runs.spec import DISTANCES, ModelSpec

if TYPE_CHECKING:
    from ..exported.network import ExportedNetwork
    from ..networks.model import Model


@dataclass(frozen=True)
class NetworkChoice:
    """A network by its name.

    weights    a local file in place of the published weights
    layer      where the map is taken; None for the last one
    select     which part of the network's answer is explained: a key or an index, where it gives several
    view       what of a photograph it is shown: crop (its centre), whole, or squash (all of it, stretched)
    device     auto for the fastest here
    embedding  whether its output is an embedding, and no row of class scores; None for what is known of it
    distance   by which embeddings are compared: cosine, or euclidean between raw vectors; None for what is known of it
    """

    network: str = DEFAULT
    weights: Path | None = None
    layer: str | None = None
    select: str | int | None = None
    view: str = "crop"
    device: str = "auto"
    embedding: bool | None = None
    distance: str | None = None

    def __post_init__(self) -> None:
        if self.distance not in (None, *DISTANCES):
            raise InputError(
                f"There is no distance {self.distance!r}: take one of {', '.join(DISTANCES)}.", field="distance"
            )

    @property
    def words(self) -> tuple[str, ...]:
        """What of it the names of pictures say: the layer and the view that were chosen."""
        return (*([self.layer] if self.layer else []), *([self.view] if self.view != "crop" else []))

    def load(self, progress: Progress = silent) -> Model:
        """Load it; whoever asks several things of it loads it once."""
        progress(f"loading {self.network}", 0, None)
        try:
            model = load(self.network, weights=self.weights, device=self.device)
        except (CatalogueError, WeightsError) as error:
            ours = "weights" if isinstance(error, WeightsError) and self.weights else "network"
            error.field = error.field or ours
            raise
        model = model if self.embedding is None else model.told(embedding=self.embedding)
        model = model if self.distance is None else replace(model, normalized=self.distance == "cosine")
        return model.viewed(self.view)

    @property
    def is_exported(self) -> bool:
        """Whether it is a file that was exported, which runs without torch."""
        return is_exported(self.network)

    def load_exported(self, progress: Progress = silent) -> ExportedNetwork:
        """Open an exported file; what is settled in it cannot be chosen again."""
        from ..exported.network import load

        chosen = {
            "weights": self.weights is not None,
            "output": self.select is not None,
            "embedding": self.embedding is not None,
            "distance": self.distance is not None,
            "device": self.device not in ("auto", "cpu"),
        }
        for field in (field for field, given in chosen.items() if given):
            raise InputError(
                f"The {field} of an exported network was settled when it was exported: leave this out.", field=field
            )
        progress(f"loading {self.network}", 0, None)
        try:
            network = load(self.network)
        except WeightsError as error:
            error.field = "network"
            raise
        if self.layer not in (None, network.card.layer):
            raise LayerError(
                f"'{network.path.name}' has maps of layer {network.card.layer} alone: export the network again with"
                f" {self.layer}.",
                field="layer",
            )
        return network.viewed(self.view)

    def spec(self, *, embedding: bool = False) -> ModelSpec:
        """The same for a run, whose blocks may be done elsewhere."""
        weights = None if self.weights is None else str(self.weights)
        return ModelSpec(self.network, weights, self.device, embedding, self.view, self.embedding, self.distance)


def part_named(text: str | None) -> str | int | None:
    """The part of a network's answer that a text names: an index where it is a number, else a key.

    >>> part_named("-1"), part_named("scores"), part_named(None)
    (-1, 'scores', None)
    """
    return int(text) if text is not None and text.lstrip("-").isdigit() else text
