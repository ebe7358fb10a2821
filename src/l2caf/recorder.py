"""`record`: the one place where a network is run and a head is made.

    with record(network, images) as recording:        # borrowed once for all that follows
        output = recording.output
        heatmaps = [method.on(recording.head) for method in methods]

A network that was recorded before and whose head is a mean and a linear map has a plan: one look at its modules, one
forward pass with the layer watched, one check on the data. Everything else is recorded in full.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import ExitStack
from types import TracebackType

import torch
from torch import Tensor, nn

from .heads.head import Head
from .heads.plan import Plan, Taken, make_plan
from .heads.planned import PlannedHead
from .heads.recorded import RecordedHead
from .recording.borrow import Call, borrowed, forwards_replaced, unwrap, watching
from .recording.hooks import Arranged, has_hooks, hooks_arranged
from .recording.inputs import Arguments, Inputs, Select, is_plain
from .recording.knowledge import Knowledge, forget, knowledge_of
from .recording.layers import find_layer, module_named
from .recording.replay import Replay
from .recording.storage import Keeping
from .recording.tape import Tape

Wanted = tuple[str | nn.Module | None, int | None]  # a layer and one of its calls


class Recording:
    """One run of a network on a batch, cut at one layer or several; `with` borrows the network for the while.

    Without `with`, every use of a head borrows the network by itself.
    """

    def __init__(self, network: nn.Module, heads: tuple[Head, ...], *, several: bool) -> None:
        self.network = network
        self.heads = heads
        self.several = several  # whether several layers or calls were asked for, be it that there is one on the list
        self._loan = ExitStack()

    @property
    def head(self) -> Head:
        """The head of the first layer."""
        return self.heads[0]

    @property
    def output(self) -> Tensor:
        """What the network gave, untouched and without a graph."""
        return self.head.output.detach()

    def __enter__(self) -> Recording:
        self._loan.enter_context(borrowed(self.network))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loan.__exit__(kind, error, trace)


def record(
    network: nn.Module,
    inputs: Inputs,
    *,
    layer: str | nn.Module | Sequence[str | nn.Module] | None = None,
    call: int | Sequence[int] | None = None,
    select: Select = None,
) -> Recording:
    """Run the network once on a batch and cut it at a layer, or at several layers or calls.

    The arguments are those of `l2caf.explain`. The heads come in the order of the layers, then of the calls.
    """
    plain = unwrap(network)
    arguments = Arguments.of(inputs)
    layers = [layer] if layer is None or isinstance(layer, (str, nn.Module)) else list(layer)
    calls = [call] if call is None or isinstance(call, int) else list(call)
    wanted = [(one, index) for one in layers for index in calls]
    several = not (layers == [layer] and calls == [call])
    with borrowed(plain):
        run = _Run(plain, arguments, select)
        return Recording(plain, run.planned(wanted) or run.recorded(wanted), several=several)


class _Run:
    """One question to one network."""

    def __init__(self, network: nn.Module, arguments: Arguments, select: Select) -> None:
        self.network = network
        self.arguments = arguments
        self.select = select
        self.known: Knowledge = knowledge_of(network)
        # A function cannot be told from another one, and to keep it would keep all that it refers to.
        self.signature = (arguments.signature(), select) if is_plain(select) else None

    def planned(self, wanted: list[Wanted]) -> tuple[Head, ...] | None:
        """The heads by their plans, or None where one has none or is not what was planned."""
        plans: list[Plan | None] = [self.known.get("plan", self._key(one)) for one in wanted]
        if self.signature is None or any(plan is None for plan in plans):
            return None
        taken = [Taken(self.network, plan) for plan in plans if plan is not None]
        noted = {one.module: one for one in taken}
        if len(noted) < len(taken):
            return None  # two calls of one module: its recording tells them apart
        # What a hook of the owner's makes of the layer's output is the map.
        hooked = {module: Arranged(last=one.noting) for module, one in noted.items() if has_hooks(module)}
        plain = [module for module in noted if module not in hooked]
        watched = watching(plain, returned=lambda call, output: noted[call.module].note(call, output))
        with forwards_replaced(watched), hooks_arranged(hooked), torch.no_grad():
            returned = self.arguments.call(self.network)
        heads = []
        for one, (layer, call) in zip(taken, wanted, strict=True):

            def in_full(layer: str | nn.Module | None = layer, call: int | None = call) -> RecordedHead:
                return RecordedHead(self._replay((layer, call)))

            head = one.head(self.network, self.arguments, returned, self.select, in_full)
            if head is None:
                forget(self.network)  # what else is known may be out of date as well: which layer to take, for one
                self.known = knowledge_of(self.network)
                return None
            heads.append(head)
        return tuple(heads)

    def recorded(self, wanted: list[Wanted]) -> tuple[Head, ...]:
        """The heads, recorded in full, with a plan for the next time where there can be one."""
        tapes = self._tapes(wanted) if len(wanted) > 1 else [None]
        heads = [RecordedHead(self._replay(one, tape)) for one, tape in zip(wanted, tapes, strict=True)]
        return tuple(self._with_plan(head, one) for head, one in zip(heads, wanted, strict=True))

    def _tapes(self, wanted: list[Wanted]) -> list[Tape | None]:
        """A tape each from one run; None where a lean one was found wanting before."""
        cuts, lean = [], []
        for layer, call in wanted:
            found = find_layer(self.network, self.arguments, layer, call=call, select=self.select)
            cuts.append(Call(module_named(self.network, found.name), found.call))
            lean.append(self.known.get("keeping", found.name) in (None, Keeping.LEAN) and not found.inputs_written)
        if not any(lean):
            return [None] * len(wanted)
        tapes = iter(Tape.of_one_run(self.network, self.arguments, [c for c, ok in zip(cuts, lean, strict=True) if ok]))
        return [next(tapes) if ok else None for ok in lean]

    def _with_plan(self, head: RecordedHead, wanted: Wanted) -> Head:
        if self.signature is None:
            return head
        known = knowledge_of(self.network)  # an outdated one was dropped on the way
        plan = make_plan(head)
        known.put("plan", self._key(wanted), plan)
        pooled = None if plan is None else plan.pooled(self.network)
        if pooled is None:
            return head
        # Solved the same way the first time as ever after, so that the same input gives the same map.
        return PlannedHead(head.layer, head.features, head.output, size=head.size, pooled=pooled, record=lambda: head)

    def _replay(self, wanted: Wanted, tape: Tape | None = None) -> Replay:
        layer, call = wanted
        return Replay(self.network, self.arguments, layer=layer, call=call, select=self.select, tape=tape)

    def _key(self, wanted: Wanted) -> Hashable:
        layer, call = wanted
        return self.signature, id(layer) if isinstance(layer, nn.Module) else layer, call
