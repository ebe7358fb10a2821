"""`Replay`: one run of a network, and FT(f), its output with the layer's map weighed by a filter."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError, LayerError, NetworkError
from ..numerics import agreeing
from .borrow import Call, unwrap
from .inputs import Arguments, Inputs, Select, is_plain, select_output
from .joint import Joint, find_joint
from .knowledge import forget, knowledge_of
from .layers import Layer, find_layer, module_named
from .layout import Layout
from .places import EveryCall, Given
from .storage import Keeping, StandIn, StandInReadError, fingerprint_of
from .tape import Tape
from .watch import Observer

AT_ONCE = 1 << 25  # numbers that the maps of a batch may have which is repeated for every frame
SOME = 4096  # numbers of a large value that are looked at: enough to tell whether it moves, and along a line


class Seen(dict[Call, Tensor]):
    """The outputs of later module calls in one run, where they are small beside the map, and of the network.

    `given` has what later calls were given where no module returned it (a mean by a function, for one), `parts` some
    numbers of what is large. `order` has them all, in the order of time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.given: dict[Call, Tensor] = {}
        self.parts: dict[Call, Tensor] = {}
        self.order: list[Call] = []

    def read(self, reading: Callable[[Tensor], Tensor]) -> Seen:
        """The same with a function of the network's output in its place."""
        seen = Seen()
        seen.update(self)
        seen.given, seen.parts, seen.order = self.given, self.parts, self.order
        seen[OUTPUT] = reading(self[OUTPUT])
        return seen

    def whole(self, call: Call) -> Tensor | None:
        """All numbers of a call, or None where not all were kept."""
        found = self.get(call)
        return self.given.get(call) if found is None else found

    def some(self, call: Call) -> Tensor | None:
        """What was kept of a call: all of it, or some of its numbers, which are always the same ones."""
        found = self.whole(call)
        return self.parts.get(call) if found is None else found


class Replay:
    """A network, run once on a batch and cut at a layer.

    `features` is the layer's output A, `output` the untouched output NT = head(A), and `filtered(f)` is
    FT(f) = head(A * f) for weights f of shape (B, positions): only what follows the layer is computed. Gradients
    flow from f on, and the network is as it was found before and after every call.
    """

    joint: Joint | None = None  # where the frames of a clip come together, in a view of each frame
    rows: tuple[Tensor, Tensor]  # and there, of each row, the sample and the frame
    _reached: dict[Call | None, bool]
    _whole: Replay | None = None
    reading: Callable[[Tensor], Tensor] | None = None  # of the output, where a part or a function of it is asked about

    def __init__(
        self,
        network: nn.Module,
        inputs: Inputs | Arguments,
        *,
        layer: str | nn.Module | None = None,
        call: int | None = None,
        select: Select = None,
        tape: Tape | None = None,
        layout: Layout | None = None,
    ) -> None:
        self.network = unwrap(network)
        self.arguments = inputs if isinstance(inputs, Arguments) else Arguments.of(inputs)
        self.select = select
        self.evaluations = 0  # how often what follows the layer was computed
        self.observed = Seen()  # what the modules after the layer gave
        self._given = tape  # of a run that was recorded already, at this layer
        try:
            self._start(find_layer(self.network, self.arguments, layer, call=call, select=select, layout=layout))
        except _OutdatedError:
            forget(self.network)
            self._start(find_layer(self.network, self.arguments, layer, call=call, select=select, layout=layout))

    @property
    def batch(self) -> int:
        return self.arguments.batch

    @property
    def positions(self) -> int:
        return self.layer.layout.positions

    @property
    def size(self) -> tuple[int, ...]:
        """The input's size along the axes of the map."""
        return self.arguments.size_for(self.layer.layout)

    def of_frame(self, frame: int) -> Replay:
        """The same run, with one frame of a clip filtered and the others as they are."""
        return self._view(frame)

    def _view(self, frame: int | tuple[int, ...]) -> Replay:
        view = copy.copy(self)
        view.layer = replace(self.layer, layout=replace(self.layer.layout, frame=frame))
        for name in ("probe_weights", "probed"):
            view.__dict__.pop(name, None)
        return view

    def of_each_frame(self) -> Replay | None:
        """The same run with the batch as many times as it has frames, one frame filtered in each, to explain all at
        once; None where the network, so enlarged, gives other outputs, or would fill the memory."""
        frames = self.layer.layout.frames or 1
        if frames * self.features.numel() > AT_ONCE:
            return None
        joints = (find_joint(self), None)
        for joint in joints if joints[0] is not None else joints[1:]:
            # A stand-in for the clip saves its copies; a network that reads it behind the layer needs them.
            for with_numbers in (False, True):
                view = self._of_every_frame(frames, joint, with_numbers=with_numbers)
                if view is not None:
                    return view
        return None

    def _of_every_frame(self, frames: int, joint: Joint | None, *, with_numbers: bool) -> Replay | None:
        samples = torch.arange(self.batch, device=self.features.device).repeat(frames)
        view = self._view(tuple(frame for frame in range(frames) for _ in range(self.batch)))
        view.rows = samples, torch.tensor(view.layer.layout.frame, device=samples.device)
        view.joint, view._reached = joint, {None: True}
        view.arguments = self.arguments.of_samples(samples, with_numbers=with_numbers)
        view.tape = self.tape.of_samples(view.arguments, samples)
        view.features, view.output = view.tape.value, self.output[samples]
        view._whole = None if with_numbers else self
        try:
            with torch.no_grad():
                view.observed = view.observe(torch.ones(view.batch, view.positions, device=self.features.device))
                agrees = bool(agreeing(view.observed[OUTPUT], view.output).all()) and self._is_repeatable(view, frames)
        except (Exception, StandInReadError):  # noqa: BLE001 - a network may refuse another batch in any way
            return None
        return view if agrees and not view.tape.lacking and not (joint and joint.is_lacking) else None

    def _is_repeatable(self, view: Replay, frames: int) -> bool:
        """Whether a random filter on one frame gives there what it gives alone; once per network and kind of input."""
        if view.joint is not None:
            ones = torch.ones(view.batch, view.positions, device=view.features.device)
            if not bool(agreeing(view.filtered(ones), view.output).all()):
                return False
        place = None if view.joint is None else (view.joint.tape.cut.index, view.joint.form)
        known, key = knowledge_of(self.network), (self.layer.name, self.arguments.signature(), self.select, place)
        if is_plain(self.select) and known.get("repeatable", key):
            return True
        alone = [self.of_frame(number) for number in range(frames)]
        each = torch.cat([one.filtered(one.probe_weights) for one in alone])
        if not bool(agreeing(view.filtered(view.probe_weights), each, slack=10).all()):
            return False
        if not bool(agreeing(view.probed[OUTPUT], each, slack=10).all()):
            return False
        if is_plain(self.select):
            known.put("repeatable", key, True)
        return True

    def filtered(self, weights: Tensor, *, until: Call | None = None, rows: Tensor | None = None) -> Tensor:
        """Return FT(f): the output, or that of a later call, with every position of the map weighed.

        Where the frames of a clip are filtered each by itself, `rows` says which of them the weights are for; it needs
        a way past the joint of the frames (`takes_rows`).
        """
        if self.joint is None or (rows is None and not self.takes_rows(until)):
            return self.head(self.layer.layout.weigh(self.features, weights), until=until)
        self.evaluations += 1
        samples, frames = self.rows if rows is None else (own[rows] for own in self.rows)
        returned = self.joint.filtered(weights, samples, frames, until=until)
        return self.output_of(returned, until, batch=len(samples))

    def takes_rows(self, until: Call | None = None) -> bool:
        """Whether what follows the joint of the frames can be run for some of them, up to a later call."""
        if self.joint is None:
            return False
        if until not in self._reached:
            self._reached[until] = self._agrees_at(until)
        return self._reached[until]

    @torch.no_grad()
    def _agrees_at(self, until: Call | None) -> bool:
        """Whether a later call has the same value by way of the joint: one before it has not."""
        try:
            whole = self.head(self.layer.layout.weigh(self.features, self.probe_weights), until=until)
            assert self.joint is not None
            other = self.joint.filtered(self.probe_weights, *self.rows, until=until)
            return isinstance(other, Tensor) and bool(agreeing(other, whole, slack=10).all())
        except (Exception, StandInReadError):  # noqa: BLE001 - a network may refuse another batch in any way
            return False

    def read(self, reading: Callable[[Tensor], Tensor]) -> Replay:
        """The same run, with a part or a function of the output in its place; nothing is computed anew."""
        view = copy.copy(self)
        view.reading = reading
        view.output = reading(self.output)
        view.observed = self.observed.read(reading)
        if "probed" in self.__dict__:
            view.__dict__["probed"] = self.probed.read(reading)
        return view

    @property
    def was_curved(self) -> bool:
        """Whether an earlier run showed that a part of the output is not affine in the filter of this layer."""
        return is_curved(self.network, self.layer, self.arguments, self.select)

    def note_curved(self) -> None:
        """Keep that for the next run."""
        if is_plain(self.select):
            key = _kind(self.layer, self.arguments, self.select)
            knowledge_of(self.network).put("curved", key, True)

    def head(self, features: Tensor, *, until: Call | None = None) -> Tensor:
        """Return the output, or that of a later call, with another map at the layer."""
        self.evaluations += 1
        return self.output_of(self.tape.run(features, until=until), until)

    def whole(self, weights: Tensor) -> Tensor:
        """Return FT(f) by running the whole network, as one would without a tape; the slow way, for comparison."""
        self.evaluations += 1
        return self.output_of(self._run_whole(weights), None)

    def _run_whole(self, weights: Tensor, observe: Observer | None = None) -> Any:
        layout, tape = self.layer.layout, self.tape
        if self._whole is not None:
            tape = copy.copy(tape)
            tape.arguments = self._whole.arguments.of_samples(self.rows[0])

        def weighed(features: Tensor, number: int) -> Tensor:
            if self.layer.is_called_per_frame:
                return layout.weigh_frame(features, weights, number)
            return layout.weigh(features, weights)

        return tape.run_whole(weighed, observe=observe)

    def observe(self, weights: Tensor) -> Seen:
        """Return what the later module calls are given and return, in order, and what the network returns."""
        seen = Seen()
        largest = self.features[0].numel() * (self.layer.layout.frames or 1) // 4
        weighed = self.layer.layout.weigh(self.features, weights)
        latest: Any = weighed

        def note(call: Call, value: Any) -> None:
            nonlocal latest
            is_given = isinstance(call, Given)
            # As good as always a module is given what another one returned, be it flattened, or a view of the map.
            known = is_given and (_share(value, weighed) or (_share(value, latest) and value.numel() == latest.numel()))
            if not is_given:
                latest = value
            fits = isinstance(value, Tensor) and value.is_floating_point() and value.shape[:1] == (self.batch,)
            if known or not fits or isinstance(value, StandIn) or not self.tape.computes(call) or not value.numel():
                return
            seen.order.append(call)
            if value[0].numel() > largest:
                seen.parts[call] = _some_of(value)
            else:  # a copy, since the next module may write into it
                (seen.given if is_given else seen)[call] = value.clone()

        with torch.no_grad():
            self.evaluations += 1
            seen[OUTPUT] = self.output_of(self.tape.run(weighed, observe=note), None)
        seen.order.append(OUTPUT)
        return seen

    @cached_property
    def probe_weights(self) -> Tensor:
        """A random filter of either sign, the same for every sample, so that none depends on its place in the batch.

        Its mean is well below 1: about 1 a mean over many positions would hardly move, and a rectifier after it would
        look straight.
        """
        return self.random_weights(-3.0, 1.0)

    @cached_property
    def probed(self) -> Seen:
        """What the later calls are given and return at that filter."""
        return self.observe(self.probe_weights)

    def random_weights(self, lowest: float, highest: float) -> Tensor:
        """Weights between two numbers, of a seed: (B, positions), the same for every sample."""
        random = torch.rand(1, self.positions, generator=torch.Generator().manual_seed(0))
        return (lowest + (highest - lowest) * random).to(self.features.device).repeat(self.batch, 1)

    def put(self, *instead: tuple[Call, Tensor]) -> Tensor:
        """Return the output with nothing filtered, but with other values in some places after the layer."""
        with torch.no_grad():
            self.evaluations += 1
            return self.output_of(self.tape.run(self.features.clone(), instead=instead), None)

    def from_call(self, call: Call) -> Tape:
        """Return a tape that is cut at a later call, so that a re-run computes only what follows that."""
        return Tape(
            self.network,
            self.arguments,
            call,
            keeping=self.tape.keeping,
            before=self.tape,
            value_before=self.features.clone(),
            value=self.observed.get(call),
        )

    def name_of(self, call: Call) -> str:
        """Return the dotted name of a later call's module."""
        return next((name for name, module in self.network.named_modules() if module is call.module), "output")

    def later_call(self, name: str) -> Call:
        """Return the last call, after the layer, of the module of that name."""
        module = module_named(self.network, name)
        calls: list[Call] = []
        with torch.no_grad():
            self.tape.run(self.features.clone(), observe=lambda call, _: calls.append(call))
        for call in reversed(calls):
            if call.module is module and not isinstance(call, Given) and self.tape.computes(call):
                return call
        raise LayerError(f"Module {name!r} does not run after layer {self.layer}: choose one that does.")

    def _start(self, layer: Layer) -> None:
        self.layer = layer
        self.arguments = replace(self.arguments.about(layer.input), copied=layer.inputs_written)
        module = module_named(self.network, layer.name)
        self.cut = EveryCall.of(module, layer.calls) if layer.call is None else Call(module, layer.call)
        known = knowledge_of(self.network)
        ways = list(Keeping)
        # How much a tape must keep where a lean one was found wanting.
        for keeping in ways[ways.index(known.get("keeping", layer.name) or Keeping.LEAN) :]:
            if self._record(keeping) and self._is_verified(keeping):
                known.put("keeping", layer.name, keeping)
                return
        raise NetworkError(
            "The network gives another output when it is run again on the same input, so no filter can be judged: "
            "switch off what is random in its forward pass (dropout that runs in evaluation mode, noise), or what it "
            "remembers from one run to the next."
        )

    def _record(self, keeping: Keeping) -> bool:
        """Record a tape, and tell whether a re-run with nothing filtered gives the same output."""
        if self._given is not None and self._given.keeping is keeping and self._given.cut == self.cut:
            tape, self._given = self._given, None
        else:
            tape = self._new_tape(keeping)
        self.tape = tape
        shape = (self.batch * (self.layer.layout.frames or 1), *self.layer.shape)
        if not isinstance(tape.value, Tensor) or tape.cut_calls != self.layer.calls or tape.value.shape != shape:
            raise _OutdatedError(
                f"Layer {self.layer.name!r} runs differently on this batch than on its first sample alone, so a filter "
                "has no fixed place there: explain the samples one at a time, or choose another layer."
            )
        self.features = tape.value
        self.output = select_output(tape.returned, self.select, self.batch)
        tape.returned = None
        if tape.written_into():
            return False
        ones = torch.ones(self.batch, self.positions, device=self.features.device)
        try:
            self.observed = self.observe(ones)
        except Exception:  # a network may fail in any way on what a tape answers
            if keeping is Keeping.NOTHING:
                raise
            return False
        return not tape.lacking and bool(agreeing(self.observed[OUTPUT], self.output).all())

    def _new_tape(self, keeping: Keeping) -> Tape:
        known = knowledge_of(self.network)
        key = (self.layer.name, self.layer.call, self.arguments.signature())
        names = dict(self.network.named_modules())
        unmoved: list[tuple[str, int]] | None = [] if keeping is Keeping.NOTHING else known.get("unmoved", key)
        calls = [Call(names[name], index) for name, index in unmoved or () if name in names]
        inner = known.get("inner", key) if keeping is Keeping.LEAN else None
        (tape,) = Tape.of_one_run(
            self.network,
            self.arguments,
            [self.cut],
            keeping=keeping,
            unmoved=frozenset(calls),
            passed_by=inner or (),
        )
        if unmoved is not None and inner is None:
            known.put("inner", key, tape.inner())
        if unmoved is not None or not self.layer.is_called_per_frame or not isinstance(tape.value, Tensor):
            return tape
        self.tape, self.features = tape, tape.value
        called = {module: name for name, module in names.items()}
        found = [(called[call.module], call.index) for call in self._unmoved()]
        known.put("unmoved", key, found)
        return self._new_tape(keeping)

    @torch.no_grad()
    def _unmoved(self) -> list[Call]:
        """The calls between those of a layer that is called per frame which return the same whatever is filtered.

        As those do that make the next frame's map ready; a re-run answers them from the tape. Once per network.
        """
        runs: list[dict[Call, object]] = []
        ones = torch.ones(self.batch, self.positions, device=self.features.device)
        for weights in (ones, self.random_weights(-3.0, 1.0), self.random_weights(0.0, 2.0)):
            seen: dict[Call, object] = {}

            def note(call: Call, value: Any, seen: dict[Call, object] = seen) -> None:
                if not isinstance(call, Given):
                    seen[call] = fingerprint_of(value)

            self._run_whole(weights, note)
            runs.append(seen)
        order = list(runs[0])
        cuts = [place for place, call in enumerate(order) if call.module is self.cut.module]
        between = order[cuts[0] + 1 : cuts[-1]]
        return [
            call
            for call in between
            if call.module is not self.cut.module and all(call in run and run[call] == runs[0][call] for run in runs)
        ]

    def _is_verified(self, keeping: Keeping) -> bool:
        """Tell whether a re-run is the whole network also at a random filter, where errors of a tape show.

        Once for each network, layer and kind of input. A function that selects the output cannot be told from another.
        """
        known = knowledge_of(self.network)
        several = self.batch > 1  # of one sample it cannot be told whether what follows mixes the samples of a batch
        key = (self.layer.name, self.layer.call, keeping, self.arguments.signature(), self.select, several)
        if is_plain(self.select) and known.get("verified", key):
            return True
        self.__dict__.pop("probed", None)  # of a tape that was found wanting
        with torch.no_grad():
            whole = self.whole(self.probe_weights)
        try:
            replayed = self.probed[OUTPUT]
        except Exception:
            if keeping is Keeping.NOTHING:
                raise
            return False
        if self.tape.lacking or not bool(agreeing(replayed, whole).all()):
            return False
        self._check_samples()
        if is_plain(self.select):
            known.put("verified", key, True)
        return True

    @torch.no_grad()
    def _check_samples(self) -> None:
        """Refuse a network that mixes the samples of a batch after the layer: one filter would change all outputs."""
        if self.batch == 1:
            return
        odd = torch.arange(self.batch, device=self.features.device).remainder(2).eq(1)
        output = self.filtered(torch.where(odd.unsqueeze(1), self.probe_weights, 1.0))
        alone = agreeing(
            output,
            torch.where(odd.reshape(-1, *[1] * (output.ndim - 1)), self.probed[OUTPUT], self.observed[OUTPUT]),
            slack=10,
        )
        if not bool(alone.all()):
            raise NetworkError(
                f"The network mixes the samples of a batch after layer {self.layer.name!r}: what it gives for one"
                " changes when another is filtered, so that no map belongs to one of them. Explain them one at a time,"
                " or take the step over the batch (a mean or a norm of it) out of the forward pass."
            )

    def output_of(self, returned: Any, until: Call | None, *, batch: int | None = None) -> Tensor:
        """Take the tensor of interest out of what a run returned."""
        if until is not None:
            if not isinstance(returned, Tensor):
                raise InputError(f"Module {self.name_of(until)!r} gives no tensor, so nothing can be compared there.")
            return returned
        output = select_output(returned, self.select, batch or self.batch)
        return output if self.reading is None else self.reading(output)


def is_curved(network: nn.Module, layer: Layer, arguments: Arguments, select: Select) -> bool:
    """Whether an earlier run showed that a part of the output is not affine in the filter of this layer."""
    return is_plain(select) and bool(knowledge_of(network).get("curved", _kind(layer, arguments, select)))


def _kind(layer: Layer, arguments: Arguments, select: Select) -> Hashable:
    # Whether the samples of a batch mix cannot be told of one alone.
    return layer.name, layer.call, arguments.signature(), select, arguments.batch > 1


class _OutdatedError(NetworkError):
    """The network is no longer what an earlier look at it showed."""


OUTPUT = Call(nn.Identity(), -1)  # stands for the network's own output among the later calls
MEAN = Call(nn.Identity(), -1)  # and this for the map's mean over its positions, by whatever it is computed


def _some_of(value: Tensor) -> Tensor:
    """Some numbers of each sample of a large value, the same ones whenever it has this size: (B, SOME)."""
    flat = value.reshape(len(value), -1)
    places = torch.randint(flat.shape[1], (SOME,), generator=torch.Generator().manual_seed(flat.shape[1]))
    return flat[:, places.to(flat.device)]


def _share(one: Any, other: Any) -> bool:
    """Whether two tensors are views of the same numbers."""
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        return False
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
