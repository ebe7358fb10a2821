"""`RecordedHead`: what follows the layer, re-run from a recording by the cheapest way that the data confirm."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from ..numerics import agree, rows
from ..recording.borrow import Call
from ..recording.replay import OUTPUT, Replay
from ..recording.tape import Tape
from .affine import MAP_BUDGET, AffineMap, DenseMap, Probe, is_straight, mapped
from .endpoint import Endpoint, find_endpoint
from .gradient import gradients_of
from .head import Head, Way


class RecordedHead(Head):
    """A head that is known by a recording of the run, and can do everything."""

    def __init__(self, replay: Replay) -> None:
        self.replay = replay
        self.layer = replay.layer
        self.features = replay.features
        self.output = replay.output
        self.size = replay.size

    @property
    def evaluations(self) -> int:
        """How often what follows the layer was computed."""
        return self.replay.evaluations

    def in_full(self) -> RecordedHead:
        return self

    def endpoint(self, at: str | None, *, needs_scale: bool) -> Endpoint:
        return find_endpoint(self, at, needs_scale=needs_scale)

    def name_of(self, at: Call) -> str:
        return "output" if at == OUTPUT else self.replay.name_of(at)

    def value(self, at: Call = OUTPUT) -> Tensor:
        return self.output if at == OUTPUT else self.replay.observed[at]

    def moved(self, at: Call = OUTPUT) -> Tensor:
        before, after = self.replay.observed[at], self.probed.get(at)
        if after is None:
            return torch.ones(self.batch, dtype=torch.bool, device=self.features.device)
        return rows(before != after).any(dim=1)

    def rerun(self, features: Tensor) -> Tensor:
        return self.replay.head(features)

    def filtered(self, weights: Tensor, at: Call = OUTPUT, *, way: Way = Way.CHEAPEST) -> Tensor:
        if way is Way.WHOLE:
            return self.replay.whole(weights)
        mapping = self.affine(at) if way is Way.CHEAPEST and self._is_known_affine(at) else None
        if mapping is not None:
            return mapping(weights).reshape(self.value(at).shape)
        if way is Way.CHEAPEST and at == OUTPUT and self.frontier is not None:
            part, tape = self.frontier
            return self._from(tape, part(weights))
        return self.replay.filtered(weights, until=None if at == OUTPUT else at)

    def _is_known_affine(self, at: Call) -> bool:
        return self.is_affine if at == OUTPUT else at in self.affine_calls

    def affine(self, at: Call = OUTPUT) -> AffineMap | None:
        if at == OUTPUT and not (self.is_affine or self.is_affine_where_positive):
            return None
        return self.affine_map(at)

    def affine_part(self) -> AffineMap | None:
        return self.frontier[0] if self.frontier is not None else None

    def why_not_affine(self, at: Call = OUTPUT) -> str | None:
        if at != OUTPUT:
            return None if at in self.affine_calls else "the endpoint is not affine in the filter"
        if not (self.is_affine or self.is_affine_where_positive):
            return "the network's output is not affine in the filter"
        return None

    def recomputed(self, weights: Tensor, at: Call = OUTPUT) -> Tensor:
        if at != OUTPUT:
            return torch.stack([rows(self.replay.filtered(one, until=at)) for one in weights])
        if self._pooled is not None:
            tape = self._pooled[1]
            try:
                return mapped(lambda mean: rows(self._from(tape, mean)), self._mean(weights))
            except Exception:  # noqa: BLE001 - not every network can run several at once
                return torch.stack([rows(self._from(tape, mean)) for mean in self._mean(weights)])
        return torch.stack([rows(self.replay.filtered(one)) for one in weights])

    @property
    def probe_weights(self) -> Tensor:
        """The random filter, of either sign, that the head was probed at."""
        return self._probe.weights

    @property
    def probed_output(self) -> Tensor:
        """What the network gives there."""
        return self._probe.outputs[OUTPUT]

    def from_mean(self, means: Tensor) -> Tensor | None:
        """The output for other means over the positions, (B, C) to (B, m); None where the head has no mean."""
        if self._pooled is None:
            return None
        return rows(self._from(self._pooled[1], means))

    @property
    def probed(self) -> dict[Call, Tensor]:
        """What the later calls gave at a random filter."""
        return self._probe.outputs

    @cached_property
    @torch.no_grad()
    def is_affine(self) -> bool:
        """Whether the network's output is affine in the filter, for filters of any sign."""
        if self._pooled is None:
            return OUTPUT in self._signed
        mirrored = self._from(self._pooled[1], self._mean(self._wide.mirrored_weights.unsqueeze(0)))
        return is_straight(self._wide.outputs[OUTPUT], self.replay.observed[OUTPUT], mirrored)

    @cached_property
    def is_affine_where_positive(self) -> bool:
        """Whether the network's output is affine in the filter, for non-negative filters only."""
        return not self.is_affine and OUTPUT in self._unsigned

    @property
    def affine_calls(self) -> list[Call]:
        """The later calls whose output is affine in the filter, in the order in which they finish."""
        return [call for call in self._signed if call != OUTPUT]

    def affine_map(self, call: Call = OUTPUT) -> AffineMap | None:
        """Return a call's output as an affine map, or None where the data contradict it or it would not fit."""
        if call not in self._maps:
            self._maps[call] = self._find_map(call) if self.fits(call) else None
        return self._maps[call]

    def fits(self, call: Call = OUTPUT) -> bool:
        """Tell whether a call's output as an affine map is of a size that one can keep."""
        return self.replay.observed[call].numel() * self.positions <= MAP_BUDGET

    @cached_property
    @torch.no_grad()
    def frontier(self) -> tuple[AffineMap, Tape] | None:
        """The last call that is affine in the filter and through which all that depends on the filter passes."""
        for call in reversed(self.affine_calls[-3:]):
            mapping = self.affine_map(call)
            if mapping is None:
                continue
            tape = self._tape_from(call, mapping(self._probe.weights), self._probe.outputs[OUTPUT])
            if tape is not None:
                return mapping, tape
        return None

    def gradients(self, directions: Tensor) -> Tensor:
        gradients = self._gradients_by_autograd(directions)
        if self._explain_the_probe(gradients, directions):
            return gradients
        # A network may stop its gradient or change it (a detached part, for one); its values tell the truth.
        mapping = self.affine_map()
        return gradients if mapping is None else mapping.pull(directions.to(mapping.jacobian))

    def _gradients_by_autograd(self, directions: Tensor) -> Tensor:
        leaf, output = self._slope
        gradients = gradients_of(output, leaf, directions.to(output.dtype)).flatten(2)
        if self._pooled is None:
            return gradients
        # From the gradient in the mean, (K, B, C), to that in the filter.
        return (gradients.transpose(0, 1) @ self.columns / self.positions).transpose(0, 1)

    @torch.no_grad()
    def _explain_the_probe(self, gradients: Tensor, directions: Tensor) -> bool:
        """Tell whether these gradients account for how far the output moved to the random filter."""
        moved = rows(self._probe.outputs[OUTPUT]).float() - rows(self.output).float()
        along = torch.einsum("kbm,bm->kb", directions.float(), moved)
        at_most = torch.einsum("kbm,bm->kb", directions.float().abs(), moved.abs())
        predicted = torch.einsum("kbn,bn->kb", gradients.float(), self._probe.weights - 1)
        allowed = max(1e-3, 8 * torch.finfo(self.output.dtype).eps) * at_most
        missed = (predicted - along).abs() > allowed + 1e-30
        return not bool((missed & self.finite).any())

    @cached_property
    def _slope(self) -> tuple[Tensor, Tensor]:
        """The output with its graph, from the mean over the positions if the head has one, else from the filter."""
        replay = self.replay
        with torch.enable_grad():
            if self._pooled is None:
                leaf = torch.ones(replay.batch, replay.positions, device=replay.features.device, requires_grad=True)
                return leaf, rows(replay.filtered(leaf))
            call, tape = self._pooled
            leaf = replay.observed[call].detach().clone().requires_grad_()
            return leaf, rows(self._from(tape, leaf))

    @cached_property
    def _wide(self) -> Probe:
        return Probe(self.replay, lowest=-3.0, highest=1.0)

    @cached_property
    def _narrow(self) -> Probe:
        return Probe(self.replay, lowest=0.0, highest=0.5)

    @property
    def _probe(self) -> Probe:
        return self._wide if self._pooled is not None or self._signed else self._narrow

    @cached_property
    def _signed(self) -> list[Call]:
        return self._wide.straight_calls()

    @cached_property
    def _unsigned(self) -> list[Call]:
        # A rectifier right after the layer is linear for filters of one sign.
        return [] if self._signed else self._narrow.straight_calls()

    @cached_property
    def _maps(self) -> dict[Call, AffineMap | None]:
        return {}

    @cached_property
    @torch.no_grad()
    def _pooled(self) -> tuple[Call, Tape] | None:
        """The last call whose output is the mean of the map over its positions, if all depends on the filter there."""
        probe = self._wide
        mean = self._mean(probe.weights.unsqueeze(0)).squeeze(0)
        for call, output in reversed(probe.outputs.items()):
            if call == OUTPUT or rows(output).shape != mean.shape or not agree(rows(output), mean, slack=10):
                continue
            tape = self._tape_from(call, mean, probe.outputs[OUTPUT])
            if tape is not None:
                return call, tape
        return None

    def _tape_from(self, call: Call, value: Tensor, output: Tensor) -> Tape | None:
        """Return what follows a later call, if with this value there it gives the output that it should."""
        try:
            tape = self.replay.from_call(call)
            return tape if agree(self._from(tape, value), output, slack=10) else None
        except Exception:  # noqa: BLE001 - glue may fail in any way on a run that is cut elsewhere; no shortcut then
            return None

    def _mean(self, weights: Tensor) -> Tensor:
        """Return the mean over the positions of the map weighed by K filters per sample: (K, B, C)."""
        columns = self.columns
        means = columns @ weights.to(columns.dtype).permute(1, 2, 0) / self.positions
        return means.permute(2, 0, 1)

    def _find_map(self, call: Call) -> AffineMap | None:
        for columns in (self._columns_from_mean, self._columns_at_once, self._columns_one_by_one):
            try:
                with torch.no_grad(), warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # an operation without a batching rule only costs time
                    values = columns(call)
            except Exception:  # not every network can run many columns at once; one by one always works
                if columns == self._columns_one_by_one:
                    raise
                continue
            if values is None:
                continue
            offset = values[-1]
            jacobian = (values[:-1] - offset).permute(1, 2, 0)
            any_sign = self.is_affine if call == OUTPUT else call in self._signed
            mapping = DenseMap(jacobian, offset, any_sign)
            if agree(mapping(self._probe.weights), rows(self._probe.outputs[call]), slack=30):
                return mapping
        return None

    def _columns_from_mean(self, call: Call) -> Tensor | None:
        """Push the positions' own channel vectors, which are the columns of the mean, through what follows it."""
        if self._pooled is None:
            return None
        start, tape = self._pooled
        calls = list(self.replay.observed)
        if calls.index(call) < calls.index(start):
            return None
        columns = self.columns.permute(2, 0, 1) / self.positions
        columns = torch.cat([columns, torch.zeros_like(columns[:1])])
        if call == start:
            return columns
        return mapped(lambda column: rows(self._from(tape, column, until=call)), columns)

    def _columns_at_once(self, call: Call) -> Tensor:
        return mapped(self._filtered(call), self._basis(), weight=self.features.numel())

    def _columns_one_by_one(self, call: Call) -> Tensor:
        return torch.stack([self._filtered(call)(weights) for weights in self._basis()])

    def _basis(self) -> Tensor:
        """One filter per position, then the empty filter, which gives the offset."""
        positions = self.positions
        return torch.eye(positions + 1, positions, device=self.features.device)

    def _filtered(self, call: Call) -> Callable[[Tensor], Tensor]:
        until = None if call == OUTPUT else call

        def filtered(weights: Tensor) -> Tensor:
            return rows(self.replay.filtered(weights.expand(self.batch, -1), until=until))

        return filtered

    def _from(self, tape: Tape, value: Tensor, *, until: Call = OUTPUT) -> Tensor:
        """Run what follows a later call with another value there."""
        stored = tape.value
        stop = None if until == OUTPUT else Call(until.module, until.index)
        # What follows may write into the value, and it is used again here.
        returned = tape.run(value.reshape(stored.shape).to(stored.dtype).clone(), until=stop)
        return self.replay.output_of(returned, stop)
