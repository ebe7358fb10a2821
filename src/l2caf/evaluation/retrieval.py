"""The retrieval protocol: embeddings and maps in one pass, then R@K, NMI, and LOC for every method.

LOC counts an image when its nearest neighbour has its class and the box of its map has an IoU above one half with the
ground truth. The maps explain the raw embedding, before it is brought to the unit sphere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..datasets.loading import Batch, Prepares
from ..errors import InputError
from ..methods.table import METHODS
from ..retrieval.embed import ImageVector, checked
from ..retrieval.scores import RANKS, Retrieved, clusters, contingency, mutual_information, recalled, retrieve
from ..runs.rows import Row, Unusable
from .intervals import RESAMPLES, Interval, mean_interval
from .measurements import (
    THRESHOLD,
    THRESHOLDS,
    Mapped,
    MapWork,
    Measurement,
    maps_of,
    outcome_of,
    overlaps_of,
    row_of,
    seen_through,
)
from .published import PaperRetrieval
from .scores import MethodTable, ScoreComparison, compare_scores, tables_of

if TYPE_CHECKING:
    from ..heatmap import Heatmap
    from ..networks.model import Model

SIGNIFICANT = 7  # digits of an embedding's numbers: as many as float32 has
BASELINE = "gradcam"  # comes last: it is what the others are compared with
RETRIEVAL_MEASURES = {**{f"r{rank}": f"R@{rank}" for rank in RANKS}, "nmi": "NMI"}
MEASURED = ("loc", "gt_known", "pointing")


def ordered(methods: Sequence[str]) -> tuple[str, ...]:
    """The methods with the baseline last; those that need a class are refused."""
    return tuple(sorted(METHODS.for_embeddings().checked(methods), key=lambda key: key == BASELINE))


DEFAULT_METHODS = ordered(METHODS.for_embeddings().default_in("evaluate"))


@dataclass(frozen=True)
class Retrieval(MapWork):
    """What is measured: an embedding, and the methods that explain it."""

    key: ClassVar[str] = "retrieval"
    stage: ClassVar[str] = "measuring"

    methods: tuple[str, ...] = DEFAULT_METHODS
    view: str = "crop"
    layer: str | None = None
    thresholds: tuple[float, ...] = THRESHOLDS
    output: str | int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "methods", METHODS.for_embeddings().checked(self.methods))
        object.__setattr__(self, "thresholds", tuple(self.thresholds))

    def seen_by(self, model: Model) -> Prepares:
        """The view that is asked for, at the network's input size."""
        return seen_through(model, self.view)

    def heatmaps(self, model: Model, batch: Batch) -> list[Heatmap]:
        """The heatmap of each method."""
        return self._explained(model, batch)[1]

    def counted(self, row: Row) -> tuple[str, bool] | None:
        """Count an object that is located; who its neighbour is shows only when all are embedded."""
        found = row_of(row)
        if not isinstance(found, Mapped) or found.overlap is None:
            return None
        return found.method, found.overlap.iou[self.thresholds.index(THRESHOLD)] > 0.5

    def measure(self, model: Model, batch: Batch) -> list[Measurement]:
        """Per image, one row with its embedding and one per method."""
        vectors, heatmaps = self._explained(model, batch)
        maps = maps_of(heatmaps)
        rows: list[Measurement] = []
        for index, name in enumerate(batch.names):
            label = batch.labels[index]
            if label is None:
                rows.append(Unusable(name, "it has no label, so there is no class to look for among its neighbours"))
                continue
            if not np.isfinite(vectors[index]).all():
                rows.append(Unusable(name, "its embedding holds NaN or infinity"))
                continue
            embedding = tuple(float(f"{value:.{SIGNIFICANT}g}") for value in vectors[index].tolist())
            rows.append(ImageVector(name, label, embedding))
            overlaps = overlaps_of(maps[:, index], batch.boxes[index], self.thresholds, batch.crops[index])
            rows += [
                Mapped(name, method, outcome=outcome_of(heatmap, index), overlap=overlap)
                for method, heatmap, overlap in zip(self.methods, heatmaps, overlaps, strict=True)
            ]
        return rows

    def _explained(self, model: Model, batch: Batch) -> tuple[NDArray[np.float32], list[Heatmap]]:
        """Run the network once: the raw embeddings (B, d) and the heatmap of each method."""
        with model.run(batch.inputs, layer=self.layer, output=self.output) as recording:
            vectors = checked(recording.output, name=model.name).float().cpu().numpy()
            return vectors, [METHODS[name].make_for_embeddings().on(recording.head) for name in self.methods]


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """All embedded images in order of their names, with their nearest others."""

    images: list[str]
    labels: NDArray[np.int64]
    vectors: NDArray[np.float32]
    retrieved: Retrieved
    normalized: bool

    @classmethod
    def of(cls, rows: Iterable[ImageVector], *, normalized: bool) -> Neighbourhood:
        """Seek the neighbours of each."""
        found = sorted(rows, key=lambda row: row.image)
        if len(found) < 2:
            raise InputError(f"{len(found)} images could be embedded: retrieval needs at least two with a label.")
        labels = np.array([row.label for row in found], np.int64)
        if len(np.unique(labels)) == len(labels):  # R@1 would be 0 and NMI 1, whatever the network
            raise InputError(
                f"Each of the {len(labels)} images is the only one of its class, so none has another to be found: give"
                " two or more images of a class."
            )
        vectors = np.array([row.embedding for row in found], np.float32)
        retrieved = retrieve(vectors, labels, normalized=normalized)
        return cls([row.image for row in found], labels, vectors, retrieved, normalized)

    @property
    def classes(self) -> int:
        return len(np.unique(self.labels))

    def scores(self, *, seed: int = 0) -> dict[str, Interval]:
        """R@1, 2, 4, 8 and NMI in per cent, with intervals."""
        ranks = {f"r{rank}": mean_interval(recalled(self.retrieved, self.labels, rank=rank)) for rank in RANKS}
        return {key: score.in_percent() for key, score in {**ranks, "nmi": self._nmi(seed)}.items()}

    def with_neighbours(self, rows: Iterable[Mapped]) -> list[Mapped]:
        """The rows with their labels, and the labels of their neighbours in place of predictions."""
        places = {image: place for place, image in enumerate(self.images)}
        return [
            replace(
                row,
                label=int(self.labels[places[row.image]]),
                top=tuple(self.retrieved.labels[places[row.image]].tolist()),
            )
            for row in rows
        ]

    def _nmi(self, seed: int) -> Interval:
        table = contingency(clusters(self.vectors, self.classes, normalized=self.normalized, seed=seed), self.labels)
        value = float(mutual_information(table))
        total = table.sum()
        draws = np.random.default_rng(seed).multinomial(total, (table / total).ravel(), size=RESAMPLES)
        drawn = mutual_information(draws.reshape(-1, *table.shape))
        # Fewer distinct images look more orderly, so the draws lie above the value: only their spread is used.
        low, high = np.quantile(drawn - drawn.mean(), [0.025, 0.975])
        return Interval(value, value + float(low), value + float(high))


@dataclass(frozen=True)
class RetrievalResult:
    """All scores, in per cent with 95 % intervals; the comparison has no methods where no image has a box.

    part        of the dataset that was measured
    identity    of the network
    bad         the files that could not be used, with the reasons
    compares    what of the network's is compared, in words
    assumed     what was taken for granted about the network
    published   the paper's rows that stand beside ours
    """

    dataset: str
    part: str
    network: str
    identity: str
    view: str
    normalized: bool
    classes: int
    retrieval: Mapping[str, Interval]
    comparison: ScoreComparison
    bad: Mapping[str, str]
    published: tuple[PaperRetrieval, ...] = ()
    compares: str = ""
    assumed: Mapping[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return {
            "protocol": "retrieval",
            "dataset": self.dataset,
            "part": self.part,
            "network": self.network,
            "identity": self.identity,
            "compares": self.compares,
            "assumed": dict(self.assumed),
            "view": self.view,
            "images": self.comparison.images,
            "classes": self.classes,
            "threshold": self.comparison.threshold,
            "thresholds": list(self.comparison.thresholds),
            "retrieval": {key: score.as_dict() for key, score in self.retrieval.items()},
            **self.comparison.as_dict(),
            "bad": dict(self.bad),
            "published": [row.as_dict() for row in self.published],
        }


def summarise(
    rows: Iterable[Row],
    work: Retrieval,
    model: Model,
    *,
    dataset: str,
    part: str = "all",
    published: tuple[PaperRetrieval, ...] = (),
) -> tuple[RetrievalResult, dict[str, MethodTable], Neighbourhood]:
    """Sum up the rows of a run; the tables and the neighbours tell which images are worth a look."""
    found = [row_of(row) for row in rows]
    near = Neighbourhood.of((row for row in found if isinstance(row, ImageVector)), normalized=model.normalized)
    boxed = [row for row in found if isinstance(row, Mapped) and row.overlap is not None]
    tables = tables_of(near.with_neighbours(boxed), work.methods) if boxed else {}
    result = RetrievalResult(
        dataset=dataset,
        part=part,
        network=model.name,
        identity=model.identity,
        view=work.view,
        normalized=model.normalized,
        classes=near.classes,
        retrieval=near.scores(),
        comparison=compare_scores(
            tables, work.thresholds, threshold=THRESHOLD, measures=MEASURED, images=len(near.images)
        ),
        bad={row.image: row.error for row in found if isinstance(row, Unusable)},
        published=published,
        compares=model.compares,
        assumed=model.assumed,
    )
    return result, tables, near
