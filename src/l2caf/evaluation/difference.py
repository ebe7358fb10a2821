"""Two runs of `evaluate` against each other, image by image: each measure of each method, with paired intervals."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..retrieval.embed import ImageVector
from ..retrieval.scores import RANKS, recalled
from ..runs.rows import ABOUT, ROWS, Row
from .box_accuracy import V1_NEEDED
from .intervals import Floats, Interval, interval_of
from .measurements import THRESHOLD, Mapped, row_of
from .retrieval import MEASURED, Neighbourhood
from .scores import MethodTable, tables_of

Hits = NDArray[np.float64]  # (images, columns): the greatest mean over the columns is the score
EMBEDDING = ""  # stands for a method where the embedding itself is measured


@dataclass(frozen=True, eq=False)
class MeasuredRun:
    """What a folder of `evaluate` holds: for every method and measure, which images count."""

    folder: Path
    images: tuple[str, ...]
    hits: Mapping[tuple[str, str], Hits]

    @classmethod
    def read(cls, folder: Path) -> MeasuredRun:
        about, rows = folder / ABOUT, folder / ROWS
        if not about.is_file() or not rows.is_file():
            raise InputError(f"'{folder}' holds no run of evaluate: give the folder that a run was written to.")
        settings: dict[str, Any] = json.loads(about.read_text("utf-8"))
        found = [row_of(row) for file in _files(folder) for row in _rows(file)]
        vectors = {row.image: row for row in found if isinstance(row, ImageVector)}
        boxed = [row for row in found if isinstance(row, Mapped) and row.overlap is not None]
        methods = list(dict.fromkeys(row.method for row in boxed))
        place = list(settings["thresholds"]).index(THRESHOLD)
        if not vectors:
            tables = tables_of(boxed, methods) if boxed else {}
            return cls._of(folder, tables, place, ("loc_top1", "loc_top5", "gt_known", "pointing"), {})
        near = Neighbourhood.of(vectors.values(), normalized=settings.get("normalized") != "False")
        ranks = {f"r{rank}": recalled(near.retrieved, near.labels, rank=rank) for rank in RANKS}
        own = {measure: dict(zip(near.images, hits.tolist(), strict=True)) for measure, hits in ranks.items()}
        tables = tables_of(near.with_neighbours(boxed), methods) if boxed else {}
        return cls._of(folder, tables, place, MEASURED, own)

    @classmethod
    def _of(
        cls,
        folder: Path,
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
            (EMBEDDING, measure): np.array([[by_image[image]] for image in images], np.float64)
            for measure, by_image in own.items()
        }
        for name, table in tables.items():
            for measure in measures:
                if table.labelled or not measure.startswith("loc"):
                    hits[name, measure] = table.hits(measure, place)[:, None].astype(np.float64)
            hits[name, "max_box_acc"] = (table.iou >= V1_NEEDED[0]).astype(np.float64)
        return cls(folder, tuple(images), hits)

    def on(self, images: Sequence[str]) -> MeasuredRun:
        """The same on some of its images."""
        places = {image: place for place, image in enumerate(self.images)}
        chosen = [places[image] for image in images]
        return MeasuredRun(self.folder, tuple(images), {key: hits[chosen] for key, hits in self.hits.items()})


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


def _paired(measure: str, mine: str, other: str, ours: Hits, theirs: Hits) -> PairedDifference:
    columns = ours.shape[1]

    def difference(means: Floats) -> Floats:
        result: Floats = means[:, :columns].max(axis=1) - means[:, columns:].max(axis=1)
        return result

    points = interval_of(difference, np.concatenate([ours, theirs], axis=1))
    one, two = (round(100 * float(hits.mean(axis=0).max()), 4) for hits in (ours, theirs))
    return PairedDifference(measure, mine, other, one, two, points.in_percent(), points.excludes_zero)


def _files(folder: Path) -> list[Path]:
    """The rows of a run, and of the methods that joined it later."""
    return [folder / ROWS, *sorted(folder.glob(f"*/{ROWS}"))]


def _rows(file: Path) -> Iterator[Row]:
    with file.open("rb") as lines:
        for line in lines:
            row = json.loads(line)
            if "block" not in row:
                yield row
