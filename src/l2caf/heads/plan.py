"""`Plan`: what a second call on a network needs, so that it costs one forward pass and a few products.

A plan is made where a recording shows that the head is a mean over the positions and a linear map. It names the layer
and holds W and b; where W is a parameter of the network, it holds that one's name alone, and reads it anew each time.
It is valid for one fingerprint of the network (`recording/knowledge.py`), and every batch checks that W mean(A) + b is
the output just given: values alone are blind to a rectifier added behind the mean, a fingerprint to other values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import L2cafError
from ..numerics import agree, rows
from ..recording.borrow import Call
from ..recording.inputs import Arguments, Select, select_output
from ..recording.layers import Layer, module_named
from .gradient import gradients_of
from .planned import PlannedHead
from .pooled import PooledLinear
from .recorded import RecordedHead

# Vectors on which a head must be what it is taken for, from a thirtieth to thirty times the size of a real mean: a unit
# behind a rectifier that is open for all of them has no effect that a filter could undo.
SCALES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
MOST_OUTPUTS = 4096  # rows of W that are worked out one by one where W is no parameter


@dataclass(frozen=True, eq=False)
class Plan:
    """`weight` is the name of a parameter, or W itself with the versions of all tensors that it was made from."""

    layer: Layer
    weight: str | Tensor
    bias: Tensor
    shape: tuple[int, int]
    versions: tuple[int, ...] = ()

    def pooled(self, network: nn.Module) -> PooledLinear | None:
        """The head as plain arrays; None where it is known to have changed."""
        if isinstance(self.weight, Tensor):
            return PooledLinear(self.weight, self.bias) if self.versions == _versions(network) else None
        return PooledLinear(network.get_parameter(self.weight).detach().reshape(self.shape), self.bias)


class Taken:
    """What the layer of a plan returned in one run of the network."""

    def __init__(self, network: nn.Module, plan: Plan) -> None:
        self.plan = plan
        self.module = module_named(network, plan.layer.name)
        self.features: Any = None
        self.version = 0
        self.calls = 0

    def note(self, call: Call, output: Any) -> None:
        """Keep the output of the planned call."""
        self.calls += 1
        if call.index == self.plan.layer.call and isinstance(output, Tensor):
            self.features, self.version = output, output._version

    def head(
        self,
        network: nn.Module,
        arguments: Arguments,
        returned: Any,
        select: Select,
        record: Callable[[], RecordedHead],
    ) -> PlannedHead | None:
        """Make the head, or None where the run was not the one that was planned."""
        layer, features, pooled = self.plan.layer, self.features, self.plan.pooled(network)
        rows_of_map = arguments.batch * (layer.layout.frames or 1)
        if pooled is None or self.calls != layer.calls or not isinstance(features, Tensor):
            return None
        if features.shape != (rows_of_map, *layer.shape) or features._version != self.version:
            return None  # something else, or what follows has written into it
        try:
            output = select_output(returned, select, arguments.batch)
        except L2cafError:
            return None
        if output.shape[1:].numel() != len(pooled.bias) or not _alike(features, output, pooled.weight, pooled.bias):
            return None
        size = arguments.size_for(layer.layout)
        head = PlannedHead(layer, features, output, size=size, pooled=pooled, record=record)
        return head if head.is_confirmed() else None


@torch.no_grad()
def make_plan(head: RecordedHead) -> Plan | None:
    """Make a plan from a recorded head, or None where it is no mean and linear map in single or double precision."""
    network = head.replay.network
    if head.output.dtype not in (torch.float32, torch.float64) or head.features.dtype != head.output.dtype:
        return None
    if not bool(head.finite.all()) or not head.is_affine or head.layer.inputs_written:
        return None
    means = head.columns.mean(dim=2)
    bias = head.from_mean(torch.zeros_like(means))
    if bias is None or not bool((bias == bias[:1]).all()):
        return None
    vectors = _vectors(means)
    outputs = torch.stack([rows_of for value in vectors if (rows_of := head.from_mean(value)) is not None])
    shape = (bias.shape[1], means.shape[1])
    name = _parameter(network, shape, vectors, outputs - bias)
    weight: str | Tensor | None = name or _worked_out(head, means, shape)
    if weight is None:
        return None
    versions = () if isinstance(weight, str) else _versions(network)
    plan = Plan(head.layer, weight, bias[0].clone(), shape, versions)
    pooled = plan.pooled(network)
    assert pooled is not None
    probed = (head.columns @ head.probe_weights.unsqueeze(-1).to(head.columns)).squeeze(-1) / head.positions
    confirmed = (
        agree(pooled.of_mean(vectors), outputs, slack=10)
        and agree(pooled.of_mean(means), rows(head.output))
        and agree(pooled.of_mean(probed), rows(head.probed_output), slack=10)
    )
    return plan if confirmed else None


def _vectors(means: Tensor) -> Tensor:
    """Random vectors in place of the means, of every size: (len(SCALES), B, C)."""
    generator = torch.Generator().manual_seed(0)
    random = torch.randn(len(SCALES), *means.shape, generator=generator).to(means)
    size = means.abs().mean().clamp_min(1e-6)
    return random * size * torch.tensor(SCALES).to(means)[:, None, None]


def _parameter(network: nn.Module, shape: tuple[int, int], vectors: Tensor, outputs: Tensor) -> str | None:
    """The name of the parameter that is W."""
    for name, parameter in network.named_parameters():
        if (
            parameter.numel() != shape[0] * shape[1]
            or parameter.shape[0] != shape[0]
            or parameter.dtype != vectors.dtype
        ):
            continue
        if agree(vectors @ parameter.detach().reshape(shape).T, outputs, slack=10):
            return name
    return None


def _worked_out(head: RecordedHead, means: Tensor, shape: tuple[int, int]) -> Tensor | None:
    """W row by row, as the gradient of each number of the output; the values confirm it later."""
    if shape[0] > MOST_OUTPUTS:
        return None
    with torch.enable_grad():
        leaf = means.clone().requires_grad_()
        output = head.from_mean(leaf)
        assert output is not None
        directions = torch.zeros(shape[0], *output.shape, dtype=output.dtype, device=output.device)
        directions[:, 0] = torch.eye(shape[0], dtype=output.dtype, device=output.device)
        return gradients_of(output, leaf, directions)[:, 0].detach().clone()


def _versions(network: nn.Module) -> tuple[int, ...]:
    """What changes when a parameter or buffer is exchanged or written into."""
    return tuple(
        number
        for tensor in (*network.parameters(), *network.buffers())
        for number in (tensor.data_ptr(), tensor._version)
    )


def _alike(*tensors: Tensor) -> bool:
    first = tensors[0]
    return all(tensor.dtype == first.dtype and tensor.device == first.device for tensor in tensors)
