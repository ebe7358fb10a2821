"""Where a network looks in a whole folder of pictures: which look at unusual places, and which look alike.

A shortcut (a watermark, a border, a background) is where pictures of a class are looked at in another place than the
others are. With m the attention on each position of one picture and M the mean attention of its class, the surprise

    s = -sum(m log M)

is how unexpected its places are: the more of the attention lies where that of the class seldom does, the higher. M
leaves the picture itself out, and has a share of the mean of all pictures, so that small classes have one too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from ..map_statistics import DIGITS, attention_of, regridded, statistics_of
from ..methods.table import METHODS
from ..runs.rows import Row, Unusable
from ..runs.work import Work
from .measurements import outcome_of

if TYPE_CHECKING:
    from ..datasets.loading import Batch, Prepares
    from ..heatmap import Heatmap
    from ..networks.model import Model

Floats = npt.NDArray[np.float64]

FINEST = 14  # cells on a side that are kept of a map
SHARE = 5.0  # pictures' worth that the mean of all has in that of a class
LEAST = 1e-4  # of the attention, in every cell: what no other picture looks at is not infinitely surprising
CLUSTERS, MOST_CLUSTERS = 8, 64


@dataclass(frozen=True)
class Looked:
    """One picture: its map on a grid, and the map in numbers.

    label, predicted   the class of its folder and the network's best one, where there are such
    numbers            entropy, x, y, border, on_object; None where there is none
    attention          (h, w), a sum of 1; all 0 of a map that shows nothing
    """

    image: str
    label: int | None
    predicted: int | None
    numbers: dict[str, float | None]
    attention: Floats = field(repr=False)
    outcome: str | None = None

    def as_dict(self) -> Row:
        return {
            "image": self.image,
            "label": self.label,
            "predicted": self.predicted,
            **self.numbers,
            "attention": np.round(self.attention, DIGITS).tolist(),
            "outcome": self.outcome,
        }

    @classmethod
    def from_dict(cls, row: Row) -> Looked:
        """Read what `as_dict` gave."""
        known = ("image", "label", "predicted", "attention", "outcome")
        numbers = {name: value for name, value in row.items() if name not in known}
        attention = np.array(row["attention"], dtype=np.float64)
        return cls(row["image"], row["label"], row["predicted"], numbers, attention, row["outcome"])


@dataclass(frozen=True)
class Places(Work):
    """Where the network looks in each picture, by one method."""

    key, stage = "places", "looking"

    method: str = "l2caf-class"
    layer: str | None = None
    output: str | int | None = None

    def seen_by(self, model: Model) -> Prepares:
        return model.preprocess

    def measure(self, model: Model, batch: Batch) -> list[Looked]:
        heatmap, predicted = self._explained(model, batch)
        if heatmap.weights.ndim != 3:
            raise InputError("The maps of this network do not lie on pictures, so that they have no place there.")
        shown = heatmap.weights.clamp_min(0) if heatmap.keeps_sign else heatmap.weights.abs()
        attention = attention_of(shown.cpu().numpy())
        height, width = attention.shape[1:]
        numbers = statistics_of(attention, size=(heatmap.size[0], heatmap.size[1]), boxes=batch.boxes)
        kept = regridded(attention, (min(height, FINEST), min(width, FINEST)))
        return [
            Looked(
                name, batch.labels[index], predicted[index], numbers.row(index), kept[index], outcome_of(heatmap, index)
            )
            for index, name in enumerate(batch.names)
        ]

    def counted(self, row: Row) -> None:
        return None

    def heatmap(self, model: Model, batch: Batch) -> Heatmap:
        """The maps themselves, to be drawn."""
        return self._explained(model, batch)[0]

    def _explained(self, model: Model, batch: Batch) -> tuple[Heatmap, list[int | None]]:
        with model.run(batch.inputs, layer=self.layer, output=self.output) as recording:
            entry = METHODS[self.method]
            method = entry.make_for_embeddings() if model.embedding else entry.make()
            best = [one.index if one else None for one in model.predictions(recording.output)]
            return method.on(recording.head), best


@dataclass(frozen=True)
class Cluster:
    """Pictures that are looked at in the same places; `attention` is their mean map, the most usual one first."""

    pictures: tuple[int, ...]  # places in the atlas
    attention: Floats = field(repr=False)
    surprise: float


@dataclass(frozen=True)
class Atlas:
    """All pictures, the one with the most surprising places first, and the clusters, likewise.

    groups     by which pictures were compared with their like: the name of the class of each
    bad        the files that could not be used, with the reasons
    unseen     pictures whose maps show nothing, which have no place
    """

    pictures: tuple[Looked, ...]
    surprise: Floats = field(repr=False)
    groups: tuple[str, ...] = field(repr=False)
    clusters: tuple[Cluster, ...] = field(repr=False)
    bad: dict[str, str]
    unseen: tuple[str, ...] = ()

    @property
    def off_object(self) -> list[int]:
        """The places of the pictures that have boxes, the one with the least attention on the object first."""
        shares = [(one.numbers["on_object"], place) for place, one in enumerate(self.pictures)]
        return [place for _, place in sorted((share, place) for share, place in shares if share is not None)]

    def as_dict(self) -> dict[str, Any]:
        cluster = {place: number for number, one in enumerate(self.clusters) for place in one.pictures}
        return {
            "pictures": [
                {
                    "image": one.image,
                    "class": self.groups[place],
                    "surprise": round(float(self.surprise[place]), DIGITS),
                    "cluster": cluster.get(place),
                    **one.numbers,
                }
                for place, one in enumerate(self.pictures)
            ],
            "clusters": [
                {
                    "pictures": len(one.pictures),
                    "surprise": round(one.surprise, DIGITS),
                    "attention": np.round(one.attention, DIGITS).tolist(),
                }
                for one in self.clusters
            ],
            "no_place": list(self.unseen),
            "bad": self.bad,
        }


def atlas_of(rows: Iterable[Row], *, name_of: Any, clusters: int = CLUSTERS, seed: int = 0) -> Atlas:
    """Order and group pictures; `name_of(label, predicted)` is the name of the class that a picture is compared in."""
    bad: dict[str, str] = {}
    found: list[Looked] = []
    for row in rows:
        if "error" in row:
            bad[row["image"]] = Unusable(row["image"], row["error"]).error
        else:
            found.append(Looked.from_dict(row))
    seen = [one for one in found if one.attention.any()]
    unseen = tuple(one.image for one in found if not one.attention.any())
    if not seen:
        return Atlas((), np.zeros(0), (), (), bad, unseen)
    grid = (max(one.attention.shape[0] for one in seen), max(one.attention.shape[1] for one in seen))
    attention = np.stack([regridded(one.attention, grid) for one in seen])
    groups = [str(name_of(one.label, one.predicted)) for one in seen]
    surprise = surprise_of(attention, groups)
    order = np.argsort(-surprise, kind="stable")
    attention, surprise = attention[order], surprise[order]
    pictures = tuple(seen[place] for place in order)
    return Atlas(
        pictures,
        surprise,
        tuple(groups[place] for place in order),
        tuple(clusters_of(attention, surprise, count=clusters, seed=seed)),
        bad,
        unseen,
    )


def surprise_of(attention: Floats, groups: Sequence[str]) -> Floats:
    """How unexpected the places of each picture are among those of its group: (B,) of (B, h, w).

    >>> maps = np.zeros((9, 1, 4))
    >>> maps[:8, 0, 0], maps[8, 0, 3] = 1, 1
    >>> int(surprise_of(maps, ["cat"] * 9).argmax())
    8
    """
    flat = attention.reshape(len(attention), -1)
    _, group = np.unique(np.asarray(groups, dtype=object).astype(str), return_inverse=True)
    everyone = flat.sum(axis=0)
    totals = np.zeros((group.max() + 1, flat.shape[1]))
    np.add.at(totals, group, flat)
    counts = np.bincount(group)
    found = np.zeros(len(flat))
    for place, own in enumerate(flat):
        others = (everyone - own) / max(len(flat) - 1, 1)
        mean = (totals[group[place]] - own + SHARE * others) / (counts[group[place]] - 1 + SHARE)
        found[place] = -(own * np.log(np.maximum(mean, 0.0) + LEAST)).sum()
    return found


def clusters_of(attention: Floats, surprise: Floats, *, count: int, seed: int = 0) -> list[Cluster]:
    """Group pictures by where they are looked at, the groups with the most surprising places first.

    k-means on the roots of the attention, whose distance (Hellinger's) counts how little two maps overlap; each
    group's pictures come with the most typical first.
    """
    from scipy.cluster.vq import kmeans2

    if not 1 <= count <= MOST_CLUSTERS:
        raise InputError(f"{count} groups were asked for: give 1 to {MOST_CLUSTERS}.", field="clusters")
    roots = np.sqrt(np.maximum(attention, 0.0)).reshape(len(attention), -1)
    count = min(count, len(np.unique(roots.round(4), axis=0)))
    if count == 1:
        labels, middles = np.zeros(len(roots), int), roots.mean(axis=0, keepdims=True)
    else:
        middles, labels = kmeans2(roots, count, iter=30, minit="++", missing="warn", rng=np.random.default_rng(seed))
    found = []
    for number in range(count):
        members = np.flatnonzero(labels == number)
        if len(members):
            away = np.square(roots[members] - middles[number]).sum(axis=1)
            pictures = tuple(members[np.argsort(away, kind="stable")].tolist())
            found.append(Cluster(pictures, attention[members].mean(axis=0), float(surprise[members].mean())))
    return sorted(found, key=lambda one: -one.surprise)
