"""`RecordedHead`: what follows the layer, re-run from a recording by the cheapest way that the data confirm."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

import torch
from torch import Tensor

from ..numerics import agreeing, rows
from ..recording.borrow import Call
from ..recording.places import Given
from ..recording.replay import MEAN, OUTPUT, Replay
from ..recording.tape import Tape
from .affine import MAP_BUDGET, AffineMap, DenseMap, Probe, ReplayedMap, mapped, straight
from .endpoint import Endpoint, find_endpoints
from .gradient import gradients_of
from .head import ROWS, Head, Way

MANY_POSITIONS = 128  # beyond which an affine map is taken by its products, rather than column by column
LAST = 3  # affine calls that are tried as the frontier, from the last one back: an earlier one saves little


class _Evidence:
    """What was seen of a recorded head, for all that is decided from it: shared by the views on one recording."""

    def __init__(self, replay: Replay) -> None:
        self.wide = Probe.wide(replay)
        self.narrow = Probe.narrow(replay)
        self.values: dict[tuple[Call, str], Tensor] = {}  # of calls that were asked for by name, or are large
        self.moved: dict[Call, Tensor] = {}
        self.reaching: dict[Call, Tensor] = {}


class RecordedHead(Head):
    """A head that is known by a recording of the run, and can do everything.

    What it is (affine in the filter or not, and where the question is put) is decided by the samples that any filter
    moves. `alike` splits the batch into views of samples that decide the same, so that each gets what it gets alone.
    """

    def __init__(self, replay: Replay, *, samples: Tensor | None = None, evidence: _Evidence | None = None) -> None:
        self.replay = replay
        self.layer = replay.layer
        self.features = replay.features
        self.output = replay.output
        self.size = replay.size
        self.samples = samples
        self._evidence = evidence or _Evidence(replay)
        self._endpoints: dict[tuple[str | None, bool], Endpoint] = {}

    @property
    def evaluations(self) -> int:
        """How often what follows the layer was computed."""
        return self.replay.evaluations

    def in_full(self) -> RecordedHead:
        return self

    def reading(self, read: Callable[[Tensor], Tensor]) -> Head:
        view = RecordedHead(self.replay.read(read), samples=self.samples)
        view.crops = self.crops
        return view

    def frames(self) -> list[Head]:
        return [RecordedHead(self.replay.of_frame(one)) for one in range(self.layout.frames or 0)]

    def each_frame(self) -> Head | None:
        view = self.replay.of_each_frame()
        return None if view is None else RecordedHead(view)

    @cached_property
    def finite(self) -> Tensor:
        found = super().finite
        return found if self.samples is None else found & self.samples

    @property
    def deciding(self) -> Tensor:
        """The samples that say what the head is: those that are finite and that some filter moves. (B,)"""
        return self.deciding_at(OUTPUT)

    def deciding_at(self, at: Call) -> Tensor:
        """The same for an endpoint."""
        return self.finite & self.moved(at)

    def alike(self, at: str | None, *, needs_scale: bool) -> list[Head]:
        views: list[Head] = []
        for kind in self._kinds():
            for endpoint, samples in find_endpoints(kind, at, needs_scale=needs_scale):
                for view in kind._view(samples)._ways(endpoint.at):
                    view._endpoints[at, needs_scale] = endpoint
                    views.append(view)
        return views

    def endpoint(self, at: str | None, *, needs_scale: bool) -> Endpoint:
        known = self._endpoints.get((at, needs_scale))
        if known is None:
            # Without a split, where most of the samples have it.
            found = find_endpoints(self, at, needs_scale=needs_scale)
            known = max(found, key=lambda one: int((one[1] & self.finite).sum()))[0]
            self._endpoints[at, needs_scale] = known
        return known

    def _view(self, samples: Tensor) -> RecordedHead:
        """The same recording, with fewer samples to decide what it is."""
        inside = samples if self.samples is None else samples & self.samples
        if bool(inside.all()) or (self.samples is not None and torch.equal(inside, self.samples)):
            return self
        view = RecordedHead(self.replay, samples=inside, evidence=self._evidence)
        view.crops = self.crops
        return view

    def _kinds(self) -> list[RecordedHead]:
        """Views of samples for which the head is affine in the same way, and up to the same calls."""
        affine = self._straight_output | ~self.deciding  # what nothing moves is affine
        if bool(affine.all()):
            return [self]
        calls = [call for call in self.replay.observed if call != OUTPUT]
        signed = {call: self._wide.straight(call).tolist() for call in calls}
        kinds: dict[object, list[int]] = {}
        for sample, is_affine in enumerate(affine.tolist()):
            last = () if is_affine else tuple([call for call in calls if signed[call][sample]][-LAST:])
            unsigned = not is_affine and not last and bool(self._narrow.straight(OUTPUT)[sample])
            kinds.setdefault((is_affine, last, unsigned), []).append(sample)
        return self._views(kinds.values())

    def _ways(self, at: Call) -> list[RecordedHead]:
        """Views of samples for which an endpoint before the output is affine, and for which it is not."""
        if at in (OUTPUT, MEAN):
            return [self]
        affine = self._wide.straight(at) | ~self.deciding_at(at)
        return self._views([torch.nonzero(mask).flatten().tolist() for mask in (affine, ~affine)])

    def _views(self, groups: Iterable[list[int]]) -> list[RecordedHead]:
        """Views for groups of samples, those that are not finite with the first."""
        masks = []
        for group in groups:
            mask = torch.zeros_like(self.finite)
            mask[group] = True
            if bool((mask & self.finite).any()):
                masks.append(mask & self.finite)
        if len(masks) < 2:
            return [self]
        rest = ~self.finite if self.samples is None else self.samples & ~self.finite
        return [self._view(masks[0] | rest), *map(self._view, masks[1:])]

    def name_of(self, at: Call) -> str:
        if at == OUTPUT:
            return "output"
        if at == MEAN or self._is_mean(at):
            return f"mean of {self.layer}"
        name = self.replay.name_of(at)
        return f"input of {name}" if isinstance(at, Given) else name

    def value(self, at: Call = OUTPUT) -> Tensor:
        if at == OUTPUT:
            return self.output
        if at == MEAN:
            return self.columns.mean(dim=2)
        whole = self.replay.observed.whole(at)
        return self._kept(at, "untouched", torch.ones_like(self.replay.probe_weights)) if whole is None else whole

    def moved(self, at: Call = OUTPUT) -> Tensor:
        if at not in self._evidence.moved:
            self._evidence.moved[at] = self._find_moved(at)
        return self._evidence.moved[at]

    @torch.no_grad()
    def _find_moved(self, at: Call) -> Tensor:
        """Probe until every sample is seen to move; what is shut at one filter may be open at another."""
        untouched = self.value(at)
        found = _differ(untouched, self._at_probe(at))
        for weights in self._other_filters():
            if bool(found.all()):
                break
            found = found | _differ(untouched, self.filtered(weights, at, way=Way.REPLAY))
        return found

    def _other_filters(self) -> Iterator[Tensor]:
        """Filters of other kinds: none of the map, little of it, as much reversed, its strongest position alone."""
        weights = self.replay.probe_weights
        yield torch.zeros_like(weights)
        yield torch.full_like(weights, self.positions**-0.5)
        yield torch.full_like(weights, -(self.positions**-0.5))
        yield weights / weights.norm(dim=1, keepdim=True)
        yield torch.nn.functional.one_hot(self.energy().argmax(dim=1), self.positions).to(weights)
        yield 2 - weights

    def _at_probe(self, at: Call) -> Tensor:
        """The value of an endpoint at the random filter of either sign."""
        wide = self._evidence.wide
        if at == MEAN:
            return self._mean(wide.weights.unsqueeze(0))[0]
        whole = wide.outputs.whole(at)
        return self._kept(at, "probed", wide.weights) if whole is None else whole

    def _kept(self, at: Call, name: str, weights: Tensor) -> Tensor:
        if (at, name) not in self._evidence.values:
            with torch.no_grad():
                self._evidence.values[at, name] = self.replay.filtered(weights, until=at).clone()
        return self._evidence.values[at, name]

    def reaches(self, call: Call) -> Tensor:
        """For which samples the output moves when this call's value alone does: (B,)."""
        if call not in self._evidence.reaching:
            try:
                output = self.replay.put((call, self._at_probe(call).clone()))
                self._evidence.reaching[call] = _differ(self.output, output)
            except Exception:  # noqa: BLE001 - a network may refuse any value but its own
                self._evidence.reaching[call] = torch.zeros_like(self.finite)
        return self._evidence.reaching[call]

    def rerun(self, features: Tensor) -> Tensor:
        return self.replay.head(features)

    def filtered(self, weights: Tensor, at: Call = OUTPUT, *, way: Way = Way.CHEAPEST) -> Tensor:
        if way is Way.WHOLE:
            return self.replay.whole(weights)
        if at == MEAN:
            return self._mean(weights.unsqueeze(0))[0]
        mapping = self.affine(at) if way is Way.CHEAPEST and self._is_known_affine(at) else None
        if mapping is not None:
            return mapping(weights).reshape(self.value(at).shape)
        if way is Way.CHEAPEST and at == OUTPUT and self.frontier is not None:
            part, tape = self.frontier
            return self._from(tape, part(weights))
        return self.replay.filtered(weights, until=None if at == OUTPUT else at)

    def takes_rows(self, at: Call = OUTPUT, *, way: Way = Way.CHEAPEST) -> bool:
        if way is Way.WHOLE or at == MEAN or (way is Way.CHEAPEST and (self._is_known_affine(at) or self.frontier)):
            return False
        return self.replay.takes_rows(None if at == OUTPUT else at)

    def filtered_rows(self, weights: Tensor, rows: Tensor, at: Call = OUTPUT) -> Tensor:
        return self.replay.filtered(weights, until=None if at == OUTPUT else at, rows=rows)

    def _is_known_affine(self, at: Call) -> bool:
        if at == OUTPUT:
            return self.is_affine
        return at == MEAN or bool((self._wide.straight(at) | ~self.deciding_at(at)).all())

    def _holds(self, of_samples: Tensor, at: Call = OUTPUT) -> bool:
        """Tell whether something is so for all samples that decide, and that there are any."""
        deciding = self.deciding_at(at)
        return bool(of_samples[deciding].all()) and bool(deciding.any())

    def affine(self, at: Call = OUTPUT) -> AffineMap | None:
        if at == OUTPUT and not (self.is_affine or self.is_affine_where_positive):
            return None
        return self.affine_map(at) if at == OUTPUT or self._is_known_affine(at) else None

    def affine_part(self) -> AffineMap | None:
        if self.frontier is not None:
            return self.frontier[0]
        joint = self.replay.joint
        if joint is None or not joint.is_mean:
            return None
        samples, frames = self.replay.rows
        columns = joint.columns[samples, frames] / self.positions
        return DenseMap(columns, torch.zeros_like(columns[..., 0]))

    def why_not_affine(self, at: Call = OUTPUT) -> str | None:
        if at != OUTPUT:
            return None if self._is_known_affine(at) else "the endpoint is not affine in the filter"
        if not (self.is_affine or self.is_affine_where_positive):
            return "the network's output is not affine in the filter"
        return None

    def recomputed(self, weights: Tensor, at: Call = OUTPUT) -> Tensor:
        if at == MEAN:
            return self._mean(weights)
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

    @cached_property
    def is_affine(self) -> bool:
        """Whether the network's output is affine in the filter, for filters of any sign; what nothing moves is."""
        return bool((self._straight_output | ~self.deciding).all())

    @cached_property
    @torch.no_grad()
    def _straight_output(self) -> Tensor:
        """For which samples the output is affine in the filter, for filters of any sign: (B,)."""
        if self._pooled is None:
            return self._wide.straight(OUTPUT)
        mirrored = self._from(self._pooled[1], self._mean(self._wide.mirrored_weights.unsqueeze(0)))
        return straight(self._wide.outputs[OUTPUT], self.replay.observed[OUTPUT], mirrored)

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
            self._maps[call] = self._find_map(call) if self.fits(call) else self._too_large(call)
        return self._maps[call]

    def _too_large(self, call: Call) -> AffineMap | None:
        """An output that cannot be written out, by its products: a dense predictor's, or a large region of it."""
        return self._replayed_map() if call == OUTPUT and self.is_affine else None

    def fits(self, call: Call = OUTPUT) -> bool:
        """Tell whether a call's output as an affine map is of a size that one can keep."""
        return self.value(call).numel() * self.positions <= MAP_BUDGET

    @cached_property
    @torch.no_grad()
    def frontier(self) -> tuple[AffineMap, Tape] | None:
        """The last call that is affine in the filter and through which all that depends on the filter passes."""
        for call in reversed(self.affine_calls[-LAST:]):
            mapping = self.affine_map(call)
            if mapping is None:
                continue
            tape = self._tape_from(call, mapping(self._probe.weights), self._probe.outputs[OUTPUT])
            if tape is not None:
                return mapping, tape
        return None

    def gradients(self, directions: Tensor) -> Tensor:
        if not bool(self.deciding.any()):
            return torch.zeros(*directions.shape[:2], self.positions, device=directions.device)
        gradients = self._gradients_by_autograd(directions)
        missed = self._missed_by(gradients, directions)
        if not bool(missed.any()):
            return gradients
        # A network may stop its gradient or change it (a detached part, for one); its values tell the truth.
        mapping = self.affine_map()
        if mapping is None:
            return gradients
        return torch.where(missed.unsqueeze(2), mapping.pull(directions.to(mapping.jacobian)).to(gradients), gradients)

    def _gradients_by_autograd(self, directions: Tensor) -> Tensor:
        leaf, output = self._slope
        gradients = gradients_of(output, leaf, directions.to(output.dtype)).flatten(2)
        if self._pooled is None:
            return gradients
        # From the gradient in the mean, (K, B, C), to that in the filter.
        return (gradients.transpose(0, 1) @ self.columns / self.positions).transpose(0, 1)

    @torch.no_grad()
    def _missed_by(self, gradients: Tensor, directions: Tensor) -> Tensor:
        """Where these gradients do not account for how far the output moved to the random filter: (K, B)."""
        moved = rows(self._probe.outputs[OUTPUT]).float() - rows(self.output).float()
        along = torch.einsum("kbm,bm->kb", directions.float(), moved)
        at_most = torch.einsum("kbm,bm->kb", directions.float().abs(), moved.abs())
        predicted = torch.einsum("kbn,bn->kb", gradients.float(), self._probe.weights - 1)
        allowed = max(1e-3, 8 * torch.finfo(self.output.dtype).eps) * at_most
        return ((predicted - along).abs() > allowed + 1e-30) & self.finite

    @cached_property
    def _slope(self) -> tuple[Tensor, Tensor]:
        """The output with its graph, from the mean over the positions if the head has one, else from the filter."""
        replay = self.replay
        with torch.enable_grad():
            if self._pooled is None:
                leaf = torch.ones(replay.batch, replay.positions, device=replay.features.device, requires_grad=True)
                return leaf, rows(replay.filtered(leaf))
            call, tape = self._pooled
            mean = replay.observed.whole(call)
            assert mean is not None
            leaf = mean.detach().clone().requires_grad_()
            return leaf, rows(self._from(tape, leaf))

    @property
    def _wide(self) -> Probe:
        return self._evidence.wide

    @property
    def _narrow(self) -> Probe:
        return self._evidence.narrow

    @property
    def _probe(self) -> Probe:
        return self._wide if self._pooled is not None or self._signed else self._narrow

    @cached_property
    def _signed(self) -> list[Call]:
        return [call for call in self.replay.observed if self._holds(self._wide.straight(call))]

    @cached_property
    def _unsigned(self) -> list[Call]:
        # A rectifier right after the layer is linear for filters of one sign.
        if self._signed:
            return []
        return [call for call in self.replay.observed if self._holds(self._narrow.straight(call))]

    @cached_property
    def _maps(self) -> dict[Call, AffineMap | None]:
        return {}

    @cached_property
    @torch.no_grad()
    def _pooled(self) -> tuple[Call, Tape] | None:
        """The last call whose output is the mean of the map over its positions, if all depends on the filter there.

        Where a function takes the mean, it is what a module is given that is the mean.
        """
        probe = self._wide
        mean = self._mean(probe.weights.unsqueeze(0)).squeeze(0)
        for call, output in (*reversed(probe.outputs.items()), *reversed(probe.outputs.given.items())):
            if call == OUTPUT or not self._holds(agreeing(rows(output), mean, slack=10)):
                continue
            tape = self._tape_from(call, mean, probe.outputs[OUTPUT])
            if tape is not None:
                return call, tape
        return None

    def _tape_from(self, call: Call, value: Tensor, output: Tensor) -> Tape | None:
        """Return what follows a later call, if with this value there it gives the output that it should."""
        try:
            tape = self.replay.from_call(call)
            return tape if self._holds(agreeing(self._from(tape, value), output, slack=10)) else None
        except Exception:  # noqa: BLE001 - glue may fail in any way on a run that is cut elsewhere; no shortcut then
            return None

    def _mean(self, weights: Tensor) -> Tensor:
        """Return the mean over the positions of the map weighed by K filters per sample: (K, B, C)."""
        columns = self.columns
        means = columns @ weights.to(columns.dtype).permute(1, 2, 0) / self.positions
        return means.permute(2, 0, 1)

    def _is_mean(self, call: Call) -> bool:
        """Tell by its values whether a call's value is the map's mean over its positions."""
        if not isinstance(call, Given) or self._wide.outputs.given.get(call) is None:
            return False
        given = rows(self._wide.outputs.given[call])
        return self._holds(agreeing(given, self._mean(self._wide.weights.unsqueeze(0))[0], slack=10), call)

    def _find_map(self, call: Call) -> AffineMap | None:
        if not bool(self.deciding_at(call).any()):  # nothing moves it
            offset = rows(self.value(call)).nan_to_num(0.0, 0.0, 0.0)
            return DenseMap(offset.new_zeros(*offset.shape, self.positions), offset)
        if call == MEAN or self._is_mean(call):
            columns = self.columns / self.positions
            return DenseMap(columns, torch.zeros_like(columns[..., 0]))
        if call == OUTPUT and self.positions > MANY_POSITIONS and self._pooled is None and self.is_affine:
            replayed = self._replayed_map()
            if replayed is not None:
                return replayed
        return self._dense_map(call)

    def _replayed_map(self) -> ReplayedMap | None:
        """The output as a map by its products alone; None where the gradient does not account for the values."""
        directions = torch.randn(1, *rows(self.output).shape, generator=torch.Generator().manual_seed(0))
        directions = directions.to(self.output.device)
        if bool(self._missed_by(self._gradients_by_autograd(directions), directions).any()):
            return None

        def run(weights: Tensor) -> Tensor:
            return rows(self.replay.filtered(weights))

        def written_out() -> Tensor:
            dense = self._dense_map(OUTPUT)
            assert dense is not None
            return dense.jacobian

        with torch.no_grad():
            offset = run(torch.zeros(self.batch, self.positions, device=self.features.device))
        return ReplayedMap(run, self._gradients_by_autograd, written_out, offset)

    def _dense_map(self, call: Call) -> DenseMap | None:
        """A call's output as a map with a column for each position; None where the data contradict it."""
        probe = self._probe if call == OUTPUT else self._wide
        probed = self._probe.outputs[call] if call == OUTPUT else self._at_probe(call)
        ways = (self._columns_from_mean, self._columns_by_rows, self._columns_at_once, self._columns_one_by_one)
        for columns_of in ways:
            try:
                with torch.no_grad(), warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # an operation without a batching rule only costs time
                    values = columns_of(call)
            except Exception:  # not every network can run many columns at once; one by one always works
                if columns_of == self._columns_one_by_one:
                    raise
                continue
            if values is None:
                continue
            offset = values[-1]
            jacobian = (values[:-1] - offset).permute(1, 2, 0)
            mapping = DenseMap(jacobian, offset, self.is_affine if call == OUTPUT else True)
            if self._holds(agreeing(mapping(probe.weights), rows(probed), slack=30), call):
                return mapping
        return None

    def _columns_from_mean(self, call: Call) -> Tensor | None:
        """Push the positions' own channel vectors, which are the columns of the mean, through what follows it."""
        if self._pooled is None or call not in self.replay.observed:
            return None
        start, tape = self._pooled
        calls = self.replay.observed.order
        if calls.index(call) < calls.index(start):
            return None
        columns = self.columns.permute(2, 0, 1) / self.positions
        columns = torch.cat([columns, torch.zeros_like(columns[:1])])
        if call == start:
            return columns
        return mapped(lambda column: rows(self._from(tape, column, until=call)), columns)

    def _columns_by_rows(self, call: Call) -> Tensor | None:
        """All columns of a sample side by side, where the head takes them so; those of other samples are zero."""
        if not self.takes_rows(call, way=Way.REPLAY):
            return None
        basis, found = self._basis(), []
        own = self.deciding_at(call).nonzero().flatten()
        for part in basis.split(max(1, ROWS // len(own))):
            weights = part.repeat_interleave(len(own), dim=0)
            found.append(rows(self.filtered_rows(weights, own.repeat(len(part)), call)).unflatten(0, (len(part), -1)))
        columns = torch.cat(found)
        whole = columns.new_zeros(len(columns), self.batch, columns.shape[2])
        whole[:, own] = columns
        return whole

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


def _differ(one: Tensor, other: Tensor) -> Tensor:
    """For which samples two values differ by more than the rounding of their last places: (B,)."""
    one, other, precision = rows(one).double(), rows(other).double(), torch.finfo(one.dtype).eps
    size = torch.maximum(one.abs().amax(dim=1), other.abs().amax(dim=1))
    return ~((one - other).abs().amax(dim=1) <= 2 * precision * size)
