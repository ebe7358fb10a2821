"""`AttentionWatch`: where a network looks in its validation pictures, epoch by epoch, with no pass of its own.

    watch = l2caf.AttentionWatch(network, writers=[SummaryWriter()])
    for epoch in range(epochs):
        train(network)
        with watch.epoch(epoch):
            validate(network)                      # as it is, also under torch.inference_mode()
        print(watch.last.means)

The validation pass runs the network anyway; its maps and outputs are overheard, and explained exactly from them.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor, nn

from ..boxes import Boxes, as_boxes
from ..errors import InputError, first_line
from ..files import write_json
from ..heads.planned import PlannedHead
from ..images import save_picture
from ..map_statistics import MapStatistics, attention_of, statistics_of
from ..methods.attention_filter import AttentionFilter
from ..methods.method import Method
from ..objectives.objective import Objective
from ..preprocessing import stretched
from ..recording.inputs import Select
from .observation import Observation, Shown
from .overheard import Overheard
from .writers import checked, write_to

MOST_SHOWN = 64


class AttentionWatch:
    """Observes one network; each `epoch` is one pass over the validation pictures.

    - `objective`: as for `l2caf.explain`; by default what keeps the output. `Prediction()` for a classifier. Or a
      `method`, such as `GradCAM()`.
    - `layer`, `output`: as for `l2caf.explain`. What follows the layer has to be a mean and a linear map, which is
      verified.
    - `show`: how many of the first pictures of the pass are drawn, or which, by their places in it. The validation
      pictures have to come in the same order in every epoch, as they do without shuffling; whether they did is checked.
    - `boxes`: the boxes of each picture, (n, 4) in pixels of the input, in the order of the pass, or a function from
      the place of a picture to its boxes: then the share of the attention on them is told.
    - `picture`: a function from an input (C, H, W) to a picture (Pillow), for drawings; by default the input is
      stretched to the full range of colours.
    - `writers`: TensorBoard's `SummaryWriter`, a run of Weights & Biases, or anything with their `add_scalar` and
      `add_image`, or `log`. `out`: a folder for a sheet of each epoch, and the numbers of all of them.

    No error leaves the pass: `last.said` tells what was not explained and why.

    >>> import torch
    >>> network = nn.Sequential(
    ...     nn.Conv2d(3, 8, 4, stride=4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3)
    ... ).eval()
    >>> watch = AttentionWatch(network, show=2)
    >>> with watch.epoch(0), torch.inference_mode():
    ...     for batch in torch.rand(5, 4, 3, 32, 32):
    ...         scores = network(batch)
    >>> len(watch.last.statistics), sorted(watch.last.shown), watch.last.said
    (20, [0, 1], '')
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        objective: Objective | None = None,
        method: Method | None = None,
        layer: str | nn.Module | None = None,
        output: Select = None,
        show: int | Sequence[int] = 8,
        boxes: Sequence[Any] | Callable[[int], Any] | None = None,
        picture: Callable[[Tensor], Any] | None = None,
        writers: Iterable[Any] = (),
        out: str | Path | None = None,
        name: str = "attention",
    ) -> None:
        if method is not None and objective is not None:
            raise InputError("A method is given, and beside it an objective: give one of them.", field="objective")
        self.network = network
        self.method = method or AttentionFilter(objective)
        self.layer = layer
        self.output = output
        self.places = _places(show)
        self.boxes = boxes
        self.picture = picture or _picture
        self.writers = [checked(writer) for writer in writers]
        self.out = None if out is None else Path(out)
        self.name = name
        self.history: list[dict[str, Any]] = []
        self._last: Observation | None = None
        self._marks: dict[int, int] = {}

    @property
    def last(self) -> Observation:
        """The last finished pass."""
        if self._last is None:
            raise InputError("Nothing was observed yet: run a validation pass inside `with watch.epoch(0):`.")
        return self._last

    @contextmanager
    def epoch(self, epoch: int | None = None) -> Iterator[None]:
        """Observe all that passes through the network in this block; then write what was seen."""
        observer = _Observer(self)
        with Overheard(self.network, observer.heard, layer=self.layer, output=self.output) as overheard:
            yield
        reason = overheard.reason
        if not overheard.batches:
            reason = "The network was not called: give the module that the validation pass calls."
        self._last = Observation(
            epoch,
            MapStatistics.joined(observer.statistics),
            tuple(observer.places),
            {place: observer.shown[place] for place in self.places if place in observer.shown},
            overheard.missed,
            reason,
            self._note(observer.marks),
        )
        self.history.append(self._last.as_dict())
        try:
            self._write(self._last)
        except Exception as error:  # noqa: BLE001 - a full disk or a writer of anybody's: the training goes on
            said = f"The observation could not be written ({first_line(error)})."
            self._last = replace(self._last, note=" ".join(filter(None, (self._last.note, said))))
            self.history[-1] = self._last.as_dict()

    def boxes_at(self, place: int) -> Boxes:
        """The boxes of a picture, by its place in the pass."""
        if self.boxes is None:
            return as_boxes(())
        if callable(self.boxes):
            found = self.boxes(place)
        elif place < len(self.boxes):
            found = self.boxes[place]
        else:
            raise InputError(f"There are boxes for {len(self.boxes)} pictures, and this is number {place}, from 0 on.")
        return as_boxes(() if found is None else found)

    def _note(self, marks: dict[int, int]) -> str:
        """Whether the fixed pictures are those of the pass before."""
        other = [place for place, mark in marks.items() if self._marks.get(place, mark) != mark]
        self._marks |= marks
        return (
            f"Picture {other[0]} is another one than in the pass before: validate without shuffling or random"
            " augmentation to see the same ones in every epoch."
            if other
            else ""
        )

    def _write(self, seen: Observation) -> None:
        step = len(self.history) - 1 if seen.epoch is None else seen.epoch
        for writer in self.writers:
            write_to(writer, seen, name=self.name, step=step)
        if self.out is not None:
            self.out.mkdir(parents=True, exist_ok=True)
            if seen.shown:
                save_picture(seen.sheet(), self.out / f"{self.name}-{step:04d}.png")
            write_json(self.out / f"{self.name}.json", self.history)


class _Observer:
    """What one pass has shown so far."""

    def __init__(self, watch: AttentionWatch) -> None:
        self.watch = watch
        self.statistics: list[MapStatistics] = []
        self.shown: dict[int, Shown] = {}
        self.marks: dict[int, int] = {}
        self.places: list[int] = []  # of the pictures that the statistics are of

    def heard(self, head: PlannedHead, inputs: Tensor, first: int) -> None:
        heatmap = self.watch.method.on(head)
        if heatmap.weights.ndim != 3:
            raise InputError(
                "One map of two dimensions per picture can be observed: ask for one class, of a network of pictures."
            )
        weights = heatmap.weights.clamp_min(0) if heatmap.keeps_sign else heatmap.weights.abs()
        shown = weights.double().cpu().numpy()
        places = range(first, first + head.batch)
        boxes = None if self.watch.boxes is None else [self.watch.boxes_at(place) for place in places]
        size = (heatmap.size[0], heatmap.size[1])
        statistics = statistics_of(attention_of(shown), size=size, boxes=boxes)
        drawn: dict[int, Shown] = {}
        marks: dict[int, int] = {}
        for place in self.watch.places:
            if place in places:
                one = inputs[place - first].detach().float().cpu()
                heat = shown[place - first] / max(float(shown[place - first].max()), 1e-300)
                outcome: Any = heatmap.solution.outcome[place - first]
                picture = self.watch.picture(one)
                if not isinstance(picture, Image.Image):
                    raise InputError(
                        f"The function `picture` returned a {type(picture).__name__}: return a picture of Pillow, such"
                        " as PIL.Image.fromarray makes."
                    )
                drawn[place] = Shown(picture, heat.astype(np.float32), outcome)
                marks[place] = zlib.crc32(one.contiguous().numpy().tobytes())
        # All of a batch or nothing: what is counted as missed is not among the numbers.
        self.statistics.append(statistics)
        self.places += places
        self.shown |= drawn
        self.marks |= marks


def _picture(values: Tensor) -> Any:
    return stretched(values[:3].numpy() if len(values) > 2 else values[:1].numpy())


def _places(show: int | Sequence[int]) -> tuple[int, ...]:
    if isinstance(show, bool) or (isinstance(show, int) and show < 0):
        raise InputError(f"show is {show!r}: give how many of the first pictures are drawn, or their places.")
    places = tuple(range(show)) if isinstance(show, int) else tuple(show)
    if len(places) > MOST_SHOWN or any(isinstance(one, bool) or not isinstance(one, int) or one < 0 for one in places):
        raise InputError(f"show names {len(places)} pictures: give {MOST_SHOWN} places at most, from 0 on.")
    return places
