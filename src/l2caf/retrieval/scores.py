"""How good an embedding is: R@K, and NMI of its clusters with the classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ExtraError, InputError
from .embed import Vectors, on_sphere
from .index import Index, Ints

RANKS = (1, 2, 4, 8)


@dataclass(frozen=True, eq=False)
class Retrieved:
    """The nearest others of each picture, best first, and their labels: (N, k) each."""

    indices: Ints
    labels: Ints


def retrieve(vectors: npt.ArrayLike, labels: npt.ArrayLike, *, normalized: bool, top: int = max(RANKS)) -> Retrieved:
    """Seek each picture's nearest others, exactly; `vectors` (N, d) are raw, `labels` (N,)."""
    real = np.asarray(labels)
    if len(real) < 2:
        raise InputError(f"Neighbours cannot be searched for among {len(real)} pictures: give at least two.")
    index = Index.of(vectors, [""] * len(real), normalized=normalized)
    found = index.neighbours_of_itself(top).indices
    return Retrieved(found, real[found])


def recalled(retrieved: Retrieved, labels: npt.ArrayLike, *, rank: int) -> npt.NDArray[np.bool_]:
    """Tell for each picture whether one of its `rank` nearest others has its label: the mean is R@K.

    >>> found = retrieve([[0.0], [1.0], [2.5], [9.0]], [0, 0, 1, 1], normalized=False)
    >>> recalled(found, [0, 0, 1, 1], rank=1).tolist(), recalled(found, [0, 0, 1, 1], rank=4).tolist()
    ([True, True, False, True], [True, True, True, True])
    """
    hits = retrieved.labels[:, :rank] == np.asarray(labels)[:, None]
    return np.asarray(hits.any(axis=1))


def clusters(vectors: npt.ArrayLike, count: int, *, normalized: bool, seed: int = 0) -> Ints:
    """Sort vectors (N, d) into `count` clusters by k-means; the same seed gives the same ones."""
    given = on_sphere(vectors) if normalized else np.asarray(vectors, np.float32)
    if not 1 <= count <= len(given):
        raise InputError(f"{len(given)} pictures cannot be sorted into {count} clusters: give at least as many.")
    means = _sklearn().cluster.KMeans(n_clusters=count, n_init=10, random_state=seed)
    found: Ints = means.fit_predict(_double(given)).astype(np.int64)
    return found


def mutual_information(table: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """NMI = I(Ω, C) / √(H(Ω) H(C)) of tables (..., clusters, classes) that count the pictures of each pair.

    Two partitions into one part each agree wholly (1); one part against several says nothing (0).

    >>> mutual_information([[3, 0], [0, 3]]).round(6).tolist(), mutual_information([[1, 1], [1, 1]]).tolist()
    (1.0, 0.0)
    """
    counts = np.asarray(table, np.float64)
    share = counts / counts.sum(axis=(-2, -1), keepdims=True)
    rows, columns = share.sum(axis=-1), share.sum(axis=-2)
    entropy_of_rows, entropy_of_columns = _entropy(rows, 1), _entropy(columns, 1)
    information = (entropy_of_rows + entropy_of_columns - _entropy(share, 2)).clip(min=0)
    product = np.sqrt(entropy_of_rows * entropy_of_columns)
    both_one = (entropy_of_rows == 0) & (entropy_of_columns == 0)
    safe = np.where(product > 0, product, 1)
    return np.where(both_one, 1.0, np.where(product > 0, (information / safe).clip(max=1), 0.0))


def contingency(found: npt.ArrayLike, labels: npt.ArrayLike) -> Ints:
    """Count the pictures of each cluster and class: (clusters, classes)."""
    _, rows = np.unique(np.asarray(found), return_inverse=True)
    _, columns = np.unique(np.asarray(labels), return_inverse=True)
    table = np.zeros((rows.max() + 1, columns.max() + 1), np.int64)
    np.add.at(table, (rows, columns), 1)
    return table


def nmi(vectors: npt.ArrayLike, labels: Sequence[int] | npt.NDArray[Any], *, normalized: bool, seed: int = 0) -> float:
    """NMI of as many k-means clusters as there are classes with the classes."""
    found = clusters(vectors, len(np.unique(np.asarray(labels))), normalized=normalized, seed=seed)
    return float(mutual_information(contingency(found, labels)))


def _entropy(share: npt.NDArray[np.float64], axes: int) -> npt.NDArray[np.float64]:
    safe = np.where(share > 0, share, 1)
    total: npt.NDArray[np.float64] = -(share * np.log(safe)).sum(axis=tuple(range(-axes, 0)))
    # Rounding must not make an entropy of zero a small number.
    return np.where(np.abs(total) < 4 * math.ulp(1.0) * share.shape[-1], 0.0, total)


def _double(vectors: Vectors) -> npt.NDArray[np.float64]:
    """In double precision k-means ends at the same clusters however its sums are split over threads, but for ties."""
    return vectors.astype(np.float64)


def _sklearn() -> Any:
    try:
        import sklearn.cluster
    except ImportError as error:
        raise ExtraError("NMI needs scikit-learn: pip install scikit-learn.") from error
    return sklearn
