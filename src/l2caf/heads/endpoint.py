"""Where a question is put: the output, or the last value before it that still feels scale.

A head that does not feel scale (it normalises) gives the untouched output already at the uniform filter, and to keep
the output is then no question: its loss is zero at a flat map. It is kept at the last module that still feels scale.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ..numerics import FEELS_SCALE, rows
from ..recording.borrow import Call
from ..recording.replay import OUTPUT

if TYPE_CHECKING:
    from .recorded import RecordedHead


class Endpoint(NamedTuple):
    """A later call, or the output, and whether anything can be learnt there."""

    at: Call = OUTPUT
    informative: bool = True


def find_endpoint(head: RecordedHead, at: str | None, *, needs_scale: bool) -> Endpoint:
    """Find the endpoint of a question that names one, or that needs one which feels scale."""
    replay = head.replay
    if at is not None:
        call = replay.later_call(at)
        if call not in replay.observed:
            with torch.no_grad():
                ones = torch.ones(head.batch, head.positions, device=head.features.device)
                replay.observed[call] = replay.filtered(ones, until=call)
        return Endpoint(call)
    if not needs_scale or head.is_affine or head.is_affine_where_positive:
        return Endpoint()
    even = torch.full((head.batch, head.positions), head.positions**-0.5, device=head.features.device)
    at_random = head.probed

    def feels_scale(call: Call, at_even: Tensor) -> bool:
        untouched = replay.observed[call]
        return bool((_distance(untouched, at_even) > FEELS_SCALE * _distance(untouched, at_random[call])).any())

    with torch.no_grad():
        if feels_scale(OUTPUT, head.filtered(even)):
            return Endpoint()
    if not bool((_distance(replay.output, at_random[OUTPUT]) > 0).any()):
        return Endpoint(informative=False)  # nothing moves the output, so what other modules feel does not matter to it
    at_even = replay.observe(even)
    for call in reversed(head.affine_calls or list(replay.observed)):
        if call in at_even and call in at_random and feels_scale(call, at_even[call]):
            return Endpoint(call)
    return Endpoint(informative=False)


def _distance(one: Tensor, other: Tensor) -> Tensor:
    """The squared distance of each sample."""
    return (rows(one).double() - rows(other).double()).square().sum(dim=1)
