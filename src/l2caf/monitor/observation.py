"""`Observation`: where a network looked in one pass over its validation pictures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from PIL import Image

from ..map_statistics import MapStatistics
from ..rendering.grid import grid
from ..rendering.overlay import overlay
from ..solution import Outcome

HEIGHT = 180  # of a picture on the sheet
ACROSS = 4


@dataclass(frozen=True)
class Shown:
    """One picture of the fixed ones: what the network was given, and its map at the layer's grid, 0 to 1."""

    picture: Image.Image = field(repr=False)
    heat: Any = field(repr=False)  # (h, w)
    outcome: Outcome

    @property
    def drawn(self) -> Image.Image:
        """The map on the picture."""
        scale = max(1, round(HEIGHT / self.picture.height))
        size = (self.picture.width * scale, self.picture.height * scale)
        return overlay(self.picture.resize(size, Image.Resampling.BICUBIC), self.heat)


@dataclass(frozen=True)
class Observation:
    """All pictures of a pass in numbers, and some of them drawn.

    epoch        as the caller counts
    statistics   of every picture that was explained, in their order; `places` are theirs in the pass
    shown        the fixed pictures by their place in the pass
    missed       how many pictures were not explained, and `reason` why
    note         what is to be said of the fixed pictures: whether they are those of the pass before
    """

    epoch: int | None
    statistics: MapStatistics
    places: tuple[int, ...]
    shown: Mapping[int, Shown]
    missed: int = 0
    reason: str = ""
    note: str = ""

    @property
    def means(self) -> dict[str, float]:
        """The mean of each number over the pictures: entropy, x, y, border, and on_object where there are boxes."""
        return self.statistics.means()

    @property
    def said(self) -> str:
        """What the caller should know, in a sentence or two; mostly nothing."""
        missed = f"{self.missed} pictures were not explained: {self.reason}" if self.missed else self.reason
        return " ".join(filter(None, (missed, self.note)))

    def as_dict(self) -> dict[str, Any]:
        return {
            "epoch": self.epoch,
            "pictures": len(self.statistics),
            "missed": self.missed,
            "means": {name: round(value, 6) for name, value in self.means.items()},
            **({"said": self.said} if self.said else {}),
        }

    def rows(self) -> list[dict[str, Any]]:
        """The numbers of each picture, as JSON."""
        return [{"picture": place, **self.statistics.row(index)} for index, place in enumerate(self.places)]

    def sheet(self) -> Image.Image:
        """The fixed pictures with their maps, in one sheet."""
        pictures = [one.drawn for one in self.shown.values()]
        titles = [f"picture {place}" for place in self.shown]
        numbers = ", ".join(f"{name.replace('_', ' ')} {value:.2f}" for name, value in self.means.items())
        return grid(
            [pictures[start : start + ACROSS] for start in range(0, len(pictures), ACROSS)],
            titles=[titles[start : start + ACROSS] for start in range(0, len(titles), ACROSS)],
            heading="Where it looked" + ("" if self.epoch is None else f", epoch {self.epoch}"),
            caption=f"{len(self.statistics)} pictures: {numbers}" if numbers else "",
            cell_height=HEIGHT,
        )
