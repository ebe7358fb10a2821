"""The page of an atlas: pictures looked at in unusual places, those least on the object, and groups that are alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from ..datasets.dataset import Dataset
from ..datasets.loading import batches
from ..evaluation.atlas import Atlas, Cluster, Places
from ..rendering.overlay import colorize, overlay
from .page import Cell, table, unread, write_page
from .tiles import embedded

if TYPE_CHECKING:
    from ..networks.model import Model

SHOWN, TYPICAL = 24, 6  # pictures in a list, and of a group
SIDE = 200  # of a picture's shorter side, in pixels
Names = Callable[[int | None, int | None], str]


def write_atlas(
    path: Path,
    atlas: Atlas,
    dataset: Dataset,
    work: Places,
    model: Model,
    *,
    names: Names,
    settings: Mapping[str, str],
) -> Path:
    """Draw the pictures that are shown once more, since maps are not kept while thousands are explained."""
    unusual = list(range(min(SHOWN, len(atlas.pictures))))
    off = atlas.off_object[:SHOWN]
    typical = [place for cluster in atlas.clusters for place in cluster.pictures[:TYPICAL]]
    drawn = _drawn(atlas, {*unusual, *off, *typical}, dataset, work, model)

    def strip(places: Sequence[int], first: str = "") -> str:
        tiles = "".join(_tile(atlas, place, drawn, model) for place in places)
        return f"<div class='tile strip'>{first}{tiles}</div>"

    parts = [
        "<h2>Looked at in unusual places</h2>",
        "<p class=note>The further up, the more of the attention lies where that of the other pictures of its class"
        " seldom does. A shortcut (a watermark, a border, a background) stands out here.</p>",
        strip(unusual),
    ]
    if off:
        parts += [
            "<h2>Least on the object</h2>",
            "<p class=note>By the share of the attention inside the boxes.</p>",
            strip(off),
        ]
    parts += [
        "<h2>Groups that are looked at in the same places</h2>",
        "<p class=note>The mean map of each group, the most unusual group first, then its most typical pictures.</p>",
        *(_group(number, cluster, atlas, strip) for number, cluster in enumerate(atlas.clusters)),
        "<h2>All pictures, in numbers</h2>",
        _numbers(atlas),
        unread(atlas.bad),
    ]
    title = f"Where {settings['network']} looks in {len(atlas.pictures)} pictures"
    return write_page(path, parts, title=title, settings=settings)


def _drawn(atlas: Atlas, places: set[int], dataset: Dataset, work: Places, model: Model) -> dict[str, Image.Image]:
    wanted = {atlas.pictures[place].image for place in places}
    samples = [sample for sample in dataset.samples if sample.name in wanted]
    found: dict[str, Image.Image] = {}
    for read in batches(samples, work.seen_by(model), 16, pictures=True):
        for batch in read.alike() if len(read) else ():
            heatmap = work.heatmap(model, batch)
            for index, name in enumerate(batch.names):
                found[name] = _small(overlay(batch.pictures[index], heatmap.grids(index)[0]))
    return found


def _small(picture: Image.Image) -> Image.Image:
    scale = SIDE / min(picture.size)
    size = (round(picture.width * scale), round(picture.height * scale))
    return picture.resize(size, Image.Resampling.BICUBIC) if scale < 1 else picture


def _tile(atlas: Atlas, place: int, drawn: Mapping[str, Image.Image], model: Model) -> str:
    one = atlas.pictures[place]
    if one.image not in drawn:  # removed since it was explained
        return ""
    said = model.class_name(one.predicted) if one.predicted is not None and not model.embedding else ""
    share = one.numbers["on_object"]
    words = [
        f"<b title='{escape(one.image, quote=True)}'>{escape(one.image.rpartition('/')[2])}</b>",
        escape(atlas.groups[place]) if one.label is not None else "",
        f"seen as: {escape(said)}" if said else "",
        "" if share is None else f"{share:.0%} on the object",
    ]
    caption = "<br>".join(filter(None, words))
    alt = escape(one.image, quote=True)
    return f"<figure><img alt='{alt}' src='{embedded(drawn[one.image])}'><figcaption>{caption}</figcaption></figure>"


def _group(number: int, cluster: Cluster, atlas: Atlas, strip: Callable[[Sequence[int], str], str]) -> str:
    heat = cluster.attention / max(float(cluster.attention.max()), 1e-12)
    picture = colorize(np.sqrt(heat).astype(np.float32), size=(SIDE, SIDE))
    classes = Counter(atlas.groups[place] for place in cluster.pictures)
    most = ", ".join(f"{name} {count}" for name, count in classes.most_common(3) if name)
    share = len(cluster.pictures) / len(atlas.pictures)
    mean = (
        f"<figure><img alt='the mean map of group {number + 1}' src='{embedded(picture)}'>"
        "<figcaption>the group's mean map</figcaption></figure>"
    )
    return (
        f"<div class=name>Group {number + 1}: {len(cluster.pictures)} pictures ({share:.0%})</div>"
        f"<small>{escape(most)}</small>{strip(cluster.pictures[:TYPICAL], mean)}"
    )


def _numbers(atlas: Atlas) -> str:
    names = {
        "entropy": "spread (0 one place, 1 all alike)",
        "x": "middle, from the left",
        "y": "middle, from the top",
        "border": "share near the edges",
        "on_object": "share on the object",
    }
    rows = []
    for key, title in names.items():
        values = [value for one in atlas.pictures if (value := one.numbers.get(key)) is not None]
        if values:
            low, middle, high = np.percentile(values, [5, 50, 95])
            rows.append([Cell(title), Cell(f"{middle:.2f}"), Cell(f"{low:.2f} to {high:.2f}")])
    return table(["", "median", "nine in ten lie in"], rows)
