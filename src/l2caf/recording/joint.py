"""Where the frames of a clip come together: the last value in which each of them is still by itself.

Up to there, what a frame's filter changes is that frame's part alone. So the frames are computed once for all filters,
and only what follows, a recurrent layer for the most part, runs for each filter with all frames: with T filters for the
T frames of a clip, what lies before costs T rows in place of T * T.

Nothing is known of the network. A value is taken for it if frames that are weighed change as they do when all are, and
the others not at all; if the network, run on with such a value in its place, gives the output that belongs to it; and
if a random filter on one frame gives what it gives alone (`replay.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from ..numerics import agreeing, rows
from .borrow import Call
from .knowledge import knowledge_of
from .layers import module_named
from .places import EveryCall, EveryGiven, Given
from .storage import Keeping, StandIn, fingerprint_of
from .tape import Tape

if TYPE_CHECKING:
    from .replay import Replay

Form = Literal["rows", "samples", "frames"]  # (B * T, ...), (B, T, ...) or (T, B, ...)
MOST_PLACES = 12  # places that are tried, from the last one back
NONE = "none"


class Joint:
    """The rest of a network after its frames came together, for any rows of (sample, frame), each with a filter."""

    def __init__(self, replay: Replay, tape: Tape, form: Form) -> None:
        self.replay, self.tape, self.form = replay, tape, form
        self.frames = replay.layer.layout.frames or 1
        self.value = self._apart(tape.value, replay.batch)  # (B, T, ...), untouched
        self._latest: tuple[tuple[int, ...], Tape] | None = None

    @property
    def is_lacking(self) -> bool:
        """Whether a run was found to need what the tapes do not hold."""
        return self.tape.lacking or (self._latest is not None and self._latest[1].lacking)

    def filtered(self, weights: Tensor, samples: Tensor, frames: Tensor, *, until: Call | None = None) -> Any:
        """What the network, or a later call, returns for filters (R, n), each on one frame of one sample, with the
        other frames untouched."""
        own = self.own(weights, samples, frames).to(self.value.dtype)
        together = self.value[samples]
        numbers = torch.arange(self.frames, device=frames.device).eq(frames.unsqueeze(1))
        is_own = numbers.reshape(*numbers.shape, *[1] * (together.ndim - 2))
        together = torch.where(is_own, own.unsqueeze(1), together)
        return self._of_samples(samples).run(self._joined(together), until=until)

    def own(self, weights: Tensor, samples: Tensor, frames: Tensor) -> Tensor:
        """The parts of these frames, under these filters: (R, ...)."""
        if self.is_mean:
            columns = self.columns[samples, frames]
            means = torch.bmm(columns, weights.to(columns.dtype).unsqueeze(2)).squeeze(2) / columns.shape[2]
            return means.reshape(-1, *self.value.shape[2:])
        return self._computed(weights, samples, frames)

    @cached_property
    def columns(self) -> Tensor:
        """The maps of all frames: (B, T, C, n)."""
        columns = self.replay.layer.layout.columns(self.replay.features)
        return columns.unflatten(2, (self.frames, -1)).transpose(1, 2).contiguous()

    @cached_property
    def is_mean(self) -> bool:
        """Whether a frame's part is its map's mean over the positions: by its values, at a random filter."""
        weights = self.replay.probe_weights.unflatten(1, (self.frames, -1))
        means = torch.einsum("btcn,btn->btc", self.columns, weights.to(self.columns)) / weights.shape[2]
        if means[0].numel() != self.value[0].numel():
            return False
        samples, frames = self._every()
        with torch.no_grad():
            parts = self._computed(weights.flatten(0, 1), samples, frames)
        return bool(agreeing(rows(parts), means.flatten(0, 1), slack=10).all())

    def _every(self) -> tuple[Tensor, Tensor]:
        """All frames of all samples: their numbers."""
        samples = torch.arange(self.replay.batch, device=self.value.device)
        return samples.repeat_interleave(self.frames), torch.arange(self.frames).to(samples).repeat(len(samples))

    def _computed(self, weights: Tensor, samples: Tensor, frames: Tensor) -> Tensor:
        """The parts of some frames by the network itself; each of several filters for one frame takes a row."""
        replay, layout = self.replay, self.replay.layer.layout
        place = samples * self.frames + frames
        order = place.argsort(stable=True)
        first = torch.searchsorted(place[order], place[order])
        turn = torch.empty_like(order)
        turn[order] = torch.arange(len(order), device=order.device) - first  # which filter of its frame it is
        line = turn * replay.batch + samples
        used, line = line.unique(return_inverse=True)
        own = used % replay.batch
        whole = torch.ones(len(used), self.frames, weights.shape[1], device=weights.device)
        whole = whole.index_put((line, frames), weights.to(whole))
        if len(own) == replay.batch and bool((own == torch.arange(len(own), device=own.device)).all()):
            tape, features = replay.tape, replay.features
        else:
            arguments = replay.arguments.of_samples(own, with_numbers=False)
            tape = replay.tape.of_samples(arguments, own)
            features = tape.value
        found = values_at(tape, self.tape.cut, layout.weigh(features, whole.flatten(1)))
        return self._apart(found, len(own))[line, frames]

    def _of_samples(self, samples: Tensor) -> Tape:
        key = tuple(samples.tolist())
        if self._latest is None or self._latest[0] != key:
            arguments = self.replay.arguments.of_samples(samples, with_numbers=False)
            self._latest = key, self.tape.of_samples(arguments, samples)
        return self._latest[1]

    def _apart(self, value: Tensor, batch: int) -> Tensor:
        return apart(value, self.form, batch, self.frames)

    def _joined(self, value: Tensor) -> Tensor:
        if self.form == "samples":
            return value
        return value.flatten(0, 1) if self.form == "rows" else value.transpose(0, 1).contiguous()


def apart(value: Tensor, form: Form, batch: int, frames: int) -> Tensor:
    """A value with an axis for the samples and one for the frames."""
    if form == "rows":
        return value.unflatten(0, (batch, frames))
    return value if form == "samples" else value.transpose(0, 1)


def forms(shape: Sequence[int], batch: int, frames: int) -> Iterator[Form]:
    """How a value of this shape may hold the frames of a batch."""
    if shape[:1] == (batch * frames,):
        yield "rows"
    if shape[:2] == (batch, frames):
        yield "samples"
    if shape[:2] == (frames, batch):
        yield "frames"


def values_at(tape: Tape, place: Call, value: Tensor) -> Tensor:
    """What a later place, or all calls of one, has with another value at the cut of a tape."""
    if not isinstance(place, EveryCall):
        found: Tensor = tape.run(value, until=place)
        return found
    calls, seen = place.each(), {}

    def note(call: Call, returned: Any) -> None:
        if call in calls:
            seen[call] = returned

    tape.run(value, until=calls[-1], observe=note)
    joined = place.joined([seen[call] for call in calls])
    assert joined is not None
    return joined


@dataclass(frozen=True)
class _Known:
    """What is kept of a joint: names and numbers."""

    module: str
    kind: type[Call]
    number: int  # of the call, or of the calls
    form: Form
    unmoved: tuple[tuple[str, int], ...]
    unread: frozenset[int] = frozenset()  # which of the calls that the tape answers nobody reads

    def place(self, replay: Replay) -> Call:
        module = module_named(replay.network, self.module)
        return self.kind.of(module, self.number) if issubclass(self.kind, EveryCall) else self.kind(module, self.number)


def find_joint(replay: Replay) -> Joint | None:
    """Where the frames of a recorded clip come together; None where that was not found."""
    if replay.tape.keeping is not Keeping.LEAN or not replay.layer.layout.frames:
        return None
    # Of one sample, its rows may stand in either order.
    key = (replay.layer.name, replay.arguments.signature(), replay.batch > 1)
    known = knowledge_of(replay.network)
    found: _Known | str | None = known.get("joint", key)
    with torch.no_grad():
        if found is None:
            try:
                found = _search(replay)
                found = NONE if found is None else replace(found, unread=_unread(replay, found))
            except Exception:  # noqa: BLE001 - a network may refuse any value but its own
                found = NONE
            known.put("joint", key, found)
        if isinstance(found, str):
            return None
        tape = _tape(replay, found)
    return None if tape is None else Joint(replay, tape.without(found.unread), found.form)


def _tape(replay: Replay, known: _Known) -> Tape | None:
    calls = frozenset(Call(module_named(replay.network, name), number) for name, number in known.unmoved)
    before, value = replay.tape, replay.features.clone()
    tape = Tape(
        replay.network,
        replay.arguments,
        known.place(replay),
        keeping=before.keeping,
        before=before,
        value_before=value,
        unmoved=calls,
    )
    return tape if isinstance(tape.value, Tensor) and not tape.written_into() else None


def _search(replay: Replay) -> _Known | None:
    layout, batch, frames = replay.layer.layout, replay.batch, replay.layer.layout.frames or 1
    ones = torch.ones(batch, replay.positions, device=replay.features.device)
    weights = replay.probe_weights
    some = torch.arange(frames, device=ones.device).remainder(2).eq(0).reshape(1, -1, 1)
    half = torch.where(some, weights.unflatten(1, (frames, -1)), 1.0).flatten(1)
    untouched, all_weighed, half_weighed = (_watched(replay, one) for one in (ones, weights, half))
    weighed = layout.weigh(replay.features, weights)
    output = replay.output_of(replay.tape.run(weighed), None)
    called = {module: name for name, module in replay.network.named_modules()}
    tried = 0
    for place in _places(untouched, frames):
        values = [_value(seen, place) for seen in (untouched, all_weighed, half_weighed)]
        if any(value is None or value.shape != values[0].shape for value in values):  # type: ignore[union-attr]
            continue
        for form in forms(values[0].shape, batch, frames):  # type: ignore[union-attr]
            if not _is_apart(values, form, batch, frames):
                continue
            tried += 1
            instead = _placed(place, values[1])
            if not bool(agreeing(replay.put(*instead), output, slack=10).all()):
                continue
            same = _unmoved(replay, untouched, instead) if isinstance(place, EveryCall) else []
            names = tuple((called[call.module], call.index) for call in same)
            number = place.calls if isinstance(place, EveryCall) else place.index
            return _Known(called[place.module], type(place), number, form, names)
        if tried >= MOST_PLACES:
            return None
    return None


def _watched(replay: Replay, weights: Tensor) -> dict[Call, Tensor]:
    """What later calls are given and return, in order, where that is no larger than the map."""
    seen: dict[Call, Tensor] = {}

    def note(call: Call, value: Any) -> None:
        is_tensor = isinstance(value, Tensor) and not isinstance(value, StandIn) and value.is_floating_point()
        if is_tensor and replay.tape.computes(call) and 0 < value.numel() <= replay.features.numel():
            seen[call] = value.clone()

    replay.tape.run(replay.layer.layout.weigh(replay.features, weights), observe=note)
    return seen


def _places(seen: dict[Call, Tensor], frames: int) -> Iterator[Call]:
    """Places that may be it, from the last one back: single calls, and all calls of what is called once per frame."""
    kinds = [(call.module, isinstance(call, Given)) for call in seen]
    done = set()
    for call, kind in zip(reversed(seen), reversed(kinds), strict=True):
        yield call
        if kinds.count(kind) == frames > 1 and kind not in done:
            done.add(kind)
            every = EveryGiven if kind[1] else EveryCall
            yield every.of(call.module, frames)


def _value(seen: dict[Call, Tensor], place: Call) -> Tensor | None:
    if isinstance(place, EveryCall):
        return place.joined([seen.get(call) for call in place.each()])
    return seen.get(place)


def _placed(place: Call, value: Tensor | None) -> tuple[tuple[Call, Tensor], ...]:
    assert value is not None
    if isinstance(place, EveryCall):
        return tuple(zip(place.each(), place.parted(value), strict=True))
    return ((place, value.clone()),)


def _is_apart(values: Sequence[Tensor | None], form: Form, batch: int, frames: int) -> bool:
    """Whether frames that are weighed change as they do when all are, and the others not at all."""
    untouched, weighed, half = (
        apart(value, form, batch, frames).reshape(batch, frames, -1) for value in values if value is not None
    )
    some = torch.arange(frames, device=half.device).remainder(2).eq(0).reshape(1, -1, 1)
    expected = torch.where(some, weighed, untouched)
    moves = bool((weighed != untouched).any())
    return moves and bool(agreeing(half.flatten(0, 1), expected.flatten(0, 1)).all())


def _unmoved(replay: Replay, untouched: dict[Call, Tensor], instead: Sequence[tuple[Call, Tensor]]) -> list[Call]:
    """The later calls that return the same whatever the place has."""
    seen: dict[Call, object] = {}

    def note(call: Call, value: Any) -> None:
        if not isinstance(call, Given):
            seen[call] = fingerprint_of(value)

    replay.tape.run(replay.features.clone(), observe=note, instead=instead)
    placed = {call for call, _ in instead}
    return [
        call
        for call, value in untouched.items()
        if not isinstance(call, Given) and call not in placed and seen.get(call) == fingerprint_of(value)
    ]


def _unread(replay: Replay, known: _Known) -> frozenset[int]:
    """Which of the calls that a tape answers nobody reads: to have their rows for every filter takes longest.

    As the maps of a backbone, which only what is answered itself is given. What is found wanting later is told by the
    run (`Tape.lacking`), and by the check of every view against its untouched output.
    """
    tape = _tape(replay, known)
    if tape is None:
        return frozenset()

    def is_enough(numbers: frozenset[int]) -> bool:
        fewer = tape.without(numbers)
        output = replay.output_of(fewer.run(fewer.value.clone()), None)
        return not fewer.lacking and bool(agreeing(output, replay.output).all())

    every = frozenset(range(len(tape.kept)))
    if is_enough(every):
        return every
    alone = frozenset(number for number in every if is_enough(frozenset([number])))
    return alone if is_enough(alone) else frozenset()
