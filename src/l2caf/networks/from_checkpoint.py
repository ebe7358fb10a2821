"""Checkpoints by their file name: `out/embedding.safetensors`. The file itself says what builds its network.

A new kind of checkpoint is one loader in this room and one line in `LOADERS`; what it reads is written by
`weights.save_checkpoint`.
"""

from __future__ import annotations

from pathlib import Path

from ..errors import CatalogueError, WeightsError
from ..table import Entry, Table
from .model import Model
from .source import CatalogueRow, Source
from .weights import read_header

LOADERS = Table(
    "kind of checkpoint",
    Entry("embedding", "a retrieval network", "l2caf.networks.embedding:load_embedding"),
    Entry("clips", "a retrieval network for clips", "l2caf.networks.clip_embedding:load_clip_embedding"),
    Entry("localiser", "a network fine-tuned to localise", "l2caf.networks.localiser:load_localiser"),
)


class Checkpoint(Source):
    """One file: weights, and in its metadata what they are the weights of."""

    def load(self, name: str, *, weights: str | Path | None = None, pretrained: bool = True) -> Model:
        if weights is not None:
            raise CatalogueError(
                f"{name} has weights of its own: give it alone, or name the network that {weights} fits."
            )
        loader = read_header(name).loader
        if loader not in LOADERS:
            raise WeightsError(
                f"{Path(name).name} was written for the loader {loader!r}, and this version has {LOADERS.words()}:"
                " install a newer l2caf."
            )
        model: Model = LOADERS[loader].load()(name)
        return model

    def summary(self) -> CatalogueRow:
        return CatalogueRow(
            name="FILE.safetensors",
            source="your own",
            parameters=None,
            needs="a checkpoint of 'l2caf train'",
            description="a network that was trained here, as out/embedding.safetensors",
        )
