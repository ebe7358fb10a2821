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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import NetworkError
from .answers import COMPUTED, After, Answers, Exactly, Fed
from .arranged import Arranged, has_hooks
from .borrow import Call, Forward, borrowed, forwards_replaced
from .inputs import Arguments
from .notes import record
from .places import EveryCall, EveryGiven, Given
from .storage import Keeping, Noted, StandInReadError, copied, holds_stand_in, rebuilt, rows_of
from .watch import AtCut, Observer, Reached, Watch


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
        self.after = After()
        self._at_cuts: list[Any] = []  # what each call returned, where every call is a cut
        if before is not None and keeping is not Keeping.NOTHING:
            later = {module: module.forward for module in before._later}
            record([self], {**later, **before._scripted(value_before)})

    @classmethod
    def of_one_run(
        cls,
        network: nn.Module,
        arguments: Arguments,
        cuts: Sequence[Call],
        *,
        keeping: Keeping = Keeping.LEAN,
        unmoved: Collection[Call] = (),
        passed_by: Collection[str] = (),
    ) -> list[Tape]:
        """Run the network once and cut it at each of several calls: a tape each, in the order of the cuts.

        Modules that are `passed_by` are not watched (`inner`); what one of them returns by itself is computed again.
        """
        tapes = [cls(network, arguments, cut, keeping=keeping, unmoved=unmoved) for cut in cuts]
        with borrowed(network) as loan:
            plain = {module for name, module in network.named_modules() if name in passed_by} if passed_by else set()
            plain.add(network)
            record(tapes, {module: module.forward for module in loan.modules if module not in plain})
        return tapes

    def run(
        self,
        value: Any,
        *,
        until: Call | None = None,
        observe: Observer | None = None,
        instead: Sequence[tuple[Call, Any]] = (),
    ) -> Any:
        """Run what follows the cut with `value` there; return what the network (or the call `until`) returns.

        `observe` is told what later calls are given and what they return; `instead` puts values in place of some of
        these. Where the run would need what a lean tape does not hold, everything is computed.
        """
        watch = Watch(until, observe, tuple(instead))
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

    def of_samples(self, arguments: Arguments, samples: Tensor) -> Tape:
        """This tape for a batch of these samples, some of them several times; what has as many rows as the batch, or
        its multiple, has theirs. The caller verifies it."""
        batch = self.arguments.batch

        def chosen(tensor: Tensor) -> Tensor:
            return rows_of(tensor, samples, batch) if tensor.ndim and tensor.shape[0] % batch == 0 else tensor

        tape = self._changed(lambda noted: noted.changed(chosen))
        tape.arguments = arguments
        tape.value = None if self.value is None else chosen(self.value)
        return tape

    @property
    def kept(self) -> list[Noted]:
        """The calls that are answered from the tape."""
        return [*self._noted, *self.after.answered]

    def without(self, numbers: Collection[int]) -> Tape:
        """This tape with stand-ins for what some of the `kept` calls returned: whatever nobody reads again."""
        number = count()
        return self._changed(lambda noted: noted.forgotten() if next(number) in numbers else noted)

    def _changed(self, of_noted: Callable[[Noted], Noted]) -> Tape:
        tape = copy.copy(self)
        tape._noted = [of_noted(noted) for noted in self._noted]
        tape.after = self.after.changed(of_noted)
        return tape

    def run_whole(self, at_cut: AtCut, *, observe: Observer | None = None) -> Any:
        """Run the whole network, every layer of it, with a function applied to what the cut returns.

        The function is given the number of the call as well, where every call is a cut.
        """
        return self._run_through(Watch(observe=observe), at_cut)

    def _placed(self, value: Any) -> list[tuple[Call, Any]]:
        """What each call at the cut returns, for a value of all of them."""
        if not isinstance(self.cut, EveryCall):
            return [(self.cut, value)]
        return list(zip(self.cut.each(), self.cut.parted(value), strict=True))

    def _run_answered(self, value: Any, watch: Watch) -> Any:
        """Run the network with the noted calls and the cut answered from the tape."""
        answers = self._scripted(value)
        hooks = {module: answering.hooks for module, answering in answers.items() if has_hooks(module)}
        if not watch.is_idle:
            return self._run(*watch.over(dict.fromkeys((*self._later, *answers)), answers, hooks))
        return self._run(answers, hooks)

    def _run_through(self, watch: Watch, at_cut: AtCut | None = None) -> Any:
        """Run the whole network, with other values in some places."""
        with borrowed(self.network) as loan:
            modules = loan.modules if watch.observe is not None else watch.modules
            watched = dict.fromkeys([self.cut.module, *(module for module in modules if module is not self.network)])
            return self._run(*replace(watch, at=self.cut, at_cut=at_cut).over(watched, {}, {}))

    def _run(self, forwards: Mapping[nn.Module, Forward], hooks: Mapping[nn.Module, Arranged]) -> Any:
        with (
            borrowed(self.network) as loan,
            forwards_replaced(forwards, hooks=hooks),
            differentiable_recurrence(loan.modules),
        ):
            try:
                return self.arguments.call(self.network)
            except Reached as reached:
                return reached.value

    def computes(self, call: Call) -> bool:
        """Tell whether a re-run computes this call, rather than answering it from the tape."""
        cuts = self.cut.calls if isinstance(self.cut, EveryCall) else 1
        if self.keeping is Keeping.NOTHING:
            return call.module is not self.cut.module or not self.cut.index <= call.index < self.cut.index + cuts
        before = sum(noted.module is call.module for noted in self._noted)
        after = call.index - before - cuts * (call.module is self.cut.module)
        if after < 0:
            return self._is_fed and call.index >= before
        return self.after.computes(call.module, after)

    def passed(self) -> set[nn.Module]:
        """The modules that no re-run enters, with all that is inside them."""
        return {inner for module in self._answered for inner in module.modules()} - set(self._later)

    def inner(self) -> frozenset[str]:
        """The modules that are called by what a re-run answers, and by nothing else: to watch them tells nothing."""
        inside = self.passed() - self._answered
        return frozenset(name for name, module in self.network.named_modules() if module in inside)

    @property
    def _answered(self) -> set[nn.Module]:
        """The modules of which a call is answered."""
        return {noted.module for noted in self.kept} | (set() if self._is_fed else {self.cut.module})

    def written_into(self) -> bool:
        """Tell whether the rest of the network changed, in place, a value that a re-run would need unchanged."""
        return self.keeping is Keeping.LEAN and any(one.written_into() for one in self.kept)

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
        """Tell whether the cut is what a call returns."""
        if self._is_fed:
            return False
        if isinstance(self.cut, EveryCall):
            return call.module is self.cut.module
        return call.module is self.cut.module and call.index == self.cut.index

    def is_fed(self, call: Call) -> bool:
        """Tell whether the cut is what a call is given."""
        is_one = isinstance(self.cut, EveryGiven) or call.index == self.cut.index
        return self._is_fed and call.module is self.cut.module and is_one

    @property
    def _is_fed(self) -> bool:
        return isinstance(self.cut, (Given, EveryGiven))

    def follows(self, module: nn.Module) -> None:
        """Note a module that is computed after the cut."""
        self._later[module] = None

    def _scripted(self, value: Any) -> dict[nn.Module, Answers]:
        """Return forwards that answer the noted calls from the tape, then the cut, then compute as ever."""
        answers: dict[nn.Module, list[Any]] = defaultdict(list)
        for noted in self._noted:
            answers[noted.module].append(noted.value)
        answers[self.cut.module] += [Fed(one) if self._is_fed else Exactly(one) for _, one in self._placed(value)]
        for module, later in self.after.by_module():
            answers[module] += [COMPUTED if noted is None else noted.value for noted in later]
        anew = rebuilt if self.keeping is Keeping.LEAN else copied
        return {module: Answers(module.forward, values, anew) for module, values in answers.items()}


@contextmanager
def differentiable_recurrence(modules: list[nn.Module]) -> Iterator[None]:
    """cuDNN refuses the gradient of a recurrent layer in evaluation mode; torch's own kernels give it."""
    if torch.is_grad_enabled() and any(isinstance(module, nn.RNNBase) for module in modules):
        with torch.backends.cudnn.flags(enabled=False):
            yield
    else:
        yield
