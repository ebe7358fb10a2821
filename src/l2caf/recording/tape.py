"""A recorded run of a network, cut where one call of one module returned.

While the network runs, every module call that finishes before the cut is noted, unless it lies inside another
such call. To run the network again with another value at the cut, the noted calls return what they returned
before, the cut returns the new value, and only what comes after it is computed. Nothing is known of the
architecture: skip connections, functional glue and modules that are called many times all work. What a call returned is
what the rest of the network received, so it is taken after the owner's hooks on that module.

A module that is called once per frame of a clip is cut at every call. Of what runs between these calls, the network
computes again only what depends on them: calls that are known not to are noted as well.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import NetworkError
from .arranged import Arranged, has_hooks
from .borrow import Call, Forward, borrowed, forwards_replaced
from .inputs import Arguments
from .storage import Frames, Keeping, Noted, StandInReadError, copied, holds_stand_in, rebuilt, repeated

Observer = Callable[[Call, Any], None]
AtCut = Callable[[Any, int], Any]


@dataclass(frozen=True)
class Given(Call):
    """What the index-th call of a module is given, its first tensor: a value that may be no module's output."""


@dataclass(frozen=True)
class EveryCall(Call):
    """All calls of a module in one run, one per frame; what they return is one batch, a sample's frames in a row."""

    calls: int = 1

    @classmethod
    def of(cls, module: nn.Module, calls: int) -> EveryCall:
        return cls(module, 0, calls)

    def joined(self, values: Sequence[Any]) -> Tensor | None:
        """The values of the calls as one batch; None where they are not alike."""
        shapes = {value.shape if isinstance(value, Tensor) else None for value in values}
        if len(values) != self.calls or len(shapes) > 1 or None in shapes:
            return None
        return torch.stack(list(values), dim=1).flatten(0, 1)

    def parted(self, value: Tensor) -> list[Tensor]:
        """Such a batch as the values of the calls."""
        return [one.contiguous() for one in value.unflatten(0, (-1, self.calls)).unbind(1)]


class _Reached(BaseException):
    """Ends a run at the module whose output was asked for; no `except Exception` of a network catches it."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Tape:
    """One run of `network`, cut at one call. The caller verifies it by running it, and records a surer one if need be.

    A tape that is cut `before` saves the run up to there, where it had `value_before`; a `value` that is known to
    be that of this cut saves computing it. `unmoved` are later calls that do not depend on what the cut returns.
    """

    def __init__(
        self,
        network: nn.Module,
        arguments: Arguments,
        cut: Call,
        *,
        keeping: Keeping = Keeping.LEAN,
        before: Tape | None = None,
        value_before: Tensor | None = None,
        value: Tensor | None = None,
        unmoved: Collection[Call] = (),
    ) -> None:
        self.network = network
        self.arguments = arguments
        self.cut = cut
        self.keeping = keeping
        self.unmoved = unmoved
        self.value: Any = value
        self.returned: Any = None
        self.cut_calls = 0
        self.lacking = False  # whether a re-run was found to need what a lean tape does not hold
        self._noted: list[Noted] = []
        self._later: dict[nn.Module, None] = {}  # the modules that are computed after the cut, in order
        self.after = _After()
        self._at_cuts: list[Any] = []  # what each call returned, where every call is a cut
        if before is not None and keeping is not Keeping.NOTHING:
            later = {module: module.forward for module in before._later}
            _record([self], {**later, **before._scripted(value_before)})

    @classmethod
    def of_one_run(
        cls,
        network: nn.Module,
        arguments: Arguments,
        cuts: Sequence[Call],
        *,
        keeping: Keeping = Keeping.LEAN,
        unmoved: Collection[Call] = (),
    ) -> list[Tape]:
        """Run the network once and cut it at each of several calls: a tape each, in the order of the cuts."""
        tapes = [cls(network, arguments, cut, keeping=keeping, unmoved=unmoved) for cut in cuts]
        with borrowed(network) as loan:
            _record(tapes, {module: module.forward for module in loan.modules if module is not network})
        return tapes

    def run(
        self,
        value: Any,
        *,
        until: Call | None = None,
        observe: Observer | None = None,
        instead: tuple[Call, Any] | None = None,
    ) -> Any:
        """Run what follows the cut with `value` there; return what the network (or the call `until`) returns.

        `observe` is told what later calls are given and what they return; `instead` puts a value in place of one of
        these. Where the run would need what a lean tape does not hold, everything is computed.
        """
        watch = _Watch(until, observe, () if instead is None else (instead,))
        if self.keeping is Keeping.NOTHING:
            return self._run_through(replace(watch, instead=(*self._placed(value), *watch.instead)))
        try:
            returned = self._run_answered(value, watch)
            if self.keeping is not Keeping.LEAN or not holds_stand_in(returned):
                return returned
        except StandInReadError:
            pass
        self.lacking = True
        return self._run_through(replace(watch, instead=(*self._placed(value), *watch.instead)))

    def repeated(self, arguments: Arguments, times: int) -> Tape:
        """This tape for a batch that is so many times over; what has as many rows as the batch, or its multiple, is
        repeated. The caller verifies it."""
        batch = self.arguments.batch

        def more(tensor: Tensor) -> Tensor:
            return repeated(tensor, times) if tensor.ndim and tensor.shape[0] % batch == 0 else tensor

        tape = copy.copy(self)
        tape.arguments = arguments
        tape.value = more(self.value)
        tape._noted = [noted.changed(more) for noted in self._noted]
        tape.after = self.after.changed(more)
        return tape

    def run_whole(self, at_cut: AtCut, *, observe: Observer | None = None) -> Any:
        """Run the whole network, every layer of it, with a function applied to what the cut returns.

        The function is given the number of the call as well, where every call is a cut.
        """
        return self._run_through(_Watch(observe=observe), at_cut)

    def _placed(self, value: Any) -> list[tuple[Call, Any]]:
        """What each call at the cut returns, for a value of all of them."""
        if not isinstance(self.cut, EveryCall):
            return [(self.cut, value)]
        return [(Call(self.cut.module, number), one) for number, one in enumerate(self.cut.parted(value))]

    def _run_answered(self, value: Any, watch: _Watch) -> Any:
        """Run the network with the noted calls and the cut answered from the tape."""
        answers = self._scripted(value)
        hooks = {module: answering.hooks for module, answering in answers.items() if has_hooks(module)}
        if not watch.is_idle:
            return self._run(*watch.over(dict.fromkeys((*self._later, *answers)), answers, hooks))
        return self._run(answers, hooks)

    def _run_through(self, watch: _Watch, at_cut: AtCut | None = None) -> Any:
        """Run the whole network, with other values in some places."""
        with borrowed(self.network) as loan:
            modules = loan.modules if watch.observe is not None else watch.modules
            watched = dict.fromkeys([self.cut.module, *(module for module in modules if module is not self.network)])
            return self._run(*replace(watch, at=self.cut, at_cut=at_cut).over(watched, {}, {}))

    def _run(self, forwards: Mapping[nn.Module, Forward], hooks: Mapping[nn.Module, Arranged]) -> Any:
        with (
            borrowed(self.network) as loan,
            forwards_replaced(forwards, hooks=hooks),
            _differentiable_recurrence(loan.modules),
        ):
            try:
                return self.arguments.call(self.network)
            except _Reached as reached:
                return reached.value

    def computes(self, call: Call) -> bool:
        """Tell whether a re-run computes this call, rather than answering it from the tape."""
        cuts = self.cut.calls if isinstance(self.cut, EveryCall) else 1
        if self.keeping is Keeping.NOTHING:
            return call.module is not self.cut.module or not self.cut.index <= call.index < self.cut.index + cuts
        before = sum(noted.module is call.module for noted in self._noted) + cuts * (call.module is self.cut.module)
        return call.index >= before and self.after.computes(call.module, call.index - before)

    def passed(self) -> set[nn.Module]:
        """The modules that no re-run enters, with all that is inside them."""
        answered = (self.cut.module, *(noted.module for noted in self._noted))
        return {inner for module in answered for inner in module.modules()} - set(self._later)

    def written_into(self) -> bool:
        """Tell whether the rest of the network changed, in place, a value that a re-run would need unchanged."""
        noted = (*self._noted, *self.after.answered)
        return self.keeping is Keeping.LEAN and any(one.written_into() for one in noted)

    def cut_here(self, output: Any, frames: list[list[Noted]], running: Sequence[nn.Module]) -> None:
        """Take what the cut returned, the calls that finished before it, and the modules that run around it."""
        if isinstance(output, Tensor) and output.is_inference():
            raise NetworkError(
                "The network switches to inference mode in its own forward pass, where no filter can be followed: "
                "take torch.inference_mode out of it, or put torch.no_grad in its place."
            )
        lean = self.keeping is Keeping.LEAN
        self._noted = [noted.settled(lean=lean) for frame in frames for noted in frame]
        self.after.begins_inside(running)
        self.take(output)

    def take(self, output: Any, number: int = 0) -> None:
        """Take what a call at the cut returned; what follows may write into it."""
        if not isinstance(self.cut, EveryCall):
            self.value = copied(output)
            return
        del self._at_cuts[number:]
        self._at_cuts.append(copied(output))
        self.after.settle(lean=self.keeping is Keeping.LEAN)

    def finish(self) -> None:
        """Make one value of those at every call, once the run is over."""
        if isinstance(self.cut, EveryCall):
            self.value = self.cut.joined(self._at_cuts)
            self._at_cuts = []
        self.after.settle(lean=False)

    def is_at(self, call: Call) -> bool:
        """Tell whether a call is at the cut."""
        if isinstance(self.cut, EveryCall):
            return call.module is self.cut.module
        return call.module is self.cut.module and call.index == self.cut.index

    def follows(self, module: nn.Module) -> None:
        """Note a module that is computed after the cut."""
        self._later[module] = None

    def _scripted(self, value: Any) -> dict[nn.Module, _Answers]:
        """Return forwards that answer the noted calls from the tape, then the cut, then compute as ever."""
        answers: dict[nn.Module, list[Any]] = defaultdict(list)
        for noted in self._noted:
            answers[noted.module].append(noted.value)
        answers[self.cut.module] += [_Exactly(one) for _, one in self._placed(value)]
        for module, later in self.after.by_module():
            answers[module] += [COMPUTED if noted is None else noted.value for noted in later]
        anew = rebuilt if self.keeping is Keeping.LEAN else copied
        return {module: _Answers(module.forward, values, anew) for module, values in answers.items()}


class _After:
    """The calls that begin after the cut, in order, and what those of them that do not depend on it returned.

    What is inside such a call is not called again, so it is not listed.
    """

    def __init__(self) -> None:
        self._calls: dict[nn.Module, list[Noted | None]] = defaultdict(list)  # None: computed
        self._waiting: list[tuple[list[Noted | None], int]] = []

    @property
    def answered(self) -> list[Noted]:
        return [noted for calls in self._calls.values() for noted in calls if noted is not None]

    def changed(self, of_tensor: Callable[[Tensor], Tensor]) -> _After:
        """The same calls with a function applied to each tensor that they answer with."""
        other = _After()
        for module, calls in self._calls.items():
            other._calls[module] = [None if noted is None else noted.changed(of_tensor) for noted in calls]
        return other

    def by_module(self) -> list[tuple[nn.Module, list[Noted | None]]]:
        """The calls of modules of which at least one is answered."""
        return [(module, calls) for module, calls in self._calls.items() if any(one is not None for one in calls)]

    def computes(self, module: nn.Module, place: int) -> bool:
        calls = self._calls.get(module, [])
        return place >= len(calls) or calls[place] is None

    def begins_inside(self, running: Sequence[nn.Module]) -> None:
        """Calls that began before the cut and go on after it are computed."""
        for module in running:
            self._calls[module].append(None)

    def begins(self, module: nn.Module) -> int:
        """List a call, and return its place among those of its module."""
        self._calls[module].append(None)
        return len(self._calls[module]) - 1

    def ends(self, module: nn.Module, place: int, noted: Noted) -> None:
        """Take what a call returned that does not depend on the cut."""
        self._calls[module][place] = noted
        self._waiting.append((self._calls[module], place))

    def let_go(self) -> None:
        """Let go of every value that nobody can read any more."""
        for calls, place in self._waiting:
            noted = calls[place]
            assert noted is not None
            noted.is_read()

    def settle(self, *, lean: bool) -> None:
        """Make what was taken since the last call of the cut ready to be answered."""
        for calls, place in self._waiting:
            noted = calls[place]
            assert noted is not None
            calls[place] = noted.settled(lean=lean)
        self._waiting = []


COMPUTED = object()  # in place of an answer


class _Answers:
    """A module's forward that answers some of its first calls with known values; their hooks are passed by."""

    def __init__(self, forward: Forward, values: Sequence[Any], anew: Callable[[Any], Any]) -> None:
        self.forward = forward
        self.values = values
        self.anew = anew
        self.given = 0
        self.answered = False  # whether the call that ran last was answered
        self.hooks = Arranged(self.answers_next, lambda: self.answered)

    def answers_next(self) -> bool:
        return self.given < len(self.values) and self.values[self.given] is not COMPUTED

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        answered = self.answers_next()
        value = self.values[self.given] if answered else None
        self.given += 1
        if not answered:
            output = self.forward(*args, **kwargs)
            self.answered = False
            return output
        self.answered = True
        if isinstance(value, _Exactly):
            return value.value
        return self.anew(value)


@dataclass(frozen=True)
class _Watch:
    """What is looked for in a run, and put in place of what the network computes."""

    until: Call | None = None
    observe: Observer | None = None
    instead: tuple[tuple[Call, Any], ...] = ()
    at: Call | None = None
    at_cut: AtCut | None = None

    @property
    def is_idle(self) -> bool:
        return self.until is None and self.observe is None and not self.instead

    @property
    def modules(self) -> list[nn.Module]:
        """The modules that must be watched."""
        return [call.module for call in (self.until, *(call for call, _ in self.instead)) if call is not None]

    def over(
        self,
        modules: Iterable[nn.Module],
        forwards: Mapping[nn.Module, Forward],
        hooks: Mapping[nn.Module, Arranged],
    ) -> tuple[dict[nn.Module, Forward], dict[nn.Module, Arranged]]:
        """Return forwards that are watched, and the hooks to arrange with them."""
        watched, arranged = dict(forwards), dict(hooks)
        for module in modules:
            one = _Watched(self, module, forwards.get(module, module.forward))
            watched[module] = one
            if has_hooks(module):
                arranged[module] = replace(hooks.get(module, Arranged()), last=one.ends)
        return watched, arranged

    def passing(self, call: Call, value: Any) -> Any:
        """Let a value of the run pass by: observed, replaced, or the last that is wanted."""
        if self.at_cut is not None and self.at is not None and not isinstance(call, Given):
            if call == self.at:
                value = self.at_cut(value, 0)
            elif isinstance(self.at, EveryCall) and call.module is self.at.module:
                value = self.at_cut(value, call.index)
        for where, other in self.instead:
            if call == where:
                value = other
        if self.observe is not None:
            self.observe(call, value)
        if call == self.until:
            raise _Reached(value)
        return value


class _Watched:
    """A module's forward that tells of what it is given and, after the owner's hooks, of what it returns."""

    def __init__(self, watch: _Watch, module: nn.Module, forward: Forward) -> None:
        self.watch = watch
        self.module = module
        self.forward = forward
        self.hooked = has_hooks(module)
        self.calls = 0
        self.running: list[int] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        index = self.calls
        self.calls += 1
        self.running.append(index)
        args, kwargs = self._begins(index, args, kwargs)
        output = self.forward(*args, **kwargs)
        return output if self.hooked else self.ends(output)

    def ends(self, output: Any) -> Any:
        return self.watch.passing(Call(self.module, self.running.pop()), output)

    def _begins(self, index: int, args: Any, kwargs: Any) -> tuple[Any, Any]:
        for place, one in (*enumerate(args), *kwargs.items()):
            if isinstance(one, Tensor) and one.is_floating_point():
                other = self.watch.passing(Given(self.module, index), one)
                if other is not one and isinstance(place, int):
                    args = (*args[:place], other, *args[place + 1 :])
                elif other is not one:
                    kwargs = {**kwargs, place: other}
                break
        return args, kwargs


class _Recorder:
    """One run of a network, watched for several tapes at once."""

    def __init__(self, tapes: Sequence[Tape], *, tracking: bool) -> None:
        self.cut: list[Tape] = []
        self.waiting = list(tapes)
        self.keeping = tapes[0].keeping
        self.unmoved = tapes[0].unmoved
        self.tracking = tracking  # whether calls after the cut may be answered as well
        self.frames = Frames()
        self.running: list[nn.Module] = []
        self.answered = 0  # how many of the calls that run now are answered in a re-run: what they call is not called
        self.counts: dict[nn.Module, int] = defaultdict(int)
        # Where the call that ran last was taken as the cut's, with its number, and where it was noted.
        self.latest: dict[nn.Module, tuple[list[Tape], int, list[Noted]]] = {}
        self.known: set[nn.Module] = set()  # modules whose call that ran last was not computed

    def recording(self, module: nn.Module, forward: Forward) -> Forward:
        """Return a forward that computes as ever and notes the call."""
        lean = self.keeping is Keeping.LEAN

        def recorded(*args: Any, **kwargs: Any) -> Any:
            call = Call(module, self.counts[module])
            self.counts[module] += 1
            self.latest.pop(module, None)
            self.known.discard(module)
            is_cut_again = any(isinstance(tape.cut, EveryCall) and tape.is_at(call) for tape in self.cut)
            if not self.waiting and not self.tracking and not is_cut_again:
                for tape in self.cut:
                    tape.follows(module)
                return forward(*args, **kwargs)
            if lean:
                self._let_go()
            here = [tape for tape in self.waiting if tape.is_at(call)]
            again = [tape for tape in self.cut if isinstance(tape.cut, EveryCall) and tape.is_at(call)]
            is_answered = bool(again) or call in self.unmoved
            is_answered = is_answered or (isinstance(forward, _Answers) and forward.answers_next())
            is_listed = self.tracking and not self.answered and not again
            places = [(tape, tape.after.begins(module)) for tape in self.cut] if is_listed else []
            known = here[0].value if here and self.keeping is not Keeping.NOTHING else None
            self.frames.enter()
            self.running.append(module)
            self.answered += is_answered
            try:
                output = forward(*args, **kwargs) if known is None else known.clone()
            finally:
                self.answered -= is_answered
                self.running.pop()
                inside = self.frames.leave()
            if not is_answered and not self.answered:
                for tape in self.cut:
                    tape.follows(module)  # where the cut lies inside this call, a re-run enters it again
            notes = []
            for tape in again:
                tape.take(output, call.index)
            if is_answered and not self.waiting:
                for tape, place in places:
                    notes.append(Noted(module, output if lean else copied(output)))
                    tape.after.ends(module, place, notes[-1])
            if self.waiting:
                for inner in inside:
                    inner.drop()  # this call returns whole, so what it called will not be called again
                for tape in here:
                    tape.cut_here(output, self.frames.open, self.running)
                    self.waiting.remove(tape)
                    self.cut.append(tape)
                if known is not None:
                    self.known.add(module)
                if self.waiting and self.keeping is not Keeping.NOTHING:
                    notes.append(Noted(module, output if lean else copied(output)))
                    self.frames.note(notes[-1])
            self.latest[module] = [*here, *again], call.index, notes
            return output

        return recorded

    def _let_go(self) -> None:
        """Let go of every value that nobody can read any more."""
        self.frames.let_go()
        for tape in self.cut:
            tape.after.let_go()

    def hooks(self, module: nn.Module, forward: Forward) -> Arranged:
        """Take what the owner's hooks make of an output in place of the output; values that are known have met them."""
        answers = forward.hooks if isinstance(forward, _Answers) else Arranged()

        def last(output: Any) -> Any:
            tapes, number, notes = self.latest.pop(module, ([], 0, []))
            for tape in tapes:
                tape.take(output, number)
            for noted in notes:
                noted.take(output if self.keeping is Keeping.LEAN else copied(output))
            return output

        return Arranged(
            answers.before_passed,
            lambda: answers.after_passed() or module in self.known,
            last,
        )


def _record(tapes: Sequence[Tape], forwards: Mapping[nn.Module, Forward]) -> None:
    """Run the network of these tapes once, with these forwards, and let each tape take what it needs."""
    first = tapes[0]
    are_answers = any(isinstance(forward, _Answers) for forward in forwards.values())
    tracking = are_answers or any(isinstance(tape.cut, EveryCall) for tape in tapes)
    recorder = _Recorder(tapes, tracking=tracking and first.keeping is not Keeping.NOTHING)
    recording = {module: recorder.recording(module, forward) for module, forward in forwards.items()}
    hooks = {module: recorder.hooks(module, forward) for module, forward in forwards.items() if has_hooks(module)}
    with borrowed(first.network), torch.no_grad(), forwards_replaced(recording, hooks=hooks, as_owner=True):
        returned = first.arguments.call(first.network)
    for tape in tapes:
        tape.returned, tape.cut_calls = returned, recorder.counts[tape.cut.module]
        tape.finish()


@dataclass(frozen=True)
class _Exactly:
    value: Any


@contextmanager
def _differentiable_recurrence(modules: list[nn.Module]) -> Iterator[None]:
    """cuDNN refuses the gradient of a recurrent layer in evaluation mode; torch's own kernels give it."""
    if torch.is_grad_enabled() and any(isinstance(module, nn.RNNBase) for module in modules):
        with torch.backends.cudnn.flags(enabled=False):
            yield
    else:
        yield
