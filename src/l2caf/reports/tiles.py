"""The images that tell most about the methods, with their maps and boxes drawn."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from ..datasets.dataset import Dataset
from ..datasets.loading import batches
from ..evaluation.measurements import THRESHOLD, MapWork, maps_of
from ..evaluation.scores import MethodTable
from ..localization import boxes_of
from ..rendering.marks import Box
from ..rendering.overlay import overlay

if TYPE_CHECKING:
    from ..datasets.loading import Batch
    from ..networks.class_names import Prediction
    from ..networks.model import Model

TRUTH, OURS = "#ffffff", "#ff4fd8"  # white and pink, which no heat has
SHOWN = 6  # images in a section
FILLING = 0.7  # the share of the picture from which on an object fills it


@dataclass(frozen=True)
class Tile:
    """One image under every method: pictures and IoUs in the order of the methods.

    truth       the class of the image; empty where it has none
    predicted   what the network takes it for; empty where it names no classes
    right       whether these are the same class; None where they cannot be compared
    """

    name: str
    pictures: list[Image.Image]
    ious: list[float]
    truth: str = ""
    predicted: str = ""
    right: bool | None = None


def sections(tables: Mapping[str, MethodTable], place: int) -> dict[str, list[str]]:
    """Choose images by name: where the first method does best and worst, and where the methods disagree most."""
    ious = np.stack([table.iou[:, place] for table in tables.values()])
    first = next(iter(tables.values()))
    images = first.images
    ranked = np.argsort(-ious[0], kind="stable")
    # To find an object that fills the picture is no art, so such images are not among the best.
    best = sorted(ranked.tolist(), key=lambda index: bool(first.foreground[index] > FILLING))
    chosen = {"best": np.array(best[:SHOWN]), "worst": ranked[::-1][:SHOWN]}
    if len(ious) > 1:
        apart = ious.max(axis=0) - ious.min(axis=0)
        chosen["most disagreed on"] = np.argsort(-apart, kind="stable")[:SHOWN]
    return {title: [images[index] for index in indices] for title, indices in chosen.items()}


def tiles(
    names: Sequence[str], dataset: Dataset, work: MapWork, model: Model, tables: Mapping[str, MethodTable]
) -> list[Tile]:
    """Draw images again: maps are not kept while thousands are measured, and a few are soon made anew."""
    wanted = {name: number for number, name in enumerate(names)}
    samples = sorted((sample for sample in dataset.samples if sample.name in wanted), key=lambda s: wanted[s.name])
    place = work.thresholds.index(THRESHOLD)
    found = []
    for batch in batches(samples, work.seen_by(model), SHOWN, pictures=True):
        if not len(batch):
            continue
        heatmaps = work.heatmaps(model, batch)
        maps = maps_of(heatmaps)
        predicted = _predicted(model, batch, getattr(work, "output", None))
        for index, name in enumerate(batch.names):
            pictures = []
            for heatmap, heat in zip(heatmaps, maps, strict=True):
                boxes = _drawn(batch.boxes[index], TRUTH) + _drawn(boxes_of(heat[index], (THRESHOLD,)), OURS)
                pictures.append(overlay(batch.pictures[index], heatmap.grids(index)[0], boxes=boxes))
            row = next(iter(tables.values())).images.index(name)
            ious = [float(table.iou[row, place]) for table in tables.values()]
            label, best = batch.labels[index], predicted[index]
            same = getattr(work, "labels_are_classes", False)
            known = label is not None and (label in dataset.class_names or not same)
            truth = "" if label is None else dataset.class_name(label) if known else model.class_name(label)
            right = label == best.index if same and best and label is not None else None
            found.append(Tile(name, pictures, ious, truth, str(best or ""), right))
    return found


def _predicted(model: Model, batch: Batch, output: str | int | None) -> list[Prediction | None]:
    """What the network takes each image for; None where its output is no row of scores."""
    if model.embedding:
        return [None] * len(batch)
    return model.predictions(model.run(batch.inputs, output=output).output)


def _drawn(boxes: Iterable[Sequence[float]], color: str) -> list[Box]:
    """Colour the boxes, but for those of no area: an object outside of the view, or a map that shows nothing."""
    return [Box(x0, y0, x1, y1, color=color) for x0, y0, x1, y1 in boxes if x0 < x1 and y0 < y1]


def embedded(picture: Image.Image) -> str:
    """Return a picture as text that a page can hold."""
    stream = io.BytesIO()
    picture.convert("RGB").save(stream, "JPEG", quality=85)
    return "data:image/jpeg;base64," + base64.b64encode(stream.getvalue()).decode()
