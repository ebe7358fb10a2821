"""`Plan`: what a second call on a network needs, so that it costs one forward pass and a few products.

A plan is made where a recording shows that the head is a mean over the positions and a linear map. It names the layer
and holds W and b; where these are parameters of the network, it holds their names alone, and reads them anew each time.
It is valid for one fingerprint of the network (`recording/knowledge.py`) and while every other tensor behind the layer
is what it was, and every batch checks that W mean(A) + b is the output just given (or, which needs no product with W,
that mean(A) is what torch's own linear layer made the output of): values at the untouched filter are blind to a
rectifier behind the mean, and to a slope or a floor there that is trained.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import L2cafError
from ..numerics import agree, rows
from ..recording.arranged import has_hooks
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
MOST_NUMBERS = 1 << 16  # of a tensor behind the layer that is compared number by number on every call


@dataclass(frozen=True, eq=False)
class Plan:
    """`weight` and `bias` are the names of parameters, or W and b themselves; `others` are what else they depend on."""

    layer: Layer
    weight: str | Tensor
    bias: str | Tensor
    shape: tuple[int, int]
    others: tuple[_Seen, ...] = ()

    def pooled(self, network: nn.Module) -> PooledLinear | None:
        """The head as plain arrays; None where it is known to have changed."""
        weight, bias = self._now(network, self.weight), self._now(network, self.bias)
        if weight is None or bias is None or weight.numel() != self.shape[0] * self.shape[1]:
            return None
        if bias.shape != self.shape[:1]:
            return None
        if not all(other.is_same(network) for other in self.others):
            return None
        weight = weight.detach()
        return PooledLinear(weight if weight.shape == self.shape else weight.reshape(self.shape), bias.detach())

    def linear(self, network: nn.Module) -> nn.Linear | None:
        """The module that is W and b and nothing else: torch's own, as its class has it. None where there is none."""
        if not isinstance(self.weight, str):
            return None
        module = _module_named(network, self.weight.rpartition(".")[0])
        if type(module) is not nn.Linear or "forward" in module.__dict__ or has_hooks(module):
            return None
        is_plain = type(module.weight) is nn.Parameter and _tensor_named(network, self.weight) is module.weight
        has_bias = isinstance(self.bias, str) and _tensor_named(network, self.bias) is module.bias is not None
        return module if is_plain and has_bias else None

    @staticmethod
    def _now(network: nn.Module, value: str | Tensor) -> Tensor | None:
        return value if isinstance(value, Tensor) else _tensor_named(network, value)


@dataclass(frozen=True, eq=False)
class _Seen:
    """A tensor behind the layer as it was: by value where it is small, by place and version where it is not."""

    name: str
    value: Tensor | None
    place: tuple[int, int]

    @classmethod
    def of(cls, name: str, tensor: Tensor) -> _Seen:
        value = tensor.detach().clone() if tensor.numel() <= MOST_NUMBERS else None
        return cls(name, value, (tensor.data_ptr(), tensor._version))

    def is_same(self, network: nn.Module) -> bool:
        tensor = _tensor_named(network, self.name)
        if tensor is None:
            return False
        if self.value is None:
            return self.place == (tensor.data_ptr(), tensor._version)
        # What is written through .data has no new version.
        return _alike(tensor, self.value) and torch.equal(tensor, self.value)


class Taken:
    """What the layer of a plan returned in one run of the network, and what torch's own linear layer was given."""

    def __init__(self, network: nn.Module, plan: Plan) -> None:
        self.plan = plan
        self.module = module_named(network, plan.layer.name)
        self.linear = plan.linear(network)
        self.features: Any = None
        self.version = 0
        self.calls = 0
        self.means: list[tuple[Any, Any, int]] = []  # what the linear layer was given, and made of it, at which version

    def noting_means(self, linear: nn.Linear) -> Callable[..., Any]:
        """The linear layer's own forward, which notes what it was given and what it made of it."""
        own = linear.forward

        def forward(means: Any) -> Any:
            output = own(means)
            self.means.append((means, output, output._version))
            return output

        return forward

    def note(self, call: Call, output: Any) -> None:
        """Keep the output of the planned call."""
        self.calls += 1
        if call.index == self.plan.layer.call and isinstance(output, Tensor):
            self.features, self.version = output, output._version

    def noting(self, output: Any) -> Any:
        """The same as a hook that runs last."""
        self.note(Call(self.module, self.calls), output)
        return output

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
        rows_of_map = arguments.about(layer.input).batch * (layer.layout.frames or 1)
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
        size = arguments.about(layer.input).size_for(layer.layout)
        head = PlannedHead(layer, features, output, size=size, pooled=pooled, record=record)
        means, made, version = self.means[0] if len(self.means) == 1 else (None, None, 0)
        # What writes into the output afterwards, as a rectifier may, returns the same tensor, of another version.
        is_its_own = made is output and output._version == version
        return head if head.is_confirmed(means if is_its_own else None) else None


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
    behind = _behind(head)
    some = sorted({0, shape[0] // 2, shape[0] - 1})
    name = _parameter(network, shape, vectors, outputs - bias, (some, _worked_out(head, means, some)), behind)
    if name is None and shape[0] > MOST_OUTPUTS:
        return None
    weight = name or _worked_out(head, means, range(shape[0]))
    beside = None if name is None else _bias_beside(network, name, bias[0])
    read = [_tensor_named(network, one) for one in (name, beside) if one is not None]
    others = [_Seen.of(other, tensor) for other, tensor in behind.items() if all(tensor is not one for one in read)]
    plan = Plan(head.layer, weight, beside or bias[0].clone(), shape, tuple(others))
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


def _behind(head: RecordedHead) -> dict[str, Tensor]:
    """Every parameter and buffer that is not of modules which the layer's map alone depends on."""
    network, passed = head.replay.network, head.replay.tape.passed()
    return {
        f"{path}.{name}" if path else name: tensor
        for path, module in network.named_modules()
        if module not in passed
        for name, tensor in (*module._parameters.items(), *module._buffers.items())
        if tensor is not None
    }


def _parameter(
    network: nn.Module,
    shape: tuple[int, int],
    vectors: Tensor,
    outputs: Tensor,
    known: tuple[list[int], Tensor],
    behind: Mapping[str, Tensor],
) -> str | None:
    """The name of the parameter that is W, and not only near it as the direction of a weight norm is, or a mean of W.

    Rows of W that are known as gradients tell: these are read off, and have hardly a rounding.
    """
    numbers, rows_of_w = known
    allowed = 8 * torch.finfo(vectors.dtype).eps * rows_of_w.abs().amax()
    found = []
    for name, parameter in network.named_parameters():
        if parameter.numel() != math.prod(shape) or parameter.shape[0] != shape[0] or parameter.dtype != vectors.dtype:
            continue
        value = parameter.detach().reshape(shape)
        off = (value[numbers] - rows_of_w).abs().amax()
        if bool(off <= allowed) and agree(vectors @ value.T, outputs, slack=10):
            found.append((name not in behind, float(off), name))
    return min(found)[2] if found else None


def _bias_beside(network: nn.Module, weight: str, bias: Tensor) -> str | None:
    """The name of the parameter that is b, next to that which is W."""
    name = f"{weight.rpartition('.')[0]}.bias".lstrip(".")
    tensor = _tensor_named(network, name)
    return name if tensor is not None and _alike(tensor, bias) and torch.equal(tensor, bias) else None


def _tensor_named(network: nn.Module, name: str) -> Tensor | None:
    """A parameter or buffer, or None where there is none of that name."""
    path, _, last = name.rpartition(".")
    module = _module_named(network, path)
    if module is None:
        return None
    found = module._parameters.get(last)
    return module._buffers.get(last) if found is None else found


def _module_named(network: nn.Module, path: str) -> nn.Module | None:
    """A module, or None where there is none of that name."""
    found: nn.Module | None = network
    for name in path.split(".") if path else ():
        found = found._modules.get(name) if found is not None else None
    return found


def _worked_out(head: RecordedHead, means: Tensor, numbers: Sequence[int]) -> Tensor:
    """Rows of W, as the gradient of these numbers of the output; the values confirm it later."""
    with torch.enable_grad():
        leaf = means.clone().requires_grad_()
        output = head.from_mean(leaf)
        assert output is not None
        directions = torch.zeros(len(numbers), *output.shape, dtype=output.dtype, device=output.device)
        directions[range(len(numbers)), 0, list(numbers)] = 1.0
        return gradients_of(output, leaf, directions)[:, 0].detach().clone()


def _alike(*tensors: Tensor) -> bool:
    first = tensors[0]
    return all(tensor.dtype == first.dtype and tensor.device == first.device for tensor in tensors)
