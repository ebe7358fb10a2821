"""Two runs of `evaluate` against each other, image by image: each measure of each method, with paired intervals."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, L2cafError, first_line
from ..retrieval.embed import ImageVector
from ..retrieval.scores import RANKS, recalled
from ..runs.rows import ABOUT, ROWS, whole_rows
from .box_accuracy import V1_NEEDED, V2_NEEDED, best_share, box_hits
from .intervals import Floats, Interval, interval_of
from .measurements import THRESHOLD, Mapped, Measurement, row_of
from .retrieval import MEASURED, Neighbourhood
from .scores import MethodTable, tables_of

Hits = NDArray[np.float64]  # (images, D, T): the greatest mean over the last axis, averaged over D, is the score
SETTINGS = ("view", "layer", "output", "labels_are_classes", "normalized", "thresholds")  # they decide what is compared
EMBEDDING = ""  # stands for a method where the embedding itself is measured


@dataclass(frozen=True, eq=False)
class MeasuredRun:
    """What a folder of `evaluate` holds: for every method and measure, which images count."""

    folder: Path
    images: tuple[str, ...]
    hits: Mapping[tuple[str, str], Hits]
    settings: Mapping[str, Any] = field(default_factory=dict)  # what was measured, as its run.json has it

    @classmethod
    def read(cls, folder: Path) -> MeasuredRun:
        """Read a run; of one that was cut off, what was finished."""
        about, rows = folder / ABOUT, folder / ROWS
        if not about.is_file() or not rows.is_file():
            raise InputError(f"'{folder}' holds no run of evaluate: give the folder that a run was written to.")
        found = [row for part in _parts(folder) for row in whole_rows(part)]
        if not found:
            raise InputError(
                f"'{folder}' holds no finished rows: run the same evaluate command again to resume, or measure it anew"
                " if another version of l2caf wrote it."
            )
        try:
            settings = json.loads(about.read_bytes())
            return cls._measured(folder, settings, [row_of(row) for row in found])
        except L2cafError:
            raise
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise InputError(
                f"'{folder}' cannot be read as a run of evaluate ({type(error).__name__}: {first_line(error)}): it is"
                " damaged, or of another version of l2caf; measure it again."
            ) from error

    @classmethod
    def _measured(cls, folder: Path, settings: dict[str, Any], found: Sequence[Measurement]) -> MeasuredRun:
        vectors = {row.image: row for row in found if isinstance(row, ImageVector)}
        boxed = [row for row in found if isinstance(row, Mapped) and row.overlap is not None]
        boxed = _under_all_methods(boxed)
        methods = list(dict.fromkeys(row.method for row in boxed))
        place = list(settings["thresholds"]).index(THRESHOLD)
        if not vectors:
            tables = tables_of(boxed, methods) if boxed else {}
            return cls._of(folder, settings, tables, place, ("loc_top1", "loc_top5", "gt_known", "pointing"), {})
        near = Neighbourhood.of(vectors.values(), normalized=settings.get("normalized") != "False")
        ranks = {f"r{rank}": recalled(near.retrieved, near.labels, rank=rank) for rank in RANKS}
        own = {measure: dict(zip(near.images, hits.tolist(), strict=True)) for measure, hits in ranks.items()}
        tables = tables_of(near.with_neighbours(boxed), methods) if boxed else {}
        return cls._of(folder, settings, tables, place, MEASURED, own)

    @classmethod
    def _of(
        cls,
        folder: Path,
        settings: Mapping[str, Any],
        tables: Mapping[str, MethodTable],
        place: int,
        measures: Sequence[str],
        own: Mapping[str, Mapping[str, bool]],
    ) -> MeasuredRun:
        """Over the images that every measure counts."""
        images = sorted(next(iter(tables.values())).images if tables else next(iter(own.values()), ()))
        if not images:
            raise InputError(f"No image in '{folder}' was measured: give a run with results.")
        hits: dict[tuple[str, str], Hits] = {
            (EMBEDDING, measure): _column([by_image[image] for image in images]) for measure, by_image in own.items()
        }
        for name, table in tables.items():
            for measure in measures:
                if table.labelled or not measure.startswith("loc"):
                    hits[name, measure] = _column(table.hits(measure, place))
            hits[name, "max_box_acc"] = box_hits(table.iou, V1_NEEDED).astype(np.float64)
            hits[name, "max_box_acc_v2"] = box_hits(table.best_iou, V2_NEEDED).astype(np.float64)
        return cls(folder, tuple(images), hits, settings)

    def on(self, images: Sequence[str]) -> MeasuredRun:
        """The same on some of its images."""
        places = {image: place for place, image in enumerate(self.images)}
        chosen = [places[image] for image in images]
        return replace(self, images=tuple(images), hits={key: hits[chosen] for key, hits in self.hits.items()})

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(method for method, _ in self.hits if method))

    @property
    def measures(self) -> list[str]:
        return list(dict.fromkeys(measure for _, measure in self.hits))


@dataclass(frozen=True)
class PairedDifference:
    """One measure of both runs on the same images, in per cent, and the difference in points."""

    measure: str
    ours_method: str
    theirs_method: str
    ours: float
    theirs: float
    points: Interval
    significant: bool

    def as_dict(self) -> dict[str, Any]:
        return {
            "measure": self.measure,
            "method": self.ours_method or None,
            "other_method": self.theirs_method or None,
            "first": self.ours,
            "second": self.theirs,
            "difference": self.points.as_dict(),
            "significant": self.significant,
        }


def compared(ours: MeasuredRun, theirs: MeasuredRun) -> tuple[int, tuple[PairedDifference, ...]]:
    """How many images both have, and the difference of every measure that both have.

    Methods of the same name are compared; where the runs share none, each with each.
    """
    images = sorted(set(ours.images) & set(theirs.images))
    if not images:
        raise InputError("The two runs have no image in common: give two runs on the same dataset.")
    first, second = ours.on(images), theirs.on(images)
    names, others = ({method for method, _ in run.hits if method} for run in (first, second))
    shared = {(name, name) for name in names & others}
    pairs = [(EMBEDDING, EMBEDDING), *sorted(shared or {(one, other) for one in names for other in others})]
    found = tuple(
        _paired(measure, mine, other, hits, second.hits[other, measure])
        for mine, other in pairs
        for (method, measure), hits in first.hits.items()
        if method == mine and (other, measure) in second.hits
    )
    if not found:
        raise InputError("The two runs have no measure in common: give two runs of the same protocol.")
    return len(images), found


@dataclass(frozen=True)
class Unshared:
    """What only one of two runs has, and the settings in which they differ; by the first and the second."""

    methods: tuple[tuple[str, ...], tuple[str, ...]]
    measures: tuple[tuple[str, ...], tuple[str, ...]]
    settings: Mapping[str, tuple[Any, Any]]

    @classmethod
    def of(cls, ours: MeasuredRun, theirs: MeasuredRun) -> Unshared:
        """Where the runs share no method, each is compared with each, and none is left out."""
        apart = set(ours.methods) & set(theirs.methods)
        values = {key: (ours.settings.get(key), theirs.settings.get(key)) for key in SETTINGS}
        return cls(
            _only_one(ours.methods, theirs.methods) if apart else ((), ()),
            _only_one(ours.measures, theirs.measures),
            {key: pair for key, pair in values.items() if pair[0] != pair[1]},
        )

    def as_dict(self) -> dict[str, Any]:
        only = {"methods": self.methods, "measures": self.measures}
        return {
            "only_in_first": {key: list(pair[0]) for key, pair in only.items()},
            "only_in_second": {key: list(pair[1]) for key, pair in only.items()},
            "settings": {key: list(pair) for key, pair in self.settings.items()},
        }


def _only_one(ours: Sequence[str], theirs: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return tuple(one for one in ours if one not in theirs), tuple(one for one in theirs if one not in ours)


def _paired(measure: str, mine: str, other: str, ours: Hits, theirs: Hits) -> PairedDifference:
    cut = ours.shape[2]

    def difference(means: Floats) -> Floats:
        return best_share(means[:, :, :cut]) - best_share(means[:, :, cut:])

    points = interval_of(difference, np.concatenate([ours, theirs], axis=2))
    one, two = (round(100 * float(best_share(hits.mean(axis=0)[None])[0]), 4) for hits in (ours, theirs))
    return PairedDifference(measure, mine, other, one, two, points.in_percent(), points.excludes_zero)


def _parts(folder: Path) -> list[Path]:
    """The folders with rows: of the run, and of the methods that joined it later."""
    return [folder, *sorted(file.parent for file in folder.glob(f"*/{ROWS}"))]


def _under_all_methods(rows: Sequence[Mapped]) -> list[Mapped]:
    """The rows of the images that every method has: a method that joined later may have been stopped half-way."""
    images: dict[str, set[str]] = {}
    for row in rows:
        images.setdefault(row.method, set()).add(row.image)
    shared = set.intersection(*images.values()) if images else set()
    return [row for row in rows if row.image in shared]


def _column(hits: Any) -> Hits:
    """A measure that is a plain mean over images."""
    return np.asarray(hits, np.float64)[:, None, None]
