"""A few queries with their nearest neighbours, drawn with the first method's map, for the report."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from ..datasets.dataset import Dataset
from ..datasets.loading import batches
from ..evaluation.measurements import MapWork, maps_of
from ..evaluation.retrieval import Neighbourhood
from ..rendering.overlay import overlay
from .tiles import embedded

if TYPE_CHECKING:
    from ..networks.model import Model

QUERIES, NEIGHBOURS = 6, 5


@dataclass(frozen=True)
class Strip:
    """A query and its neighbours, the query first: pictures, class names, and whether the class is the query's."""

    pictures: list[Image.Image]
    classes: list[str]
    right: list[bool]


def strips(near: Neighbourhood, dataset: Dataset, work: MapWork, model: Model) -> list[Strip]:
    """Draw queries spread over those whose nearest neighbour is of another class, and over those where it is not."""
    hit = near.retrieved.labels[:, 0] == near.labels
    chosen = [*_spread(np.flatnonzero(~hit), QUERIES // 2), *_spread(np.flatnonzero(hit), QUERIES // 2)]
    places = {query: [query, *near.retrieved.indices[query, :NEIGHBOURS].tolist()] for query in chosen}
    wanted = {near.images[place] for several in places.values() for place in several}
    drawn = _drawn(wanted, dataset, work, model)
    return [
        Strip(
            [drawn[near.images[place]] for place in several],
            [dataset.class_name(int(near.labels[place])) for place in several],
            [bool(near.labels[place] == near.labels[query]) for place in several],
        )
        for query, several in places.items()
        if all(near.images[place] in drawn for place in several)
    ]


def as_html(strip: Strip) -> str:
    """One row of pictures; a neighbour of another class has its name in red."""
    figures = "".join(
        f"<figure><img alt='{escape(name, quote=True)}' src='{embedded(picture)}'><figcaption>"
        f"{'query: ' if place == 0 else ''}<span{'' if right else ' class=wrong'}>{escape(name)}</span>"
        "</figcaption></figure>"
        for place, (picture, name, right) in enumerate(zip(strip.pictures, strip.classes, strip.right, strict=True))
    )
    return f"<div class='tile strip'>{figures}</div>"


def _spread(places: np.ndarray, count: int) -> list[int]:
    """At most so many of them, spread evenly."""
    taken = min(count, len(places))
    return [int(places[number * len(places) // taken]) for number in range(taken)]


def _drawn(names: set[str], dataset: Dataset, work: MapWork, model: Model) -> dict[str, Image.Image]:
    samples = [sample for sample in dataset.samples if sample.name in names]
    found: dict[str, Image.Image] = {}
    for batch in batches(samples, work.seen_by(model), 16, pictures=True):
        if len(batch):
            maps = maps_of(work.heatmaps(model, batch)[:1])[0]
            found |= {
                name: overlay(batch.pictures[index], maps[index]).resize((160, 160))
                for index, name in enumerate(batch.names)
            }
    return found
