"""A run of `evaluate`, image by image: where one method finds the object, and where another does not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import ImageError, InputError
from ..evaluation.difference import MeasuredRun
from ..evaluation.measurements import THRESHOLD, Mapped, row_of
from ..runs.rows import ABOUT, ROWS, whole_rows

ORDERS = {"worst": "lowest first", "best": "highest first", "apart": "most different first"}
"""How images are sorted: by the score of the first method, or by how far the two are apart."""


@dataclass(frozen=True)
class BrowseRequest:
    """The folder of a run, and the folder in which its images lie, where somebody has them."""

    run: Path
    pictures: Path | None = None


@dataclass(frozen=True)
class Scored:
    """One image under two methods: the IoU of each box with the object."""

    image: str
    ours: float
    theirs: float

    @property
    def apart(self) -> float:
        return self.ours - self.theirs

    def as_dict(self) -> dict[str, Any]:
        return {"image": self.image, "ours": self.ours, "theirs": self.theirs, "apart": self.apart}


@dataclass(frozen=True)
class Browsed:
    """What a run measured, by image and method; `settings` are those of its run.json."""

    request: BrowseRequest
    methods: tuple[str, ...]
    rows: Mapping[str, Mapping[str, Mapped]] = field(repr=False)
    settings: Mapping[str, Any] = field(repr=False)

    @property
    def network(self) -> str:
        """The name of the network that was measured."""
        return str(self.settings.get("network", ""))

    @property
    def place(self) -> int:
        """Where the usual threshold stands among those of the run."""
        return list(self.settings["thresholds"]).index(THRESHOLD)

    def ranked(self, ours: str, theirs: str, *, order: str = "worst") -> list[Scored]:
        """The images in an order, those without an object left out."""
        if order not in ORDERS:
            raise InputError(f"There is no order {order!r}: take one of {', '.join(ORDERS)}.", field="order")
        for method in (ours, theirs):
            if method not in self.methods:
                raise InputError(
                    f"{method!r} was not measured here: take one of {', '.join(self.methods)}.", field="method"
                )
        scored = [
            Scored(image, *(self._iou(found[method]) for method in (ours, theirs)))
            for image, found in self.rows.items()
            if all(method in found and found[method].overlap is not None for method in (ours, theirs))
        ]
        keys = {"worst": lambda one: one.ours, "best": lambda one: -one.ours, "apart": lambda one: -abs(one.apart)}
        return sorted(scored, key=keys[order])

    def file(self, image: str) -> Path:
        """Where an image lies; a name that leads out of the folder of pictures is refused."""
        home = self.request.pictures
        if home is None:
            raise InputError("Nothing says where the images lie: give their folder.", field="pictures")
        path = (home / image).resolve()
        if not path.is_relative_to(home.resolve()) or not path.is_file():
            raise ImageError(f"There is no image '{image}' in the folder of pictures: give the one that was measured.")
        return path

    def _iou(self, row: Mapped) -> float:
        assert row.overlap is not None
        return row.overlap.iou[self.place]

    def as_dict(self) -> dict[str, Any]:
        return {"run": str(self.request.run), "network": self.network, "methods": list(self.methods)}


def runs_in(folder: Path) -> list[Path]:
    """The runs of `evaluate` in a folder: itself, or those one level below."""
    return [one for one in (folder, *sorted(folder.iterdir())) if (one / ABOUT).is_file() and (one / ROWS).is_file()]


def browse(request: BrowseRequest) -> Browsed:
    """Read a run of localisation."""
    MeasuredRun.read(request.run)  # says what is wrong with a folder that holds none, or a damaged one
    settings = json.loads((request.run / ABOUT).read_bytes())
    parts = [request.run, *sorted(one.parent for one in request.run.glob(f"added-*/{ROWS}"))]
    rows: dict[str, dict[str, Mapped]] = {}
    for part in parts:
        for row in map(row_of, whole_rows(part)):
            if isinstance(row, Mapped):
                rows.setdefault(row.image, {})[row.method] = row
    methods = tuple(dict.fromkeys(method for found in rows.values() for method in found))
    if not methods:
        raise InputError(f"'{request.run}' measured no maps: give a run of localisation.", field="run")
    return Browsed(request, methods, rows, settings)
