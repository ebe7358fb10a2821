"""The frames of a clip through a network: one by one, or several at once; each comes back with its maps."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..clips import Clip, ClipInput, Frame, Told, spread, unheard
from ..errors import InputError
from ..networks.class_names import Prediction
from ..preprocessing import Prepared
from ..rendering.colors import Floats
from ..rendering.drawn import Heat
from ..solution import Outcome
from .explained import UNSEEN
from .pooling import pooling_note

if TYPE_CHECKING:
    from torch import Tensor

    from ..heatmap import Heatmap
    from ..methods.method import Method
    from ..networks.model import Model
    from ..recording.inputs import Select

WINDOWS = ("slide", "middle", "spread")
FRAMES = 16  # at once, for a network that takes any number and does not say


@dataclass(frozen=True)
class Sampling:
    """Which frames of a clip a network is shown; None for what suits the network.

    frames   how many at once
    stride   N, where every Nth frame of the clip is taken
    window   "slide": one stretch of frames after the other, to the end of the clip; "middle": one from its middle;
             "spread": frames spread evenly over all of it
    batch    single pictures that run at once
    """

    frames: int | None = None
    stride: int | None = None
    window: str | None = None
    batch: int = 4

    def __post_init__(self) -> None:
        for name in ("frames", "stride", "batch"):
            given = getattr(self, name)
            if given is not None and given < 1:
                raise InputError(f"{given} is no number of frames: give 1 or more.", field=name)
        if self.window not in (None, *WINDOWS):
            raise InputError(f"There is no window {self.window!r}: take one of {', '.join(WINDOWS)}.", field="window")
        if self.window == "spread" and self.stride is not None:
            raise InputError("Frames that are spread over the clip have no stride: leave it out.", field="stride")

    def stride_for(self, clip: Clip, takes: ClipInput | None) -> int:
        """N, where every Nth frame is taken: as many a second as the network was trained on, where both are known."""
        if self.stride is not None:
            return self.stride
        rate = None if takes is None else takes.rate
        return 1 if rate is None or clip.rate is None else max(1, round(clip.rate / rate))


@dataclass(frozen=True)
class Moment:
    """One frame with its maps.

    about     the class of each map; None where it is about the whole output
    weights   each map as it was found, on the layer's grid and with its sign: (maps, *grid)
    share     of each map on this frame beside an even share of all frames: 1 is even; None of a picture for itself
    first     whether a stretch of frames that the network saw together begins here
    """

    frame: Frame
    heats: tuple[Heat, ...]
    prediction: Prediction | None
    about: tuple[Prediction | None, ...]
    weights: Floats
    share: tuple[float, ...] | None = None
    first: bool = False

    @property
    def faint(self) -> tuple[bool, ...]:
        """Which maps are of a class that the network hardly sees here."""
        return tuple(one is not None and one.probability is not None and one.probability < UNSEEN for one in self.about)


class Window(NamedTuple):
    """Frames that the network sees together; those from `start` to `stop` are shown."""

    frames: list[Frame]
    start: int
    stop: int


@dataclass
class Found:
    """How the maps of a clip were found: at which layer, by which solver, with which outcomes."""

    layer: str = ""
    solver: str = ""
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    per_frame: bool = False  # whether each of several frames has a filter of its own


class Asked:
    """One question to one network, put to the frames of a clip.

    Afterwards `found` tells how the maps were found, and `notes` what a reader should know.
    """

    def __init__(
        self,
        model: Model,
        method: Method,
        *,
        layer: str | None = None,
        select: Select = None,
        signed: bool = False,
        sampling: Sampling = Sampling(),  # noqa: B008 - it cannot be changed
    ) -> None:
        self.model, self.method, self.layer, self.select, self.signed = model, method, layer, select, signed
        self.sampling = sampling
        self.found = Found()
        self.notes: list[str] = []

    def moments(self, clip: Clip, damaged: Told = unheard) -> Iterator[Moment]:
        """Every frame that the network is shown, in order; memory does not grow with their number."""
        takes = self.model.clip
        if takes is None:
            frames = islice(clip.frames(damaged), 0, None, self.sampling.stride_for(clip, takes))
            # What is found out about a network at its first run costs several times what it runs on.
            for batch in _batched(frames, self.sampling.batch, first=1):
                yield from self._one_by_one(batch)
            return
        for window in self.windows(clip, takes, damaged):
            yield from self._together(window, takes)

    def shown(self, clip: Clip) -> int | None:
        """How many moments there will be, as far as the file tells the truth; None where it tells nothing."""
        takes = self.model.clip
        if takes is not None and self._window(takes) != "slide":
            return self._length(takes)
        taken = None if clip.announced is None else -(-clip.announced // self.sampling.stride_for(clip, takes))
        return taken if taken is None or takes is None else max(taken, self._length(takes) if takes.frames else 1)

    def _length(self, takes: ClipInput) -> int:
        asked = self.sampling.frames
        if asked is not None and takes.frames not in (None, asked) and "clip" not in self.model.assumed:
            raise InputError(f"{self.model.name} takes {takes.frames} frames at once: leave this out.", field="frames")
        return asked or takes.frames or FRAMES

    def _window(self, takes: ClipInput) -> str:
        return self.sampling.window or ("spread" if takes.spread else "slide")

    def windows(self, clip: Clip, takes: ClipInput, damaged: Told = unheard) -> Iterator[Window]:
        """The stretches of frames that a network for clips is shown, one after the other."""
        length, window, stride = self._length(takes), self._window(takes), self.sampling.stride_for(clip, takes)
        if window == "slide":
            yield from self._sliding(islice(clip.frames(damaged), 0, None, stride), length, takes)
            return
        if window == "spread":
            places = spread(clip.count, length)
        else:
            taken = range(0, clip.count, stride)
            start = max(0, (len(taken) - length) // 2)
            places = list(taken[start : start + length])
        frames = clip.at(dict.fromkeys(places), damaged)
        yield self._filled(frames, length, takes, fresh=len(frames))

    def _sliding(self, frames: Iterator[Frame], length: int, takes: ClipInput) -> Iterator[Window]:
        """One stretch after the other; the last one reaches back, so that it is as long as the others."""
        held: deque[Frame] = deque(maxlen=length)
        fresh = 0
        for frame in frames:
            held.append(frame)
            fresh += 1
            if fresh == length:
                yield Window(list(held), 0, length)
                fresh = 0
        if fresh:
            yield self._filled(list(held), length, takes, fresh=fresh)

    def _filled(self, frames: list[Frame], length: int, takes: ClipInput, *, fresh: int) -> Window:
        """Frames of which the last so many are new; for a network of a fixed length the last one stands still."""
        missing = length - len(frames) if takes.frames is not None else 0
        if missing > 0:
            self._note(f"The clip has {len(frames)} frames and the network takes {length}: the last one stands still.")
        return Window(frames + [frames[-1]] * max(0, missing), len(frames) - fresh, len(frames))

    def _note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)

    def _one_by_one(self, frames: list[Frame]) -> Iterator[Moment]:
        ready = [self.model.ready(frame.picture) for frame in frames]
        with self.model.run(ready, layer=self.layer, output=self.select) as recording:
            heatmap = self.method.on(recording.head)
            output = recording.output
        self._learn(heatmap)
        predictions = self.model.predictions(output)
        fine = heatmap.signed if self.signed else heatmap.maps
        for index, (frame, prepared) in enumerate(zip(frames, ready, strict=True)):
            grids = heatmap.grids(index, signed=self.signed)
            sharp = fine[index].cpu().numpy().reshape(len(grids), *heatmap.size)
            heats = tuple(Heat(grid, map_, self.signed, prepared.crop) for grid, map_ in zip(grids, sharp, strict=True))
            weights = heatmap.weights[index].detach().float().cpu().numpy().reshape(grids.shape)
            about = self._about(heatmap, output, index, len(heats))
            yield Moment(self._shown(frame, prepared), heats, predictions[index], about, weights)

    def _together(self, window: Window, takes: ClipInput) -> Iterator[Moment]:
        """The maps of frames that the network sees together, in the order of time."""
        import torch

        from ..frame_maps import (
            filters_in_time,
            frames_in,
            grids_in_time,
            has_filters_of_their_own,
            maps_in_time,
            shares_in_time,
        )

        count = len(window.frames)
        ready = [self.model.ready(frame.picture) for frame in window.frames]
        clip = torch.stack([torch.as_tensor(one.input) for one in ready], dim=1 if takes.channels_first else 0)
        with self.model.run(clip[None], layer=self.layer, output=self.select) as recording:
            heatmap = self.method.on(recording.head)
            output = recording.output
            if not self.found.layer and (note := pooling_note(recording.head, count)):
                self._note(note)
        self._learn(heatmap)
        self.found.per_frame = has_filters_of_their_own(heatmap)
        if heatmap.call is not None:
            self._note(f"This is the map of call {heatmap.call} of layer {heatmap.layer} alone, shown on all frames.")
        elif frames_in(heatmap) is None:
            self._note(f"Layer {heatmap.layer} has no axis of time: its map is the same for all frames.")
        (prediction,) = self.model.predictions(output)
        filters = filters_in_time(heatmap, 0, count).numpy()
        grids = grids_in_time(heatmap, 0, count, signed=self.signed).numpy()
        fine = maps_in_time(heatmap, 0, count, signed=self.signed).numpy()
        shares = shares_in_time(heatmap, 0, count).numpy()
        about = self._about(heatmap, output, 0, len(grids))
        for place in range(window.start, window.stop):
            crop = ready[place].crop
            heats = tuple(
                Heat(grid[place], map_[place], self.signed, crop) for grid, map_ in zip(grids, fine, strict=True)
            )
            share = tuple(float(one) for one in shares[:, place])
            first = place == window.start
            frame = self._shown(window.frames[place], ready[place])
            yield Moment(frame, heats, prediction, about, filters[:, place], share, first=first)

    def _shown(self, frame: Frame, prepared: Prepared) -> Frame:
        """What a frame's maps are drawn on: the frame, or what the network saw where its place there is not known."""
        if prepared.crop is not None:
            return frame
        self._note("Only the network's own function knows how it prepares frames: what it made of them is shown.")
        return Frame(np.asarray(prepared.view.convert("RGB")), frame.time)

    def _about(self, heatmap: Heatmap, output: Tensor, index: int, count: int) -> tuple[Prediction | None, ...]:
        if heatmap.classes is None:
            return (None,) * count
        chosen = heatmap.classes[index].reshape(-1).tolist()
        return tuple(self.model.prediction_of(output, index, one) for one in chosen)

    def _learn(self, heatmap: Heatmap) -> None:
        self.found.layer = heatmap.layer
        if heatmap.solution.is_formula:
            return
        self.found.solver = heatmap.solution.of_sample(0).solver
        for sample in range(len(heatmap)):
            outcomes = heatmap.solution.outcomes(sample)
            self.found.outcomes.update(outcomes)
            for one in outcomes:
                if one.shows_nothing:
                    self._note(f"Where the map is empty, it is {one.replace('_', ' ')}: {one.sentence}.")


def smoothed(moments: Iterable[Moment], over: int) -> Iterator[Moment]:
    """Moments whose maps are means over so many of them, itself in the middle; at the ends over fewer."""
    half = over // 2
    near: deque[Moment] = deque()
    middle = 0
    for moment in moments:
        near.append(moment)
        if len(near) - middle > half:
            yield _mean(near, middle)
            middle += 1
        if middle > half:
            near.popleft()
            middle -= 1
    while middle < len(near):
        yield _mean(near, middle)
        middle += 1
        if middle > half:
            near.popleft()
            middle -= 1


def _mean(near: Sequence[Moment], middle: int) -> Moment:
    one = near[middle]
    heats = []
    for which, heat in enumerate(one.heats):
        grid = np.stack([other.heats[which].grid for other in near]).mean(axis=0)
        fine = np.stack([other.heats[which].fine for other in near]).mean(axis=0)
        heats.append(replace(heat, grid=_scaled(grid), fine=_scaled(fine)))
    return replace(one, heats=tuple(heats))


def _scaled(heat: Floats) -> Floats:
    largest = float(abs(heat).max())
    return heat / np.float32(largest) if largest > 0 else heat


def _batched(frames: Iterator[Frame], size: int, *, first: int) -> Iterator[list[Frame]]:
    """Batches of a size, the first of them smaller."""
    batch = list(islice(frames, min(first, size)))
    while batch:
        yield batch
        batch = list(islice(frames, size))
