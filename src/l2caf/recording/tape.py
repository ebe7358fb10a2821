"""A recorded run of a network, cut where one call of one module returned.

While the network runs, every module call that finishes before the cut is noted, unless it lies inside another
such call. To run the network again with another value at the cut, the noted calls return what they returned
before, the cut returns the new value, and only what comes after it is computed. Nothing is known of the
architecture: skip connections, functional glue and modules that are called many times all work.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import NetworkError
from .borrow import Call, Forward, borrowed, forwards_replaced, watching
from .inputs import Arguments
from .storage import Frames, Keeping, Noted, copied

Observer = Callable[[Call, Any], None]


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

    def run(self, value: Any, *, until: Call | None = None, observe: Observer | None = None) -> Any:
        """Run what follows the cut with `value` there; return what the network (or the call `until`) returns."""
        replacements = self._scripted(value)
        if observe is not None or until is not None:

            def returned(call: Call, output: Any) -> None:
                if observe is not None:
                    observe(call, output)
                if call == until:
                    raise _Reached(output)

            watched = dict.fromkeys((*self._later, *replacements))
            replacements = watching(watched, returned=returned, forwards=replacements)
        with (
            borrowed(self.network) as loan,
            forwards_replaced(replacements),
            _differentiable_recurrence(loan.modules),
        ):
            try:
                return self.arguments.call(self.network)
            except _Reached as reached:
                return reached.value

    def run_whole(self, at_cut: Callable[[Any], Any]) -> Any:
        """Run the whole network, every layer of it, with a function applied to what the cut returns."""
        replaced = forwards_replaced({self.cut.module: self._applying(at_cut)})
        with borrowed(self.network) as loan, replaced, _differentiable_recurrence(loan.modules):
            return self.arguments.call(self.network)

    def _applying(self, at_cut: Callable[[Any], Any]) -> Forward:
        """Return a forward of the cut's module that applies a function to what the cut returns."""
        forward = self.cut.module.forward
        calls = count()

        def applying(*args: Any, **kwargs: Any) -> Any:
            output = forward(*args, **kwargs)
            return at_cut(output) if next(calls) == self.cut.index else output

        return applying

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
        return self.keeping is Keeping.LEAN and any(
            noted.held and noted.value._version != noted.version for noted in self._noted
        )

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

    def _scripted(self, value: Any) -> dict[nn.Module, Forward]:
        """Return forwards that answer the noted calls from the tape, then the cut, then compute as ever."""
        if self.keeping is Keeping.NOTHING:
            return {self.cut.module: self._applying(lambda _: value)}
        answers: dict[nn.Module, list[Any]] = defaultdict(list)
        for noted in self._noted:
            answers[noted.module].append(noted.value)
        answers[self.cut.module].append(_Exactly(value))
        return {module: self._answering(module.forward, iter(values)) for module, values in answers.items()}

    def _answering(self, forward: Forward, values: Iterator[Any]) -> Forward:
        def answered(*args: Any, **kwargs: Any) -> Any:
            for value in values:
                if isinstance(value, _Exactly):
                    return value.value
                return value if self.keeping is Keeping.LEAN else copied(value)
            return forward(*args, **kwargs)

        return answered


class _Recorder:
    """One run of a network, watched for several tapes at once."""

    def __init__(self, tapes: Sequence[Tape]) -> None:
        self.cut: list[Tape] = []
        self.waiting = list(tapes)
        self.keeping = tapes[0].keeping
        self.frames = Frames()
        self.counts: dict[nn.Module, int] = defaultdict(int)

    def recording(self, module: nn.Module, forward: Forward) -> Forward:
        """Return a forward that computes as ever and notes the call."""
        lean = self.keeping is Keeping.LEAN

        def recorded(*args: Any, **kwargs: Any) -> Any:
            index = self.counts[module]
            self.counts[module] = index + 1
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
            for noted in inside:
                noted.drop()  # this call returns whole, so what it called will not be called again
            for tape in here:
                tape.cut_here(output, self.frames.open)
                self.waiting.remove(tape)
                self.cut.append(tape)
            if self.waiting and self.keeping is not Keeping.NOTHING:
                self.frames.note(Noted(module, output if lean else copied(output)))
            return output

        return recorded


def _record(tapes: Sequence[Tape], forwards: Mapping[nn.Module, Forward]) -> None:
    """Run the network of these tapes once, with these forwards, and let each tape take what it needs."""
    recorder, first = _Recorder(tapes), tapes[0]
    recording = {module: recorder.recording(module, forward) for module, forward in forwards.items()}
    with borrowed(first.network), torch.no_grad(), forwards_replaced(recording, as_owner=True):
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
