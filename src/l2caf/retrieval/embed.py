"""`Embedder`: from pictures to vectors, and the name by which a network's vectors are known again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor, nn

from ..datasets.dataset import Sample
from ..datasets.loading import Bad, Batch, batches
from ..datasets.views import Seen, View
from ..errors import OutputError
from ..networks.catalogue import load
from ..networks.embedding import SUFFIX, read_config
from ..networks.model import CatalogueEntry
from ..preprocessing import Preprocess, Preprocessing
from ..progress import Progress, silent
from ..recording.borrow import borrowed, unwrap

Vectors = npt.NDArray[np.float32]
_NOT_FINITE = "an embedding that holds NaN or infinity; look at the picture, or take another network"


@dataclass(frozen=True, eq=False)
class Embedded:
    """Pictures as vectors (N, d), raw as the network gave them, with their names and labels in the same order."""

    vectors: Vectors
    names: tuple[str, ...]
    labels: tuple[int | None, ...]
    bad: tuple[Bad, ...]

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class Embedder:
    """A network that turns pictures into vectors.

    normalized   whether neighbours are sought on the unit circle, by cosine; else by distance between raw vectors
    """

    name: str
    network: nn.Module
    preprocess: Preprocess
    normalized: bool = True
    device: str = "cpu"

    @classmethod
    def load(cls, name: str, *, weights: str | Path | None = None, device: str = "cpu") -> Embedder:
        """Load a checkpoint of `l2caf train retrieval`, or any network of the catalogue, by its name."""
        entry = load(name, weights=weights)
        if name.endswith(SUFFIX):
            return cls.of(entry, normalized=read_config(name).normalized, device=device)
        return cls.of(entry, device=device)

    @classmethod
    def of(cls, entry: CatalogueEntry, *, normalized: bool = True, device: str = "cpu") -> Embedder:
        """Take a network of the catalogue. Of a classifier, what its last linear layer is given is the embedding."""
        network, is_classifier = without_classifier(entry)
        name = f"{entry.name}, pooled features" if is_classifier else entry.name
        return cls(name, network.to(device).eval(), entry.preprocess, normalized, device)

    @cached_property
    def identity(self) -> str:
        """A hash of all that decides what vector a picture gets: the weights, how they were stored, the preparation."""
        digest = hashlib.sha256()
        for name, tensor in sorted(unwrap(self.network).state_dict().items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)};".encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        prepared = repr(self.preprocess) if isinstance(self.preprocess, Preprocessing) else "own"
        digest.update(f"{type(unwrap(self.network)).__name__} {self.normalized} {prepared}".encode())
        return digest.hexdigest()

    @property
    def view(self) -> View:
        """How pictures reach the network, for the loader."""
        if isinstance(self.preprocess, Preprocessing):
            return View("crop", self.preprocess)
        return _OwnView(self.preprocess)  # type: ignore[return-value]

    def __call__(self, tensors: Tensor) -> Tensor:
        """The raw embeddings (B, d) of prepared pictures (B, 3, H, W)."""
        network = unwrap(self.network)
        with borrowed(network), torch.no_grad():
            return checked(network(tensors.to(self.device)), name=self.name)

    def embed(
        self,
        samples: Sequence[Sample],
        *,
        size: int = 32,
        workers: int | None = None,
        progress: Progress = silent,
    ) -> Embedded:
        """Embed pictures in batches; one that cannot be read or embedded is left out and named with the reason."""
        parts: list[Vectors] = []
        names: list[str] = []
        labels: list[int | None] = []
        bad: list[Bad] = []
        for done, batch in self._batches(samples, size=size, workers=workers):
            bad += batch.bad
            if len(batch):
                vectors = self(batch.tensors).float().cpu().numpy()
                finite = np.isfinite(vectors).all(axis=1)
                bad += [
                    Bad(batch.indices[place], batch.names[place], f"'{batch.names[place]}' has {_NOT_FINITE}.")
                    for place in np.flatnonzero(~finite)
                ]
                parts.append(vectors[finite])
                names += [batch.names[place] for place in np.flatnonzero(finite)]
                labels += [batch.labels[place] for place in np.flatnonzero(finite)]
            progress("embedding", done, len(samples))
        stacked = np.concatenate(parts) if parts else np.zeros((0, 0), np.float32)
        return Embedded(stacked, tuple(names), tuple(labels), tuple(bad))

    def _batches(self, samples: Sequence[Sample], *, size: int, workers: int | None) -> Iterator[tuple[int, Batch]]:
        for number, batch in enumerate(batches(samples, self.view, size, workers=workers), start=1):
            yield min(number * size, len(samples)), batch


def checked(output: object, *, name: str) -> Tensor:
    """Refuse what is no row of numbers a picture."""
    if not isinstance(output, Tensor) or output.ndim != 2:
        got = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise OutputError(f"{name} gives {got}, but retrieval needs one vector a picture: give a network with (B, d).")
    return output


def on_circle(vectors: npt.ArrayLike) -> Vectors:
    """Vectors (..., d) brought to length 1; one of length 0 stays as it is.

    >>> on_circle([[3.0, 4.0], [0.0, 0.0]]).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    given = np.asarray(vectors, np.float32)
    length = np.linalg.norm(given, axis=-1, keepdims=True)
    return np.asarray(given / np.where(length > 0, length, 1), np.float32)


def without_classifier(entry: CatalogueEntry) -> tuple[nn.Module, bool]:
    """The network without its last linear layer, where it is a classifier; tell whether one was taken off.

    A network with class names is a classifier. The entry's own network is changed: load it for this use alone.
    """
    network = unwrap(entry.network)
    if not entry.class_names:
        return network, False
    for name, module in reversed(list(network.named_modules())):
        if isinstance(module, nn.Linear) and module.out_features == len(entry.class_names):
            parent, _, own = name.rpartition(".")
            setattr(network.get_submodule(parent), own, nn.Identity())
            return network, True
    return network, False


@dataclass(frozen=True)
class _OwnView:
    """A preprocessing function of the user's own; boxes cannot follow it, and neighbours need none."""

    preprocess: Preprocess

    @property
    def input_size(self) -> tuple[int, int]:
        return self.preprocess.input_size or (0, 0)

    def __call__(self, image: Image.Image, boxes: npt.ArrayLike = ()) -> Seen:
        return Seen(self.preprocess(image), np.zeros((0, 4)), self.preprocess.view(image))
