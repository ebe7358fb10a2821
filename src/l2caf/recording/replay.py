"""`Replay`: one run of a network, and FT(f), its output with the layer's map weighed by a filter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError, LayerError, NetworkError
from ..numerics import agree
from .borrow import Call, unwrap
from .inputs import Arguments, Inputs, Select, select_output
from .knowledge import forget, knowledge_of
from .layers import Layer, find_layer, module_named
from .layout import Layout
from .storage import Keeping
from .tape import Tape


class Replay:
    """A network, run once on a batch and cut at a layer.

    `features` is the layer's output A, `output` the untouched output NT = head(A), and `filtered(f)` is
    FT(f) = head(A * f) for weights f of shape (B, positions): only what follows the layer is computed. Gradients
    flow from f on, and the network is as it was found before and after every call.
    """

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
        self.observed: dict[Call, Tensor] = {}  # what the modules after the layer gave, where it is small
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

    def filtered(self, weights: Tensor, *, until: Call | None = None) -> Tensor:
        """Return FT(f): the output, or that of a later call, with every position of the map weighed."""
        return self.head(self.layer.layout.weigh(self.features, weights), until=until)

    def head(self, features: Tensor, *, until: Call | None = None) -> Tensor:
        """Return the output, or that of a later call, with another map at the layer."""
        self.evaluations += 1
        return self.output_of(self.tape.run(features, until=until), until)

    def whole(self, weights: Tensor) -> Tensor:
        """Return FT(f) by running the whole network, as one would without a tape; the slow way, for comparison."""
        self.evaluations += 1
        returned = self.tape.run_whole(lambda features: self.layer.layout.weigh(features, weights))
        return self.output_of(returned, None)

    def observe(self, weights: Tensor) -> dict[Call, Tensor]:
        """Return the outputs of the later module calls, in order, that are small beside the map, and of the network."""
        seen: dict[Call, Tensor] = {}
        largest = self.features[0].numel() * (self.layer.layout.frames or 1) // 4

        def note(call: Call, output: Any) -> None:
            fits = isinstance(output, Tensor) and output.is_floating_point() and output.shape[:1] == (self.batch,)
            if fits and self.tape.computes(call) and output[0].numel() <= largest:
                seen[call] = output.clone()  # the next module may write into it

        with torch.no_grad():
            self.evaluations += 1
            weighed = self.layer.layout.weigh(self.features, weights)
            seen[OUTPUT] = self.output_of(self.tape.run(weighed, observe=note), None)
        return seen

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
            if call.module is module and self.tape.computes(call):
                return call
        raise LayerError(f"Module {name!r} does not run after layer {self.layer}: choose one that does.")

    def _start(self, layer: Layer) -> None:
        self.layer = layer
        self.arguments = replace(self.arguments.about(layer.input), copied=layer.inputs_written)
        self.cut = Call(module_named(self.network, layer.name), layer.call)
        known = knowledge_of(self.network)
        ways = list(Keeping)
        # How much a tape must keep where a lean one was found wanting.
        for keeping in ways[ways.index(known.get("keeping", layer.name) or Keeping.LEAN) :]:
            if self._record(keeping):
                known.put("keeping", layer.name, keeping)
                return
        raise NetworkError(
            "The network gives another output when it is run again on the same input, so no filter can be judged: "
            "switch off what is random in its forward pass."
        )

    def _record(self, keeping: Keeping) -> bool:
        """Record a tape, and tell whether a re-run with nothing filtered gives the same output."""
        if self._given is not None and self._given.keeping is keeping and self._given.cut == self.cut:
            tape, self._given = self._given, None
        else:
            (tape,) = Tape.of_one_run(self.network, self.arguments, [self.cut], keeping=keeping)
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
        return agree(self.observed[OUTPUT], self.output)

    def output_of(self, returned: Any, until: Call | None) -> Tensor:
        """Take the tensor of interest out of what a run returned."""
        if until is not None:
            if not isinstance(returned, Tensor):
                raise InputError(f"Module {self.name_of(until)!r} gives no tensor, so nothing can be compared there.")
            return returned
        return select_output(returned, self.select, self.batch)


class _OutdatedError(NetworkError):
    """The network is no longer what an earlier look at it showed."""


OUTPUT = Call(nn.Identity(), -1)  # stands for the network's own output among the later calls
