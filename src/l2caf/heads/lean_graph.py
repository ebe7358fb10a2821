"""`lean_graph`: a graph for gradients in the activations alone, which keeps no activations where it can.

For the gradient in its weights, a convolution keeps its input; for that in its input, its weights are enough. The same
goes for a batch norm in evaluation mode, and of a rectifier the signs are. In a decoder these are nearly all there is,
and with them a graph holds a few percent of what a plain one does. All other operations are torch's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.grad import conv1d_input, conv2d_input, conv3d_input
from torch.overrides import TorchFunctionMode

CONVOLUTIONS: dict[Callable[..., Tensor], Callable[..., Tensor]] = {
    F.conv1d: conv1d_input,
    F.conv2d: conv2d_input,
    F.conv3d: conv3d_input,
}
TRANSPOSED: dict[Callable[..., Tensor], Callable[..., Tensor]] = {
    F.conv_transpose1d: F.conv1d,
    F.conv_transpose2d: F.conv2d,
    F.conv_transpose3d: F.conv3d,
}


class lean_graph(TorchFunctionMode):  # noqa: N801 - used as `torch.no_grad` is
    """While it is entered, gradients flow to activations only: weights are taken as constants.

    >>> weight, given = torch.rand(4, 3, 3, 3, requires_grad=True), torch.rand(1, 3, 8, 8, requires_grad=True)
    >>> with lean_graph():
    ...     output = F.relu(F.conv2d(given, weight)).sum()
    >>> (plain,) = torch.autograd.grad(F.relu(F.conv2d(given, weight)).sum(), given)
    >>> bool(torch.allclose(torch.autograd.grad(output, given)[0], plain, atol=1e-5))
    True
    """

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        lean = _LEAN.get(function)
        given = args[0] if args else named.get("input")
        if lean is not None and torch.is_grad_enabled() and isinstance(given, Tensor) and given.requires_grad:
            return lean(function, *args, **named)
        return function(*args, **named)


Back = Callable[[Tensor], Tensor]  # from the gradient of a result to that of what was given


class _Lean(torch.autograd.Function):
    """What an operation computes from one tensor, and its way back."""

    @staticmethod
    def forward(ctx: Any, given: Tensor, compute: Callable[[Tensor], tuple[Tensor, Back]], written: bool) -> Tensor:
        result, ctx.back = compute(given)
        if written:
            ctx.mark_dirty(result)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        return ctx.back(gradients[0]), None, None


def _joined(given: Tensor, compute: Callable[[Tensor], tuple[Tensor, Back]], *, written: bool = False) -> Tensor:
    found: Tensor = _Lean.apply(given, compute, written)
    return found


def _convolved(
    function: Callable[..., Tensor],
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    if isinstance(padding, str):
        return function(input, weight, bias, stride, padding, dilation, groups)
    back, size, weight = CONVOLUTIONS[function], input.shape, weight.detach()

    def compute(given: Tensor) -> tuple[Tensor, Back]:
        result = function(given, weight, bias, stride, padding, dilation, groups)
        return result, lambda gradient: back(size, weight, gradient, stride, padding, dilation, groups)

    return _joined(input, compute)


def _transposed(
    function: Callable[..., Tensor],
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    back, weight = TRANSPOSED[function], weight.detach()

    def compute(given: Tensor) -> tuple[Tensor, Back]:
        result = function(given, weight, bias, stride, padding, output_padding, groups, dilation)
        return result, lambda gradient: back(gradient, weight, None, stride, padding, dilation, groups)

    return _joined(input, compute)


def _normalised(
    function: Callable[..., Tensor],
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    if training or running_mean is None or running_var is None:
        return function(input, running_mean, running_var, weight, bias, training, momentum, eps)

    def compute(given: Tensor) -> tuple[Tensor, Back]:
        scale = (running_var + eps).rsqrt() * (1.0 if weight is None else weight)
        scale = scale.reshape(-1, *[1] * (given.ndim - 2))
        result = function(given, running_mean, running_var, weight, bias, training, momentum, eps)
        return result, lambda gradient: gradient * scale.to(gradient)

    return _joined(input, compute)


def _rectified(function: Callable[..., Tensor], input: Tensor, inplace: bool = False) -> Tensor:
    def compute(given: Tensor) -> tuple[Tensor, Back]:
        result = function(given, inplace) if inplace else function(given)
        positive = result > 0
        return result, lambda gradient: gradient * positive

    return _joined(input, compute, written=inplace)


_LEAN: dict[Any, Callable[..., Tensor]] = {
    **dict.fromkeys(CONVOLUTIONS, _convolved),
    **dict.fromkeys(TRANSPOSED, _transposed),
    F.batch_norm: _normalised,
    F.relu: _rectified,
    torch.relu: _rectified,
}
