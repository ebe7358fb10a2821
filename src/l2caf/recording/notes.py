"""One run of a network, watched for several tapes at once: what each of them notes of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from .answers import Answers
from .arranged import Arranged, has_hooks
from .borrow import Call, Forward, borrowed, forwards_replaced
from .places import EveryCall, given
from .storage import Frames, Keeping, Noted, copied

if TYPE_CHECKING:
    from .tape import Tape


class Recorder:
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
            is_fed = self._feed(call, args, kwargs)
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
            is_answered = is_answered or (isinstance(forward, Answers) and forward.answers_next())
            is_listed = self.tracking and not self.answered and not again and not is_fed
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

    def _feed(self, call: Call, args: Any, kwargs: Any) -> bool:
        """Take what a call is given where that is the cut of a tape; tell whether it is."""
        fed = [tape for tape in (*self.waiting, *self.cut) if tape.is_fed(call)]
        for tape in fed:
            value = given(args, kwargs)
            if tape in self.cut:
                tape.take(value, call.index)
                continue
            tape.cut_here(value, self.frames.open, self.running)
            self.waiting.remove(tape)
            self.cut.append(tape)
        return bool(fed)

    def _let_go(self) -> None:
        """Let go of every value that nobody can read any more."""
        self.frames.let_go()
        for tape in self.cut:
            tape.after.let_go()

    def hooks(self, module: nn.Module, forward: Forward) -> Arranged:
        """Take what the owner's hooks make of an output in place of the output; values that are known have met them."""
        answers = forward.hooks if isinstance(forward, Answers) else Arranged()

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


def record(tapes: Sequence[Tape], forwards: Mapping[nn.Module, Forward]) -> None:
    """Run the network of these tapes once, with these forwards, and let each tape take what it needs."""
    first = tapes[0]
    are_answers = any(isinstance(forward, Answers) for forward in forwards.values())
    tracking = are_answers or any(isinstance(tape.cut, EveryCall) for tape in tapes)
    recorder = Recorder(tapes, tracking=tracking and first.keeping is not Keeping.NOTHING)
    recording = {module: recorder.recording(module, forward) for module, forward in forwards.items()}
    hooks = {module: recorder.hooks(module, forward) for module, forward in forwards.items() if has_hooks(module)}
    with borrowed(first.network), torch.no_grad(), forwards_replaced(recording, hooks=hooks, as_owner=True):
        returned = first.arguments.call(first.network)
    for tape in tapes:
        tape.returned, tape.cut_calls = returned, recorder.counts[tape.cut.module]
        tape.finish()
