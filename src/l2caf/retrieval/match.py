"""Why do these two match: the neighbours of a picture or clip, and for each pair what in either speaks for the other.

A position p of the layer's map adds (W a_p) · t / P to the inner product of the raw embedding e with a vector t, where
what follows the map is affine; so the filter that raises e · t most is exactly that, up to its length. For a neighbour
n among a gallery whose mean is m, t = n − m: what makes the picture nearer to n than to the gallery at large. For the
contrast of neighbours A and B, t = n_A − n_B. Both rank as the search does:

    on the unit sphere   cos(e, n_A) − cos(e, n_B) = e · (n_A − n_B) / |e|
    by distance          |e − n_B|² − |e − n_A|²  = 2 e · (n_A − n_B) + what does not depend on e
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from ..errors import InputError
from ..heads.head import Head
from ..heatmap import Heatmap
from ..images import open_image
from ..methods.attention_filter import AttentionFilter
from ..networks.clip_preparation import ClipPreparation
from ..networks.model import Model
from ..objectives.output import Similarity
from ..preprocessing import Input
from ..progress import Progress, silent
from ..solution import Outcome
from ..solvers.auto import Auto
from ..solvers.riemannian import Riemannian
from .embed import Vectors, on_sphere
from .index import Gallery


@dataclass(frozen=True)
class Seen:
    """One map on one picture: `heat` is signed, in [-1, 1]; what speaks for is positive.

    On a clip it is one per frame, (T, H, W), and `frames` tells how much each frame weighs, 1 in all.
    """

    heat: npt.NDArray[np.float32] = field(repr=False)
    outcome: Outcome
    frames: tuple[float, ...] = ()

    def frame(self, number: int) -> Seen:
        """The map on one frame of a clip."""
        return Seen(self.heat[number], self.outcome)

    @property
    def empty(self) -> bool:
        """Whether no place speaks for it, however well that was found out."""
        return not bool((self.heat > 0).any())

    @property
    def shown(self) -> npt.NDArray[np.float32]:
        """What speaks for, in [0, 1]."""
        positive = self.heat.clip(min=0)
        return np.asarray(positive / max(float(positive.max()), 1e-12), np.float32)


@dataclass(frozen=True)
class Pair:
    """A neighbour, and the maps of the pair; `score` is a cosine or a distance, as the search has it."""

    rank: int
    file: Path
    name: str
    score: float
    views: tuple[Image.Image, ...] = field(repr=False)  # one, or of a clip one per frame
    of_query: Seen
    of_neighbour: Seen

    @property
    def view(self) -> Image.Image:
        """What the network sees of the neighbour; of a clip, its first frame."""
        return self.views[0]

    @property
    def group(self) -> str:
        """The folder that it lies in, which is its class where the gallery has one folder per class."""
        return _group(self.name)


@dataclass(frozen=True)
class Contrast:
    """What in the query speaks for the neighbour of one rank (positive) and what for that of another (negative).

    `name` is that of the other one, whose rank may lie beyond the neighbours that are shown.
    """

    ours: int
    theirs: int
    name: str
    seen: Seen


@dataclass(frozen=True)
class Matches:
    """A query and its nearest neighbours, nearest first."""

    query: Path
    views: tuple[Image.Image, ...] = field(repr=False)  # one, or of a clip one per frame
    pairs: tuple[Pair, ...]
    contrast: Contrast | None
    network: str
    layer: str
    normalized: bool

    @property
    def view(self) -> Image.Image:
        """What the network sees of the query; of a clip, its first frame."""
        return self.views[0]

    @property
    def unit(self) -> str:
        return "cosine" if self.normalized else "distance"


def match(
    model: Model,
    query: Path,
    gallery: Gallery,
    *,
    top: int = 5,
    contrast: tuple[int, int] | None = None,
    layer: str | None = None,
    output: str | int | None = None,
    progress: Progress = silent,
) -> Matches:
    """Find the nearest neighbours of a picture, and explain each pair; the query itself is no neighbour of its own.

    contrast   the ranks of two neighbours, counted from 1. With none named, the first and the nearest one of another
               folder, however far down it comes; where the gallery has no other folder, the last of the neighbours.
    """
    if top < 1:
        raise InputError(f"{top} asks for no neighbour: give 1 or more.", field="top")
    asked = _opened(model, query)
    with model.run([asked.input], layer=layer, output=output) as recording:
        head = recording.head
        raw = recording.output.float().cpu().numpy()
        every, scores = _neighbours(gallery, query, raw)
        places, scores = every[:top], scores[:top]
        centre = _centre(gallery.index.vectors)
        targets = gallery.index.vectors[places] - centre
        of_query = []
        for done, target in enumerate(targets, start=1):
            of_query.append(_seen(head, target)[0])
            progress("explaining", done, len(targets))
        found_there = [_opened(model, gallery.file(place)) for place in places]
        back = (on_sphere(raw) if model.normalized else raw)[0] - centre
        of_neighbours = _seen(model.run([one.input for one in found_there], layer=layer, output=output).head, back)
        pairs = tuple(
            Pair(
                rank=number + 1,
                file=gallery.file(place),
                name=gallery.index.names[place],
                score=score,
                views=found_there[number].views,
                of_query=of_query[number],
                of_neighbour=of_neighbours[number],
            )
            for number, (place, score) in enumerate(zip(places, scores, strict=True))
        )
        ranks = _contrasted(pairs, [gallery.index.names[place] for place in every], contrast)
        found = None
        if ranks is not None:
            one, other = (gallery.index.vectors[every[rank - 1]] for rank in ranks)
            found = Contrast(*ranks, gallery.index.names[every[ranks[1] - 1]], _seen(head, one - other)[0])
    layer_name = str(head.layer.name)
    return Matches(query, asked.views, pairs, found, model.name, layer_name, model.normalized)


class _Opened(NamedTuple):
    """What the network is given, and the sharp pictures of it."""

    input: Input
    views: tuple[Image.Image, ...]


def _opened(model: Model, path: Path) -> _Opened:
    if model.clip is not None:
        clip = ClipPreparation(model.preprocess, model.clip).open(path)
        return _Opened(clip.input, clip.views)
    made = model.prepare(open_image(path))
    return _Opened(made.input, (made.view,))


def _neighbours(gallery: Gallery, query: Path, raw: Vectors) -> tuple[list[int], list[float]]:
    """All of the gallery but the query itself, nearest first."""
    if not np.isfinite(raw).all():
        raise InputError(f"The network gives NaN or infinity for '{query}': give another picture.")
    found = gallery.index.query(raw, len(gallery.index))
    own = query.resolve()
    pairs = [
        (int(place), float(score))
        for place, score in zip(found.indices[0], found.scores[0], strict=True)
        if gallery.file(int(place)).resolve() != own
    ]
    if not pairs:
        raise InputError(f"The gallery holds nothing but '{query}' itself: add others to compare with.")
    return [place for place, _ in pairs], [score for _, score in pairs]


def _centre(vectors: Vectors) -> Vectors:
    """The mean of the gallery; zero where a single picture is all of it, since that would leave nothing to ask."""
    return vectors.mean(axis=0) if len(vectors) > 1 else np.zeros_like(vectors[0])


def _solver(head: Head) -> Auto:
    """Behind an LSTM the search for other valleys takes seven times as long, and comes back to the same filter."""
    return Auto() if head.layout.frames is None else Auto(Riemannian(exploring=0))


def _seen(head: Head, target: Vectors) -> list[Seen]:
    """The maps of a batch for one target."""
    heatmap: Heatmap = AttentionFilter(Similarity(torch.from_numpy(target)), solver=_solver(head)).on(head)
    heats = heatmap.signed.cpu().float().numpy()
    moving = "frame" in heatmap.axes or len(heatmap.size) == 3
    weights = heatmap.frame_weights.tolist() if moving else [()] * len(heats)
    return [Seen(heat, heatmap.solved.outcomes(index)[0], tuple(weights[index])) for index, heat in enumerate(heats)]


def _contrasted(pairs: tuple[Pair, ...], names: list[str], asked: tuple[int, int] | None) -> tuple[int, int] | None:
    """The ranks of the two; `names` are those of all pictures of the gallery, nearest first."""
    if asked is not None:
        for rank in asked:
            if not 1 <= rank <= len(pairs):
                raise InputError(
                    f"There is no neighbour {rank}: the ranks run from 1 to {len(pairs)}.", field="contrast"
                )
        if asked[0] == asked[1]:
            raise InputError(
                f"Neighbour {asked[0]} cannot be told from itself: give two ranks, such as 1:3.", field="contrast"
            )
        return asked
    if len(names) < 2:
        return None
    groups = [_group(name) for name in names]
    stranger = next((rank for rank, group in enumerate(groups, start=1) if group != groups[0]), None)
    if stranger is None:
        return (1, pairs[-1].rank) if len(pairs) > 1 else None
    return 1, stranger


def _group(name: str) -> str:
    """The folder of a picture in the gallery."""
    return name.rpartition("/")[0]
