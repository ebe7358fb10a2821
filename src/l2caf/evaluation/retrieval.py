"""The retrieval protocol: embeddings and maps in one pass, then R@K, NMI, and LOC for every method.

LOC counts an image when its nearest neighbour has its class and the box of its map has an IoU above one half with the
ground truth. The maps explain the raw embedding, before it is brought to the unit circle.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..datasets.loading import Batch
from ..errors import InputError
from ..heatmap import Heatmap
from ..methods.table import METHODS
from ..networks.model import Model
from ..preprocessing import Preprocessing
from ..retrieval.embed import checked
from ..retrieval.scores import RANKS, Retrieved, clusters, contingency, mutual_information, recalled, retrieve
from ..runs.rows import Row
from .intervals import RESAMPLES, Interval, mean_interval
from .protocol import THRESHOLD, THRESHOLDS, localisation_rows, maps_of, outcome_of
from .scores import Table, compared, percent, tables_of

SIGNIFICANT = 7  # digits of an embedding's numbers: as many as float32 has
# Vanilla Grad-CAM comes last: it is what the others are compared with.
DEFAULT_METHODS = tuple(sorted(METHODS.for_embeddings().default_in("evaluate"), key=lambda key: key == "gradcam"))
MEASURED = ("loc", "gt_known", "pointing")


@dataclass(frozen=True)
class RetrievalTrial:
    """What is evaluated: an embedding and the methods that explain it."""

    model: Model
    view: Preprocessing
    methods: tuple[str, ...] = DEFAULT_METHODS
    layer: str | None = None
    thresholds: tuple[float, ...] = THRESHOLDS

    def __post_init__(self) -> None:
        METHODS.for_embeddings().checked(self.methods)

    def explained(self, batch: Batch) -> tuple[NDArray[np.float32], list[Heatmap]]:
        """Run the network once; return the raw embeddings (B, d) and the heatmap of each method."""
        with self.model.run(batch.inputs, layer=self.layer) as recording:
            vectors = checked(recording.output, name=self.model.name).float().cpu().numpy()
            return vectors, [METHODS[name].make_for_embeddings().on(recording.head) for name in self.methods]

    def heatmaps(self, batch: Batch) -> list[Heatmap]:
        """Return the heatmap of each method."""
        return self.explained(batch)[1]

    def is_right(self, row: Row) -> bool:
        """Tell whether the object is located; who its neighbour is shows only when all are embedded."""
        return bool(row["iou"][self.thresholds.index(THRESHOLD)] > 0.5)

    def measure(self, batch: Batch) -> list[Row]:
        """Return, an image, one row with its embedding and one a method; and one a file that could not be read."""
        rows: list[Row] = [{"image": bad.name, "error": bad.message} for bad in batch.bad]
        if not len(batch):
            return rows
        vectors, heatmaps = self.explained(batch)
        maps = maps_of(heatmaps)
        for index, name in enumerate(batch.names):
            if batch.labels[index] is None:
                rows.append({"image": name, "error": "it has no label, so nobody can tell who its neighbours are"})
                continue
            if not np.isfinite(vectors[index]).all():
                rows.append({"image": name, "error": "its embedding holds NaN or infinity"})
                continue
            embedding = [float(f"{value:.{SIGNIFICANT}g}") for value in vectors[index].tolist()]
            rows.append({"image": name, "label": batch.labels[index], "embedding": embedding})
            found = localisation_rows(maps[:, index], batch.boxes[index], self.thresholds)
            rows += [
                {"image": name, "method": method, **outcome_of(heatmaps[number], index), **found[number]}
                for number, method in enumerate(self.methods)
            ]
        return rows


@dataclass(frozen=True, eq=False)
class Gallery:
    """All embedded images in order of their names, with their nearest others."""

    images: list[str]
    labels: NDArray[np.int64]
    vectors: NDArray[np.float32]
    retrieved: Retrieved
    normalized: bool

    @classmethod
    def of(cls, rows: Iterable[Row], *, normalized: bool) -> Gallery:
        """Gather the rows that hold an embedding, and seek the neighbours of each."""
        found = sorted((row for row in rows if "embedding" in row), key=lambda row: row["image"])
        if len(found) < 2:
            raise InputError(f"{len(found)} images could be embedded: retrieval needs at least two with a label.")
        labels = np.array([row["label"] for row in found], np.int64)
        vectors = np.array([row["embedding"] for row in found], np.float32)
        retrieved = retrieve(vectors, labels, normalized=normalized)
        return cls([row["image"] for row in found], labels, vectors, retrieved, normalized)

    def scores(self, *, seed: int = 0) -> dict[str, Any]:
        """R@1, 2, 4, 8 and NMI in per cent, with intervals."""
        ranks = {f"r{rank}": percent(mean_interval(recalled(self.retrieved, self.labels, rank=rank))) for rank in RANKS}
        return {**ranks, "nmi": percent(self._nmi(seed))}

    def _nmi(self, seed: int) -> Interval:
        count = len(np.unique(self.labels))
        table = contingency(clusters(self.vectors, count, normalized=self.normalized, seed=seed), self.labels)
        value = float(mutual_information(table))
        total = table.sum()
        draws = np.random.default_rng(seed).multinomial(total, (table / total).ravel(), size=RESAMPLES)
        drawn = mutual_information(draws.reshape(-1, *table.shape))
        # Fewer distinct images look more orderly, so the draws lie above the value: only their spread is used.
        low, high = np.quantile(drawn - drawn.mean(), [0.025, 0.975])
        return Interval(value, value + float(low), value + float(high))


def retrieval_tables(rows: Sequence[Row], gallery: Gallery, methods: Sequence[str]) -> dict[str, Table]:
    """One table a method, with the neighbours' labels in place of predictions; empty where no image has a box."""
    places = {image: place for place, image in enumerate(gallery.images)}
    with_neighbours = [
        {
            **row,
            "label": int(gallery.labels[places[row["image"]]]),
            "top": gallery.retrieved.labels[places[row["image"]]].tolist(),
        }
        for row in rows
        if "iou" in row
    ]
    return tables_of(with_neighbours, methods)[0] if with_neighbours else {}


def summarise_retrieval(
    gallery: Gallery, tables: dict[str, Table], thresholds: Sequence[float], *, threshold: float, seed: int = 0
) -> dict[str, Any]:
    """Return all scores, in per cent with 95 % intervals, as plain data."""
    results: dict[str, Any] = {
        "images": len(gallery.images),
        "classes": len(np.unique(gallery.labels)),
        "threshold": threshold,
        "thresholds": list(thresholds),
        "retrieval": gallery.scores(seed=seed),
        "methods": {},
        "differences": [],
    }
    if tables:
        results |= compared(tables, list(thresholds).index(threshold), measures=MEASURED)
    return results
