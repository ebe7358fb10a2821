"""From pictures to vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt

from ..datasets.dataset import Sample
from ..datasets.loading import Bad, Batch, Prepares, PreparesFiles
from ..errors import InputError, OutputError
from ..progress import Progress, silent
from ..runs.executor import Executor, rows_of
from ..runs.rows import Row, Unusable
from ..runs.spec import RunSpec
from ..runs.work import Built, Work

if TYPE_CHECKING:
    from torch import Tensor

    from ..networks.model import Model

Vectors = npt.NDArray[np.float32]
_NOT_FINITE = "an embedding that holds NaN or infinity; look at the picture, or take another network"


@dataclass(frozen=True, eq=False)
class EmbeddedPictures:
    """Pictures as vectors (N, d), raw as the network gave them, with their names and labels in the same order."""

    vectors: Vectors
    names: tuple[str, ...]
    labels: tuple[int | None, ...]
    bad: tuple[Bad, ...]

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class ImageVector:
    """One picture as a vector: a row of a run."""

    image: str
    label: int | None
    embedding: tuple[float, ...]

    @classmethod
    def from_dict(cls, row: Row) -> ImageVector:
        """Read what `as_dict` gave."""
        return cls(row["image"], row["label"], tuple(row["embedding"]))

    def as_dict(self) -> Row:
        return {"image": self.image, "label": self.label, "embedding": list(self.embedding)}


@dataclass(frozen=True)
class Embedding(Work):
    """The work of embedding pictures; `output` is which part of the network's answer is the embedding."""

    key: ClassVar[str] = "embedding"
    stage: ClassVar[str] = "embedding"

    output: str | int | None = None

    def seen_by(self, model: Model) -> Prepares | PreparesFiles:
        """As the network's own preprocessing has it; a network for clips is shown clips."""
        if model.clip is None:
            return model.preprocess
        from ..networks.clip_preparation import ClipPreparation

        return ClipPreparation(model.preprocess, model.clip)

    def measure(self, model: Model, batch: Batch) -> list[ImageVector | Unusable]:
        """One row per picture; one whose vector is not finite is named with the reason."""
        vectors = vectors_of(model, batch.inputs, self.output).float().cpu().numpy()
        return [
            ImageVector(name, label, tuple(vector.tolist()))
            if np.isfinite(vector).all()
            else Unusable(name, f"'{name}' has {_NOT_FINITE}.")
            for name, label, vector in zip(batch.names, batch.labels, vectors, strict=True)
        ]

    def counted(self, row: Row) -> tuple[str, bool] | None:
        """There is nothing to score."""
        return None


def embed(
    spec: RunSpec | Built,
    samples: Sequence[Sample],
    *,
    size: int = 32,
    executor: Executor | None = None,
    progress: Progress = silent,
) -> EmbeddedPictures:
    """Embed pictures in blocks; one that cannot be read or embedded is left out and named with the reason."""
    for sample in samples:
        if not isinstance(sample, Sample):
            raise InputError(
                f"A {type(sample).__name__} was given where samples are embedded: give Sample(path), or those of"
                " l2caf.read('folder', …)."
            )
    vectors: list[Vectors] = []
    names: list[str] = []
    labels: list[int | None] = []
    bad: list[Bad] = []
    places = {sample.name: place for place, sample in enumerate(samples)}
    blocks = rows_of(spec, samples, size=size, executor=executor, progress=progress)
    for row in chain.from_iterable(blocks):
        if "error" in row:
            bad.append(Bad(places[row["image"]], row["image"], row["error"]))
            continue
        found = ImageVector.from_dict(row)
        vectors.append(np.array(found.embedding, np.float32))
        names.append(found.image)
        labels.append(found.label)
    stacked = np.stack(vectors) if vectors else np.zeros((0, 0), np.float32)
    return EmbeddedPictures(stacked, tuple(names), tuple(labels), tuple(bad))


def vectors_of(model: Model, inputs: Tensor | npt.NDArray[np.floating], output: str | int | None = None) -> Tensor:
    """The raw embeddings (B, d) of prepared pictures (B, 3, H, W); `output`: which part of what the network gives."""
    import torch

    from ..recording.borrow import borrowed, unwrap
    from ..recording.inputs import select_output

    network = unwrap(model.network)
    with borrowed(network), torch.no_grad():
        returned = network(model.batch(inputs))
        return checked(returned if output is None else select_output(returned, output, len(inputs)), name=model.name)


def checked(output: object, *, name: str) -> Tensor:
    """Refuse what is no row of numbers per picture."""
    import torch

    if not isinstance(output, torch.Tensor) or output.ndim != 2:
        got = tuple(output.shape) if isinstance(output, torch.Tensor) else type(output).__name__
        raise OutputError(
            f"{name} gives {got}, but retrieval needs one vector per picture: give a network with (B, d)."
        )
    return output


def on_sphere(vectors: npt.ArrayLike) -> Vectors:
    """Vectors (..., d) brought to length 1; one of length 0 stays as it is.

    >>> on_sphere([[3.0, 4.0], [0.0, 0.0]]).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    given = np.asarray(vectors, np.float32)
    length = np.linalg.norm(given, axis=-1, keepdims=True)
    return np.asarray(given / np.where(length > 0, length, 1), np.float32)
