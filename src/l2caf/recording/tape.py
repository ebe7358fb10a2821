"""A recorded run of a network, cut where one call of one module returned.

While the network runs, every module call that finishes before the cut is noted, unless it lies inside another
such call. To run the network again with another value at the cut, the noted calls return what they returned
before, the cut returns the new value, and only what comes after it is computed. Nothing is known of the
architecture: skip connections, functional glue and modules that are called many times all work. What a call returned is
what the rest of the network received, so it is taken after the owner's hooks on that module.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import NetworkError
from .arranged import Arranged, has_hooks
from .borrow import Call, Forward, borrowed, forwards_replaced
from .inputs import Arguments
from .storage import Frames, Keeping, Noted, StandInReadError, copied, holds_stand_in, rebuilt

Observer = Callable[[Call, Any], None]


@dataclass(frozen=True)
class Given(Call):
    """What the index-th call of a module is given, its first tensor: a value that may be no module's output."""


class _Reached(BaseException):
    """Ends a run at the module whose output was asked for; no `except Exception` of a network catches it."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Tape:
    """One run of `network`, cut at one call. The caller verifies it by running it, and records a surer one if need be.

    A tape that is cut `before` saves the run up to there, where it had `value_before`; a `value` that is known to
    be that of this cut saves computing it.
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
    ) -> None:
        self.network = network
        self.arguments = arguments
        self.cut = cut
        self.keeping = keeping
        self.value: Any = value
        self.returned: Any = None
        self.cut_calls = 0
        self.lacking = False  # whether a re-run was found to need what a lean tape does not hold
        self._noted: list[Noted] = []
        self._later: dict[nn.Module, None] = {}  # the modules with a call that ends after the cut, in order
        if before is not None and keeping is not Keeping.NOTHING:
            later = {module: module.forward for module in before._later}
            _record([self], {**later, **before._scripted(value_before)})

    @classmethod
    def of_one_run(
        cls, network: nn.Module, arguments: Arguments, cuts: Sequence[Call], *, keeping: Keeping = Keeping.LEAN
    ) -> list[Tape]:
        """Run the network once and cut it at each of several calls: a tape each, in the order of the cuts."""
        tapes = [cls(network, arguments, cut, keeping=keeping) for cut in cuts]
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
            return self._run_through(replace(watch, instead=((self.cut, value), *watch.instead)))
        try:
            returned = self._run_answered(value, watch)
            if self.keeping is not Keeping.LEAN or not holds_stand_in(returned):
                return returned
        except StandInReadError:
            pass
        self.lacking = True
        return self._run_through(replace(watch, instead=((self.cut, value), *watch.instead)))

    def run_whole(self, at_cut: Callable[[Any], Any]) -> Any:
        """Run the whole network, every layer of it, with a function applied to what the cut returns."""
        return self._run_through(_Watch(), at_cut)

    def _run_answered(self, value: Any, watch: _Watch) -> Any:
        """Run the network with the noted calls and the cut answered from the tape."""
        answers = self._scripted(value)
        hooks = {module: answering.hooks for module, answering in answers.items() if has_hooks(module)}
        if not watch.is_idle:
            return self._run(*watch.over(dict.fromkeys((*self._later, *answers)), answers, hooks))
        return self._run(answers, hooks)

    def _run_through(self, watch: _Watch, at_cut: Callable[[Any], Any] | None = None) -> Any:
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
        if self.keeping is Keeping.NOTHING:
            return call != self.cut
        answered = sum(noted.module is call.module for noted in self._noted) + (call.module is self.cut.module)
        return call.index >= answered

    def passed(self) -> set[nn.Module]:
        """The modules that no re-run enters, with all that is inside them."""
        answered = (self.cut.module, *(noted.module for noted in self._noted))
        return {inner for module in answered for inner in module.modules()} - set(self._later)

    def written_into(self) -> bool:
        """Tell whether the rest of the network changed, in place, a value that a re-run would need unchanged."""
        return self.keeping is Keeping.LEAN and any(noted.written_into() for noted in self._noted)

    def cut_here(self, output: Any, frames: list[list[Noted]]) -> None:
        """Take what the cut returned, and the calls that finished before it."""
        if isinstance(output, Tensor) and output.is_inference():
            raise NetworkError(
                "The network switches to inference mode in its own forward pass, where no filter can be followed: "
                "take torch.inference_mode out of it, or put torch.no_grad in its place."
            )
        self.value = copied(output)  # what follows may write into it
        lean = self.keeping is Keeping.LEAN
        self._noted = [noted.settled(lean=lean) for frame in frames for noted in frame]

    def follows(self, module: nn.Module) -> None:
        """Note a module with a call that ends after the cut."""
        self._later[module] = None

    def _scripted(self, value: Any) -> dict[nn.Module, _Answers]:
        """Return forwards that answer the noted calls from the tape, then the cut, then compute as ever."""
        answers: dict[nn.Module, list[Any]] = defaultdict(list)
        for noted in self._noted:
            answers[noted.module].append(noted.value)
        answers[self.cut.module].append(_Exactly(value))
        anew = rebuilt if self.keeping is Keeping.LEAN else copied
        return {module: _Answers(module.forward, values, anew) for module, values in answers.items()}


class _Answers:
    """A module's forward that answers its first calls with known values; their hooks are passed by."""

    def __init__(self, forward: Forward, values: Sequence[Any], anew: Callable[[Any], Any]) -> None:
        self.forward = forward
        self.values = values
        self.anew = anew
        self.given = 0
        self.answered = False  # whether the call that ran last was answered
        self.hooks = Arranged(lambda: self.given < len(self.values), lambda: self.answered)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.answered = self.given < len(self.values)
        if not self.answered:
            return self.forward(*args, **kwargs)
        value = self.values[self.given]
        self.given += 1
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
    at_cut: Callable[[Any], Any] | None = None

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
        if call == self.at and self.at_cut is not None:
            value = self.at_cut(value)
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

    def __init__(self, tapes: Sequence[Tape]) -> None:
        self.cut: list[Tape] = []
        self.waiting = list(tapes)
        self.keeping = tapes[0].keeping
        self.frames = Frames()
        self.counts: dict[nn.Module, int] = defaultdict(int)
        self.latest: dict[nn.Module, tuple[list[Tape], Noted | None]] = {}  # where the call that ran last was noted
        self.known: set[nn.Module] = set()  # modules whose call that ran last was not computed

    def recording(self, module: nn.Module, forward: Forward) -> Forward:
        """Return a forward that computes as ever and notes the call."""
        lean = self.keeping is Keeping.LEAN

        def recorded(*args: Any, **kwargs: Any) -> Any:
            index = self.counts[module]
            self.counts[module] = index + 1
            self.latest.pop(module, None)
            self.known.discard(module)
            if not self.waiting:
                for tape in self.cut:
                    tape.follows(module)
                return forward(*args, **kwargs)
            if lean:
                self.frames.let_go()
            here = [tape for tape in self.waiting if module is tape.cut.module and index == tape.cut.index]
            known = here[0].value if here and self.keeping is not Keeping.NOTHING else None
            self.frames.enter()
            try:
                output = forward(*args, **kwargs) if known is None else known.clone()
            finally:
                inside = self.frames.leave()
            for tape in self.cut:
                tape.follows(module)  # where the cut lies inside this call, a re-run enters it again
            if not self.waiting:
                return output
            for inner in inside:
                inner.drop()  # this call returns whole, so what it called will not be called again
            for tape in here:
                tape.cut_here(output, self.frames.open)
                self.waiting.remove(tape)
                self.cut.append(tape)
            if known is not None:
                self.known.add(module)
            noted: Noted | None = None
            if self.waiting and self.keeping is not Keeping.NOTHING:
                noted = Noted(module, output if lean else copied(output))
                self.frames.note(noted)
            self.latest[module] = here, noted
            return output

        return recorded

    def hooks(self, module: nn.Module, forward: Forward) -> Arranged:
        """Take what the owner's hooks make of an output in place of the output; values that are known have met them."""
        answers = forward.hooks if isinstance(forward, _Answers) else Arranged()

        def last(output: Any) -> Any:
            tapes, noted = self.latest.pop(module, ([], None))
            for tape in tapes:
                tape.value = copied(output)
            if noted is not None:
                noted.take(output if self.keeping is Keeping.LEAN else copied(output))
            return output

        return Arranged(
            answers.before_passed,
            lambda: answers.after_passed() or module in self.known,
            last,
        )


def _record(tapes: Sequence[Tape], forwards: Mapping[nn.Module, Forward]) -> None:
    """Run the network of these tapes once, with these forwards, and let each tape take what it needs."""
    recorder, first = _Recorder(tapes), tapes[0]
    recording = {module: recorder.recording(module, forward) for module, forward in forwards.items()}
    hooks = {module: recorder.hooks(module, forward) for module, forward in forwards.items() if has_hooks(module)}
    with borrowed(first.network), torch.no_grad(), forwards_replaced(recording, hooks=hooks, as_owner=True):
        returned = first.arguments.call(first.network)
    for tape in tapes:
        tape.returned, tape.cut_calls = returned, recorder.counts[tape.cut.module]


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
