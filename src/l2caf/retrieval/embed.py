"""From pictures to vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..datasets.dataset import Sample
from ..datasets.loading import Bad, batches
from ..errors import OutputError
from ..progress import Progress, silent

if TYPE_CHECKING:
    from torch import Tensor

    from ..networks.model import Model

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


def embed(
    model: Model,
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
    for number, batch in enumerate(batches(samples, model.preprocess, size, workers=workers), start=1):
        bad += batch.bad
        if len(batch):
            vectors = vectors_of(model, batch.inputs).float().cpu().numpy()
            finite = np.isfinite(vectors).all(axis=1)
            bad += [
                Bad(batch.indices[place], batch.names[place], f"'{batch.names[place]}' has {_NOT_FINITE}.")
                for place in np.flatnonzero(~finite)
            ]
            parts.append(vectors[finite])
            names += [batch.names[place] for place in np.flatnonzero(finite)]
            labels += [batch.labels[place] for place in np.flatnonzero(finite)]
        progress("embedding", min(number * size, len(samples)), len(samples))
    stacked = np.concatenate(parts) if parts else np.zeros((0, 0), np.float32)
    return Embedded(stacked, tuple(names), tuple(labels), tuple(bad))


def vectors_of(model: Model, inputs: Tensor | npt.NDArray[np.floating]) -> Tensor:
    """The raw embeddings (B, d) of prepared pictures (B, 3, H, W)."""
    import torch

    from ..recording.borrow import borrowed, unwrap

    network = unwrap(model.network)
    with borrowed(network), torch.no_grad():
        return checked(network(model.batch(inputs)), name=model.name)


def checked(output: object, *, name: str) -> Tensor:
    """Refuse what is no row of numbers a picture."""
    import torch

    if not isinstance(output, torch.Tensor) or output.ndim != 2:
        got = tuple(output.shape) if isinstance(output, torch.Tensor) else type(output).__name__
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
