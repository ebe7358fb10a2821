"""Where a question is put: the output, or the last value before it that still depends on scale.

A scale-invariant head (it normalises) gives the untouched output already at the uniform filter, and to keep the output
is then no question: its loss is zero at a flat map. It is kept at the last value that still depends on scale and that
the output depends on: what a module returns, what a module is given (a mean by a function), or the map's own mean,
where the output is shown to depend on nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ..numerics import FEELS_SCALE, rows
from ..recording.borrow import Call
from ..recording.replay import MEAN, OUTPUT, Seen

if TYPE_CHECKING:
    from .recorded import RecordedHead

# The output may move by this share, squared, of what the filter moves it, where the map changes and its mean does not.
UNMOVED_BY_THE_REST = 1e-6


class Endpoint(NamedTuple):
    """A later call, or the output, and whether anything can be learnt there."""

    at: Call = OUTPUT
    informative: bool = True


@torch.no_grad()
def find_endpoints(head: RecordedHead, at: str | None, *, needs_scale: bool) -> list[tuple[Endpoint, Tensor]]:
    """Find the endpoint of a question that names one, or needs one that depends on scale: each with its samples."""
    everything = torch.ones(head.batch, dtype=torch.bool, device=head.features.device)
    if at is not None:
        return [(Endpoint(head.replay.later_call(at)), everything)]
    if not needs_scale or head.is_affine or head.is_affine_where_positive:
        return [(Endpoint(), everything)]
    even = torch.full((head.batch, head.positions), head.positions**-0.5, device=head.features.device)
    at_even = head.replay.observe(even)
    # Where nothing moves the output, what other values depend on does not matter to it.
    waiting = head.deciding & ~_feels_scale(head, OUTPUT, at_even[OUTPUT])
    if bool(waiting.any()):
        # A head that saturates moves little at small filters, but no less at the uniform one than at another.
        small = head.replay.probe_weights / head.replay.probe_weights.norm(dim=1, keepdim=True)
        waiting = waiting & ~_is_farther(head.output, at_even[OUTPUT], head.filtered(small))
    found = [(Endpoint(), ~waiting)]
    for call in reversed(at_even.order):
        if not bool(waiting.any()):
            break
        here = _ends_at(head, call, at_even, waiting)
        if here is not None:
            found.append((Endpoint(call), here))
            waiting = waiting & ~here
    if bool(waiting.any()):
        here = waiting & _depends_on_the_mean_alone(head)
        found += [(Endpoint(MEAN), here), (Endpoint(informative=False), waiting & ~here)]
    own = everything if head.samples is None else head.samples
    found = [(endpoint, samples & head.finite) for endpoint, samples in found if bool((samples & head.finite).any())]
    # Those that are not finite are asked nothing, and go with the first.
    (first, samples), *others = found or [(Endpoint(), own)]
    return [(first, samples | (own & ~head.finite)), *others]


def _ends_at(head: RecordedHead, call: Call, at_even: Seen, waiting: Tensor) -> Tensor | None:
    """The samples that wait for an endpoint and have it at this call; None where there are none."""
    value = at_even.some(call)
    if call == OUTPUT or value is None:
        return None
    here = waiting & _feels_scale(head, call, value)
    # What comes later in time may be a side branch: only what moves the output is on the way to it.
    if not bool(here.any()) or not bool((here := here & head.reaches(call)).any()):
        return None
    return here


def _feels_scale(head: RecordedHead, call: Call, at_even: Tensor) -> Tensor:
    """For which samples a value moves from the untouched filter to the uniform one: (B,)."""
    untouched, at_random = head.replay.observed.some(call), head.replay.probed.some(call)
    if untouched is None or at_random is None or not untouched.shape == at_random.shape == at_even.shape:
        return torch.zeros(head.batch, dtype=torch.bool, device=at_even.device)
    return _is_farther(untouched, at_even, at_random)


def _is_farther(untouched: Tensor, at_even: Tensor, at_random: Tensor) -> Tensor:
    """For which samples the uniform filter moves a value by more than a small share of what a random one does: (B,)."""
    return _distance(untouched, at_even) > FEELS_SCALE * _distance(untouched, at_random)


def _depends_on_the_mean_alone(head: RecordedHead) -> Tensor:
    """For which samples the output stays when the map changes and its mean over the positions does not: (B,)."""
    replay = head.replay
    weighed = head.layout.weigh(head.features, replay.probe_weights)
    columns, place = torch.func.vjp(head.layout.columns, weighed)[:2]  # the transpose of a choice puts back
    noise = torch.randn(1, *columns.shape[1:], generator=torch.Generator().manual_seed(0)).to(columns)
    noise = (noise - noise.mean(dim=2, keepdim=True)) * columns.flatten(1).std(dim=1)[:, None, None]
    try:
        changed = replay.head(weighed + place(noise)[0])
    except Exception:  # noqa: BLE001 - a network may refuse any map but its own
        return torch.zeros(head.batch, dtype=torch.bool, device=columns.device)
    at_random = replay.probed[OUTPUT]
    return _distance(changed, at_random) <= UNMOVED_BY_THE_REST * _distance(replay.output, at_random)


def _distance(one: Tensor, other: Tensor) -> Tensor:
    """The squared distance of each sample."""
    return (rows(one).double() - rows(other).double()).square().sum(dim=1)
