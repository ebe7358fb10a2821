"""Do a layer's positions answer to the input beneath them? Shapes propose, the data decide.

A network is shown inputs that differ in one slab each (`slabs.py`). With y the layer's output as (positions, channels),
y_ak that for slab k across axis a, and y_0 that for the base:

    D_ak  = y_ak - y_0, less its median over the positions (what all share: attention, norms, gates)
    n_ak  = |D_ak|^2 per position
    w_ak  = n_ak / mean over positions, less a position's least over the slabs
    c_a   = sum_k u_k w_ak / sum_k w_ak,   u_k the slab's centre in [0, 1]: where along the axis a position answers

A layout is right where c_a of every grid axis follows the position's own place along it, by Pearson's correlation r.
A grid that is wrong by a factor of two reaches r = 0.5 by arithmetic, anything else that is wrong about 0. A right one
is of use where a position does not answer to all of the input (`locality.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .layout import Kind, Layout, proposals
from .locality import Locality
from .slabs import Slabs, slabs_across

Floats = npt.NDArray[np.float64]

LEAST_AGREEMENT = 0.6  # a grid that is wrong by two has 0.5; the least of a right one that was met, 0.66
# How sure: sum of atanh(r) sqrt((P - 3) / axes), which chance brings above 3 in one of 200 grids of four positions;
# with many layouts to choose from, atanh(r) sqrt(P - 3) of every axis by itself.
LEAST_CERTAINTY, CERTAINTY_OF_MANY = 3.0, 4.5
LEAST_OF_FEWER_AXES = 0.8  # for a grid that has fewer axes than the input
SIDE_BY_SIDE = 0.5  # how tokens that follow one another must answer for a place among others to be looked for
NEAR = 0.05  # two agreements as far apart as this are about the same
FEW = 8  # layouts to choose from; with more of them, chance has more tries
LEAST_POSITIONS = 4
UNSEEN = 1e-4  # a slab that moves a layer by less than this share of what another one does is not seen by it
BESIDE = 0.3  # the most that positions may differ along an axis that a layout says they do not have, beside one it has
NOISE = 10  # a change must be so many times what the network's own rounding makes of the same input
ROUNDING = 100  # a network may lose so many times the precision of its numbers
MIXED = 0.01  # a layer that differs by more of its change, and by more than rounding, mixes samples or draws by chance
SAME = 1e-5  # positions that differ by less than this share of the change cannot be told apart
# Where a layer has more, some do: positions along an axis, positions for a median, channels.
MOST_ALONG, MOST_IN_MEDIAN, MOST_CHANNELS = 32, 128, 128


class Verdict(StrEnum):
    """What the data say of a layer and its layout."""

    CONFIRMED = "confirmed"  # its positions answer to the input beneath them
    UNDECIDED = "undecided"  # too little moves, or too few positions, to tell
    REFUTED = "refuted"  # they do not


@dataclass(frozen=True)
class Finding:
    """The verdict on one layer, the layout that it is about, how well that agrees with the data, and why not better."""

    verdict: Verdict
    layout: Layout | None = None
    agreement: float = 0.0
    why: str = ""
    locality: Locality | None = None  # where its positions answer as they should


class Response:
    """How one layer answered to every row of slabs, for one choice of its channel axis: norms per position."""

    def __init__(self, slabs: Slabs, kind: Kind, frames: int | None) -> None:
        self.slabs = slabs
        self.kind = kind
        self.frames = frames
        self.held: tuple[int, ...] = ()  # the layer's axes other than batch and channels, frames first
        self.strides: tuple[int, ...] = ()
        self.spread: dict[int, float] = {}  # how far apart along an axis of the input the positions answer
        self._base: Tensor | None = None
        self._norms: list[Tensor] = []
        self._moved: list[float] = []
        self._varied: list[float] = []
        self._size = 0.0
        self._precision = 0.0

    def note(self, output: Tensor) -> None:
        """Take the layer's output for the next rows; the first of all is the base."""
        values = self._positions_and_channels(output.detach())
        if self._base is None:
            # A copy: what follows may write into the output, and the next rows are compared with what it was.
            self._base, values = values[:1].clone(), values[1:]
            self._size = float(self._base.norm())
            self._precision = torch.finfo(output.dtype).eps
        if not len(values):
            return
        change = values - self._base
        moved = change.flatten(1).norm(dim=1)
        self._moved += moved.tolist()
        self._varied += (change - change.mean(dim=1, keepdim=True)).flatten(1).norm(dim=1).tolist()
        sampled = change[:, :: -(-change.shape[1] // MOST_IN_MEDIAN)]
        change = change - sampled.transpose(1, 2).median(dim=2).values.unsqueeze(1)
        self._norms.append(change.square().sum(dim=2).cpu())

    def _positions_and_channels(self, output: Tensor) -> Tensor:
        """(rows, ...) as (rows, positions, channels); where there are many, some of either."""
        if self.frames is not None:
            output = output.unflatten(0, (-1, self.frames))
        place = 1 + (self.frames is not None)
        values = output.movedim(place, -1) if self.kind == "channels_first" else output
        self.held = tuple(values.shape[1:-1])
        # Tokens are not thinned out: which of them have a place is yet to be found.
        thin = len(self.held) - (self.frames is not None) > 1
        self.strides = tuple(-(-length // MOST_ALONG) if thin else 1 for length in self.held)
        for axis, stride in enumerate(self.strides, start=1):
            if stride > 1:
                values = values[(slice(None),) * axis + (slice(stride // 2, None, stride),)]
        channels = values[..., :: -(-values.shape[-1] // MOST_CHANNELS)]
        return channels.flatten(1, -2).float()

    def nothing_to_see(self, again: Tensor | None) -> str | None:
        """Why this layer cannot be judged, or None; `again` is its output for the base in another run."""
        if self._base is None or not self._moved:
            return "it could not be run on changed inputs"
        most = max(self._moved)
        if not math.isfinite(most) or not math.isfinite(self._size):
            return "it is not finite on changed inputs"
        if most <= NOISE * self._own(again):
            return "it changes no more with the input than from one run to the next"
        if most <= 1e-7 * self._size:
            return "it hardly changes with the input"
        if max(self._varied) <= SAME * most:
            return "all its positions change alike"
        return None

    def depends_on_others(self, again: Tensor | None) -> bool:
        """Whether what it gives for the base depends on the rows beside it, which no rounding explains."""
        own = self._own(again)
        return own > ROUNDING * self._precision * self._size and own > MIXED * max(self._moved, default=0.0)

    def _own(self, again: Tensor | None) -> float:
        """How far the output for the base was off in another run, of which every row is the base."""
        if again is None or self._base is None:
            return 0.0
        repeated = self._positions_and_channels(again)
        if repeated.shape[1:] != self._base.shape[1:]:
            return 0.0
        return float((repeated - self._base).flatten(1).norm(dim=1).max())

    def unseen(self) -> dict[int, float]:
        """For each axis of the input, the share of it that nothing in the layer answers to."""
        found = {}
        for axis in dict.fromkeys(axis for axis, _ in self.slabs.changes):
            moved = [m for m, (of, _) in zip(self._moved, self.slabs.changes, strict=True) if of == axis]
            found[axis] = sum(one <= UNSEEN * max(moved) for one in moved) / len(moved)
        return found

    def on_grid(self, values: Floats, layout: Layout) -> Floats:
        """One value per position of this response, on the axes of a layout's filter; other tokens are left out."""
        order = layout.order or range(len(layout.grid))
        frames = () if layout.frames is None else (layout.frames,)
        held = [*frames, *(layout.grid[axis] for axis in order)]
        if layout.kind == "tokens":
            values = values.reshape(*frames, -1)[..., layout.prefix : self.held[-1] - layout.suffix]
        elif self._is_thinned:
            held = [len(range(stride // 2, length, stride)) for length, stride in self._thinned(layout)]
        back = [*range(len(frames)), *(len(frames) + place for place in np.argsort(list(order)))]
        return values.reshape(held).transpose(back)

    def places(self, layout: Layout, axis: int) -> Floats:
        """The places of a layout's positions along one axis of its filter, in [0, 1]."""
        stride = 1
        if self._is_thinned:
            offset = len(layout.shape) - len(layout.grid)
            order = layout.order or range(len(layout.grid))
            held = axis if axis < offset else offset + list(order).index(axis - offset)
            stride = self._thinned(layout)[held][1]
        cells = layout.shape[axis]
        return (np.arange(stride // 2, cells, stride) + 0.5) / cells

    def _thinned(self, layout: Layout) -> list[tuple[int, int]]:
        """Length and stride of each axis that the layer holds and a layout speaks of: single cells may be left out."""
        axes = list(zip(self.held, self.strides, strict=True))
        return axes if len(axes) == len(layout.shape) else [one for one in axes if one[0] > 1]

    @property
    def _is_thinned(self) -> bool:
        return max(self.strides) > 1

    @property
    def is_independent(self) -> bool:
        """Whether nothing at all changed."""
        return bool(self._moved) and max(self._moved) == 0.0

    def shares(self) -> dict[int, Floats]:
        """How strongly each position answers to each slab across an axis, (slabs, positions), for each axis."""
        norms = torch.cat(self._norms).double().numpy()
        found = {}
        for axis in dict.fromkeys(axis for axis, _ in self.slabs.changes):
            rows = [number for number, (of, _) in enumerate(self.slabs.changes) if of == axis]
            found[axis] = norms[rows] / np.maximum(norms[rows].mean(axis=1, keepdims=True), 1e-300)
        return found

    def centres(self) -> dict[int, Floats]:
        """Where along each axis of the input each position answers, in [0, 1]."""
        found = {}
        for axis, shares in self.shares().items():
            shares = shares - shares.min(axis=0)
            total = shares.sum(axis=0)
            count = slabs_across(self.slabs.base.shape[axis])
            middle = (np.arange(count) + 0.5) / count
            found[axis] = np.where(total > 0, middle @ shares / np.maximum(total, 1e-300), 0.5)
            self.spread[axis] = float(((middle - 0.5) @ shares).std())
        return found


@dataclass(frozen=True)
class Judged:
    """A layout with its agreement: the least correlation over the axes, and how sure one can be of it."""

    layout: Layout
    agreement: float
    certainty: float
    highest: float = 0.0  # the correlation of the axis that is answered best
    least_certainty: float = 0.0  # of the axis that is answered least, by itself
    preferred: bool = False  # whether it was chosen among others, for good reasons

    @property
    def is_sure(self) -> bool:
        """Whether it is good enough by itself, with no others to choose from."""
        return self.agreement >= LEAST_AGREEMENT and self.certainty >= LEAST_CERTAINTY


class Answers:
    """What one layer's positions answer to, ready to judge layouts."""

    def __init__(self, shape: Sequence[int], responses: Sequence[Response], again: Tensor | None) -> None:
        self.shape = tuple(shape)
        self.responses = {(one.kind, one.frames): one for one in responses}
        self.why_not = next((why for one in responses if (why := one.nothing_to_see(again))), None)
        self.depends_on_others = any(one.depends_on_others(again) for one in responses)
        self.unseen = responses[0].unseen() if self.why_not is None else {}
        self.is_independent = all(one.is_independent for one in responses)
        self._centres: dict[tuple[Kind, int | None], dict[int, Floats]] = {}

    def judge(self, layout: Layout) -> Judged:
        """Correlate where the positions answer with where they lie."""
        response = self.responses[_key(layout)]
        centres = self._centres_of(_key(layout))
        found = [
            _correlation(response.on_grid(centres[axis], layout), number, response.places(layout, number))
            for number, (axis, cells) in enumerate(zip(layout.along or (), layout.shape, strict=True))
            if cells > 1
        ]
        count = math.prod(len(response.places(layout, number)) for number in range(len(layout.shape)))
        freedom = max(0.0, (count - 3) / max(1, len(found)))
        certainty = sum(math.atanh(max(-1 + 1e-9, min(r, 1 - 1e-9))) for r in found) * math.sqrt(freedom)
        least = min(found, default=0.0)
        alone = math.atanh(max(-1 + 1e-9, min(least, 1 - 1e-9))) * math.sqrt(max(0, count - 3))
        return Judged(layout, least, certainty, max(found, default=0.0), alone)

    def locality(self, layout: Layout) -> Locality:
        """How much of the input the positions of a layout answer to."""
        response, axes = self.responses[_key(layout)], []
        shares = response.shares()
        for number, (axis, cells) in enumerate(zip(layout.along or (), layout.shape, strict=True)):
            if cells > 1:
                answers = np.stack([response.on_grid(one, layout) for one in shares[axis]])
                places = response.places(layout, number).reshape(
                    [-1 if n == number else 1 for n in range(answers.ndim - 1)]
                )
                axes.append((answers.reshape(len(answers), -1), np.broadcast_to(places, answers.shape[1:]).ravel()))
        return Locality.of(axes)

    def _centres_of(self, key: tuple[Kind, int | None]) -> dict[int, Floats]:
        if key not in self._centres:
            self._centres[key] = self.responses[key].centres()
        return self._centres[key]

    def follows_tokens(self) -> bool:
        """Whether tokens that stand side by side answer to places side by side, wherever in the row that is."""
        key: tuple[Kind, int | None] = ("channels_last", None)
        if key not in self.responses:
            return False
        centres = self._centres_of(key).values()
        return max((_correlation(one[1:], 0, one[:-1]) for one in centres), default=0.0) >= SIDE_BY_SIDE

    def best(self, layouts: Iterable[Layout], axes: int) -> Judged | None:
        """The layout that the data speak for; None where there is none to choose from.

        A row of tokens also passes as one long axis, and a grid less a row as a grid: of those that agree about as
        well as the best, the one with most axes, then most positions. `axes` is how many the input has.
        """
        judged = [self.judge(layout) for layout in layouts]
        if not judged:
            return None
        sure = [one for one in judged if one.is_sure]
        if len(judged) > FEW:  # chance has more tries
            sure = [one for one in sure if one.least_certainty >= CERTAINTY_OF_MANY]
        sure = [one for one in sure if _wide(one.layout) >= axes or self._is_all_there_is(one, judged)]
        if not sure:
            return max(judged, key=lambda one: (_wide(one.layout) >= axes, one.agreement))
        top = max(one.agreement for one in sure)
        near = [one for one in sure if one.agreement >= top - 2 * NEAR]
        most = max(_wide(one.layout) for one in near)
        near = [one for one in near if _wide(one.layout) == most]
        top = max(one.agreement for one in near)
        # Along a single axis a shift costs nothing, so that tokens are left out only where they clearly have no place.
        far = 2 * NEAR if most == 1 else NEAR
        chosen = max((one for one in near if one.agreement >= top - far), key=_preferred)
        # Tokens are left out because they have no place, not to bring the rest above the least: where a layout that
        # keeps more of them is hardly worse, and not sure, neither is sure.
        rivals = [one for one in judged if _wide(one.layout) == most and one.agreement >= chosen.agreement - NEAR]
        fuller = max(rivals, key=_preferred)
        return fuller if fuller.layout.positions > chosen.layout.positions else replace(chosen, preferred=True)

    def _is_all_that_differs(self, layout: Layout) -> bool:
        """Whether positions answer to different places along the axes of a layout alone."""
        along, spread = layout.along or (), self.responses[_key(layout)].spread
        inside = [far for axis, far in spread.items() if axis in along]
        beside = [far for axis, far in spread.items() if axis not in along]
        return max(beside, default=0.0) <= BESIDE * min(inside, default=0.0)

    def _is_all_there_is(self, one: Judged, judged: Sequence[Judged]) -> bool:
        """Whether a grid of fewer axes than the input's is all that the layer knows of it.

        A grid held in one row passes as one long axis where only its slower axis is answered: a staircase. It is one
        axis only where it agrees better with a straight line than with the stairs of any grid.
        """
        if one.agreement < LEAST_OF_FEWER_AXES or one.layout.suffix:
            return False
        if not self._is_all_that_differs(one.layout):
            return False
        stairs = [
            other.highest
            for other in judged
            if _wide(other.layout) > _wide(one.layout) and other.layout.positions == one.layout.positions
        ]
        return one.agreement > max(stairs, default=0.0)


def _wide(layout: Layout) -> int:
    """How many axes of a filter have more than one cell."""
    return sum(cells > 1 for cells in layout.shape)


def _preferred(one: Judged) -> tuple[int, bool, int]:
    """Of layouts that agree alike: the one with most positions, in the input's order, along its last axes."""
    return one.layout.positions, one.layout.order is None, sum(one.layout.along or ())


def _key(layout: Layout) -> tuple[Kind, int | None]:
    return "channels_first" if layout.kind == "channels_first" else "channels_last", layout.frames


def responses_for(slabs: Slabs, layouts: Iterable[Layout]) -> list[Response]:
    """The responses that are needed to judge these layouts."""
    return [Response(slabs, kind, frames) for kind, frames in dict.fromkeys(map(_key, layouts))]


def find(
    answers: Answers,
    layouts: Sequence[Layout],
    axes: dict[int, int],
    guess: Layout | None,
    *,
    search: bool = True,
) -> Finding:
    """Find a layer's layout among those that its shape allows; `guess` is what shapes alone suggest."""
    if answers.is_independent:
        return Finding(Verdict.REFUTED, guess, why="it does not change with this input")
    if answers.depends_on_others:
        why = "what it gives for one sample depends on the others of the batch, or on chance, as with dropout"
        return Finding(Verdict.REFUTED, guess, why=why)
    if answers.why_not:
        return Finding(Verdict.UNDECIDED if guess else Verdict.REFUTED, guess, why=answers.why_not)
    # Frames may be fewer, and come on top; a very small picture has no longer axes.
    wide = sum(length > 3 for length in axes.values()) or sum(length > 1 for length in axes.values())
    best = answers.best(layouts, wide)
    # What is left over at the end of an axis is less than a cell. A network that looks at a part of its input has
    # positions that follow one another as they should, and lie elsewhere.
    for axis, cells in zip(best.layout.along or (), best.layout.shape, strict=True) if best else ():
        if answers.unseen.get(axis, 0.0) > 1 / cells:
            why = f"it does not change with {answers.unseen[axis]:.0%} of axis {axis} of the input"
            return Finding(Verdict.REFUTED, guess, why=why)
    if (
        search
        and len(answers.shape) == 3
        and (best is None or best.agreement < LEAST_AGREEMENT)
        and answers.follows_tokens()
    ):
        behind = answers.best(proposals(answers.shape, axes, answers.shape[0], suffixes=True), wide)
        if behind is not None and (best is None or behind.agreement > best.agreement + 2 * NEAR):
            best = behind
    found = verdict_on(answers, best, sure=best is not None and best.preferred)
    if found.verdict is not Verdict.UNDECIDED or found.layout == guess:
        return found
    # With few positions, some layout agrees by chance; only the one that shapes suggest is worth a doubt.
    if guess is None:
        return Finding(Verdict.REFUTED, found.layout, found.agreement, found.why)
    return verdict_on(answers, answers.judge(guess), sure=False)


def verdict_on(answers: Answers, judged: Judged | None, *, sure: bool) -> Finding:
    """Say whether a layout is good enough; `sure` tells that it is where it agrees at all."""
    if judged is None:
        return Finding(Verdict.REFUTED, None, why="no grid has so many positions")
    agrees = f"where its positions answer follows their places by {judged.agreement:.2f}"
    if judged.agreement < LEAST_AGREEMENT:
        why = f"{agrees}, where {LEAST_AGREEMENT} is the least"
        return Finding(Verdict.REFUTED, judged.layout, judged.agreement, why)
    if judged.layout.positions < LEAST_POSITIONS or not sure:
        why = f"{agrees}, but {judged.layout.positions} positions are too few to be sure"
        return Finding(Verdict.UNDECIDED, judged.layout, judged.agreement, why)
    locality = answers.locality(judged.layout)
    if not locality.is_local:
        why = f"{locality}, wherever it lies"
        return Finding(Verdict.REFUTED, judged.layout, judged.agreement, why, locality)
    return Finding(Verdict.CONFIRMED, judged.layout, judged.agreement, locality=locality)


def _correlation(values: Floats, axis: int, places: Floats) -> float:
    """Pearson's, of values on a grid with the places along one of its axes."""
    if len(places) < 2:
        return 0.0
    values = values - values.mean()
    places = places - places.mean()
    along = values.mean(axis=tuple(other for other in range(values.ndim) if other != axis))
    length = math.sqrt(float((values * values).mean()) * float(places @ places) * len(places))
    return float(along @ places) / length if length > 1e-12 else 0.0
