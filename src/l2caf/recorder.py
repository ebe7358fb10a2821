"""`record`: the one place where a network is run and a head is made.

    with record(network, images) as recording:        # borrowed once for all that follows
        output = recording.output
        heatmaps = [method.on(recording.head) for method in methods]

A network that was recorded before and whose head is a mean and a linear map has a plan: one look at its modules, one
forward pass with the layer watched, one check on the data. Everything else is recorded in full.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from .errors import LayerError
from .heads.head import Head
from .heads.plan import Plan, Taken, make_plan
from .heads.planned import PlannedHead
from .heads.recorded import RecordedHead
from .heads.sloped import run_with_graph
from .recording.arranged import Arranged, has_hooks
from .recording.borrow import Call, Loan, borrowed, forwards_replaced, name_inside, unwrap, watching
from .recording.inputs import Arguments, Inputs, Select, is_plain
from .recording.knowledge import Knowledge, forget, knowledge_of, knowledge_on
from .recording.layers import Layer, find_layer, look_at, module_named
from .recording.layout import Layout
from .recording.mismatch import mismatch_told
from .recording.replay import Replay, is_curved
from .recording.storage import Keeping
from .recording.tape import Tape

Wanted = tuple[str | nn.Module | None, int | None]  # a layer and one of its calls


class Recording:
    """One run of a network on a batch, cut at one layer or several; `with` borrows the network for the while.

    Without `with`, every use of a head borrows the network by itself.

    >>> network = torch.nn.Sequential(
    ...     torch.nn.Conv2d(3, 8, 4, stride=4), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    ... )
    >>> with record(network, torch.rand(2, 3, 32, 32)) as recording:
    ...     recording.output.shape, recording.head.layer.name
    (torch.Size([2, 8]), '0')
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
    output: Select = None,
    of: str | int | None = None,
    layout: Layout | None = None,
    slope: bool = False,
) -> Recording:
    """Run the network once on a batch and cut it at a layer, or at several layers or calls.

    The arguments are those of `l2caf.explain`. `slope` says that of a head that is known to be curved nothing but the
    gradient of its untouched output will be needed: then it is run once, with its graph from the layer on.
    The heads come in the order of the layers, then of the calls.

    >>> import l2caf
    >>> network = torch.nn.Sequential(
    ...     torch.nn.Conv2d(3, 8, 4, stride=4), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    ... )
    >>> with record(network, torch.rand(2, 3, 32, 32)) as recording:
    ...     both = [method.on(recording.head) for method in (l2caf.AttentionFilter(), l2caf.GradCAM())]
    >>> [heatmap.method for heatmap in both]
    ['AttentionFilter', 'GradCAM']
    """
    with borrowed(unwrap(network)) as loan:
        return record_on(
            loan, network, inputs, layer=layer, call=call, output=output, of=of, layout=layout, slope=slope
        )


def record_on(
    loan: Loan,
    network: nn.Module,
    inputs: Inputs,
    *,
    layer: str | nn.Module | Sequence[str | nn.Module] | None = None,
    call: int | Sequence[int] | None = None,
    output: Select = None,
    of: str | int | None = None,
    layout: Layout | None = None,
    slope: bool = False,
) -> Recording:
    """`record` of a network that is on loan already, plain or inside of a wrapper."""
    plain = loan.network
    arguments = Arguments.of(inputs, explained=of)
    layers = [layer] if layer is None or isinstance(layer, (str, nn.Module)) else _layers(layer)
    calls = [call] if call is None or (isinstance(call, int) and not isinstance(call, bool)) else _calls(call)
    if layout is not None and not isinstance(layout, Layout):
        raise LayerError(
            f"The layout is a {type(layout).__name__}: give an l2caf.Layout, such as Layout('tokens', grid=(14, 14)).",
            field="layout",
        )
    several = not (layers == [layer] and calls == [call])
    if network is not plain:
        layers = [name_inside(network, one) if isinstance(one, str) else one for one in layers]
    wanted = [(one, index) for one in layers for index in calls]
    loan.ask_anew()
    run = _Run(loan, arguments, output, layout)
    with mismatch_told(plain, arguments):
        heads = run.planned(wanted) or (run.sloped(wanted) if slope else None) or run.recorded(wanted)
        return Recording(plain, heads, several=several)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _layers(given: Any) -> list[str | nn.Module | None]:
    """Several layers, or a sentence on what they are instead."""
    listed = list(given) if isinstance(given, Iterable) and not isinstance(given, (Tensor, bytes, Mapping)) else [given]
    for one in listed:
        if not isinstance(one, (str, nn.Module)):
            raise LayerError(
                f"The layer is a {type(one).__name__}: give a module of the network, its dotted name, or a list of"
                " these; l2caf.usable_layers lists them.",
                field="layer",
            )
    if not listed:
        raise LayerError("The list of layers is empty: name one, or leave layer out for the last one.", field="layer")
    return listed


def _calls(given: Any) -> list[int | None]:
    """Several calls, or a sentence on what they are instead."""
    listed = list(given) if isinstance(given, (list, tuple, range)) else [given]
    if not listed or not all(map(_is_number, listed)):
        raise LayerError(
            f"The call is {given!r}: give the number of a call, from 0 on, or a list of them.", field="call"
        )
    return listed


class _Run:
    """One question to one network."""

    def __init__(self, loan: Loan, arguments: Arguments, select: Select, layout: Layout | None = None) -> None:
        self.network = loan.network
        self.arguments = arguments
        self.select = select
        self.layout = layout
        self.known: Knowledge = knowledge_on(loan)
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
        for one in taken:
            if one.linear is not None:
                watched.setdefault(one.linear, one.noting_means(one.linear))
        with forwards_replaced(watched, hooks=hooked, as_owner=True), torch.no_grad():
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

    def sloped(self, wanted: list[Wanted]) -> tuple[Head, ...] | None:
        """The head of one layer that is known to be curved, run once with its graph; None where it is not known."""
        layer: Layer | None = self.known.get("layer", self._key(wanted[0]))
        if layer is None or len(wanted) > 1 or not is_curved(self.network, layer, self.arguments, self.select):
            return None
        head = run_with_graph(
            self.network, self.arguments, self.select, layer, lambda: RecordedHead(self._replay(wanted[0]))
        )
        return None if head is None else (head,)

    def recorded(self, wanted: list[Wanted]) -> tuple[Head, ...]:
        """The heads, recorded in full, with a plan for the next time where there can be one."""
        with borrowed(self.network) as loan:
            if loan.hooks_are_unknown:
                with forwards_replaced({}, as_owner=True), torch.no_grad():
                    self.arguments.map(Tensor.clone).call(self.network)
        tapes = self._tapes(wanted) if len(wanted) > 1 else [None]
        heads = [RecordedHead(self._replay(one, tape)) for one, tape in zip(wanted, tapes, strict=True)]
        return tuple(self._with_plan(head, one) for head, one in zip(heads, wanted, strict=True))

    def _tapes(self, wanted: list[Wanted]) -> list[Tape | None]:
        """A tape each from one run; None where a lean one was found wanting before."""
        cuts, lean = [], []
        named = [layer for layer, _ in wanted if layer is not None]
        if len(named) > 1 and self.layout is None:
            look_at(self.network, self.arguments, named, self.select)
        for layer, call in wanted:
            found = find_layer(self.network, self.arguments, layer, call=call, select=self.select, layout=self.layout)
            cuts.append(Call(module_named(self.network, found.name), found.call or 0))
            lean_before = self.known.get("keeping", found.name) in (None, Keeping.LEAN)
            lean.append(lean_before and not found.inputs_written and not found.is_called_per_frame)
        if not any(lean):
            return [None] * len(wanted)
        tapes = iter(Tape.of_one_run(self.network, self.arguments, [c for c, ok in zip(cuts, lean, strict=True) if ok]))
        return [next(tapes) if ok else None for ok in lean]

    def _with_plan(self, head: RecordedHead, wanted: Wanted) -> Head:
        if self.signature is None or head.replay.was_curved:
            return head
        known = knowledge_of(self.network)  # an outdated one was dropped on the way
        known.put("layer", self._key(wanted), head.layer)
        plan = make_plan(head)
        known.put("plan", self._key(wanted), plan)
        pooled = None if plan is None else plan.pooled(self.network)
        if pooled is None:
            return head
        # Solved the same way the first time as ever after, so that the same input gives the same map.
        return PlannedHead(head.layer, head.features, head.output, size=head.size, pooled=pooled, record=lambda: head)

    def _replay(self, wanted: Wanted, tape: Tape | None = None) -> Replay:
        layer, call = wanted
        return Replay(
            self.network, self.arguments, layer=layer, call=call, select=self.select, tape=tape, layout=self.layout
        )

    def _key(self, wanted: Wanted) -> Hashable:
        layer, call = wanted
        return self.signature, id(layer) if isinstance(layer, nn.Module) else layer, call, self.layout
