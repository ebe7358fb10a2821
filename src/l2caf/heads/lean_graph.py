"""`lean_graph`: a graph for gradients in the activations alone, which keeps no activations where it can.

For the gradient in its weights, a convolution keeps its input; for that in its input, its weights are enough. The same
goes for a batch norm in evaluation mode, and of a rectifier the signs are. In a decoder these are nearly all there is,
and with them a graph holds a few percent of what a plain one does. All other operations are torch's own.

A question about a region has a gradient that is zero far from it: convolutions go back from where it is not, so that
the way back costs what the region's own part of the network does. The way back has a graph of its own where one is
asked for (`create_graph`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

CONVOLUTIONS: dict[Callable[..., Tensor], Callable[..., Tensor]] = {
    F.conv1d: F.conv_transpose1d,
    F.conv2d: F.conv_transpose2d,
    F.conv3d: F.conv_transpose3d,
}
TRANSPOSED = {back: forth for forth, back in CONVOLUTIONS.items()}


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
        if lean is not None and torch.is_grad_enabled():
            given = args[0] if args else named.get("input")
            if isinstance(given, Tensor) and given.requires_grad:
                return lean(function, *args, **named)
        if function is torch.cat and torch.is_grad_enabled() and args and "out" not in named:
            tensors = args[0]
            if isinstance(tensors, list | tuple) and sum(one.requires_grad for one in tensors) == 1:
                return _joined_to_others(function, *args, **named)
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
    def backward(ctx: Any, *gradients: Any) -> Any:
        return ctx.back(gradients[0]), None, None


def _joined(given: Tensor, compute: Callable[[Tensor], tuple[Tensor, Back]], *, written: bool = False) -> Tensor:
    found: Tensor = _Lean.apply(given, compute, written)
    return found


def _are_computed(*weights: Tensor | None) -> bool:
    """Whether one of the weights was computed with a graph: its gradient may go on to activations."""
    return any(one is not None and one.grad_fn is not None for one in weights)


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
    if isinstance(padding, str) or _are_computed(weight, bias):
        return function(input, weight, bias, stride, padding, dilation, groups)
    transposed, weight, of = CONVOLUTIONS[function], weight.detach(), _Reach.of(weight, stride, padding, dilation)
    size = input.shape[-of.axes :]

    def back(gradient: Tensor) -> Tensor:
        within = _support(gradient, of.axes)
        found = transposed(_cut(gradient, within), weight, None, stride, 0, 0, groups, dilation)
        # A number at o was made of those from o s - p on.
        starts = [start * s - p for (start, _), s, p in zip(within, of.stride, of.padding, strict=True)]
        return _put(found, starts, size)

    def compute(given: Tensor) -> tuple[Tensor, Back]:
        return function(given, weight, bias, stride, padding, dilation, groups), back

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
    if _are_computed(weight, bias):
        return function(input, weight, bias, stride, padding, output_padding, groups, dilation)
    convolve, weight, of = TRANSPOSED[function], weight.detach(), _Reach.of(weight, stride, padding, dilation)
    size = input.shape[-of.axes :]

    def back(gradient: Tensor) -> Tensor:
        # A number at i went into those from i s - p on, as far as the kernel reaches.
        reached = []
        for (start, stop), s, p, far, n in zip(
            _support(gradient, of.axes), of.stride, of.padding, of.far, size, strict=True
        ):
            first = min(max(-((far - p - start) // s), 0), n - 1)
            reached.append((first, min(max((stop - 1 + p) // s + 1, first + 1), n)))
        within = [
            (first * s - p, (last - 1) * s - p + far + 1)
            for (first, last), s, p, far in zip(reached, of.stride, of.padding, of.far, strict=True)
        ]
        found = convolve(_cut(gradient, within), weight, None, stride, 0, dilation, groups)
        return _put(found, [first for first, _ in reached], size)

    def compute(given: Tensor) -> tuple[Tensor, Back]:
        return function(given, weight, bias, stride, padding, output_padding, groups, dilation), back

    return _joined(input, compute)


class _Reach(NamedTuple):
    """A convolution along each of its axes; `far` is how far its kernel reaches."""

    axes: int
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    far: tuple[int, ...]

    @classmethod
    def of(cls, weight: Tensor, stride: Any, padding: Any, dilation: Any) -> _Reach:
        axes = weight.ndim - 2

        def each(given: Any) -> tuple[int, ...]:
            given = (given,) if isinstance(given, int) else tuple(given)
            return given if len(given) == axes else given * axes

        far = tuple(d * (length - 1) for d, length in zip(each(dilation), weight.shape[2:], strict=True))
        return cls(axes, each(stride), each(padding), far)


# Where a gradient that was put into zeros lies, told on the tensor itself: to look for it takes longer than to use it.
# What torch makes of such a gradient is another tensor, on which nothing is told, or the same one of another version:
# where a value is used twice, autograd adds the gradient of the one use into that of the other.
_KNOWN = "_l2caf_lies_within"
Box = Sequence[tuple[int, int]]  # start and stop along each axis of space


def _told(gradient: Tensor) -> Box | None:
    """The box that is told on a gradient, if it is still as it was then."""
    within, version = getattr(gradient, _KNOWN, (None, None))
    return within if version == gradient._version else None


def _tell(gradient: Tensor, within: Box) -> None:
    setattr(gradient, _KNOWN, (within, gradient._version))


def _times(gradient: Tensor, factor: Tensor) -> Tensor:
    """The product with a factor of the gradient's shape, or of one number per channel."""
    if gradient.ndim < 3:
        return gradient * factor
    within = _support(gradient, gradient.ndim - 2)
    starts = [start for start, _ in within]
    if factor.shape[2:] == gradient.shape[2:]:
        factor = _cut(factor, within)
    return _put(_cut(gradient, within) * factor, starts, gradient.shape[2:])


def _support(gradient: Tensor, axes: int) -> Box:
    """The smallest box outside of which a gradient is zero; one number, where it is zero all over."""
    known = _told(gradient)
    if known is not None and len(known) == axes:
        return known
    lead = gradient.ndim - axes
    there = gradient.detach().ne(0).flatten(0, lead - 1).any(dim=0)
    found = []
    for axis in range(axes):
        others = [other for other in range(axes) if other != axis]
        (places,) = (there.any(dim=others) if others else there).nonzero(as_tuple=True)
        found.append((int(places[0]), int(places[-1]) + 1) if len(places) else (0, 1))
    return found


def _cut(values: Tensor, within: Box) -> Tensor:
    """Values inside a box; what of it lies beyond their ends is zero."""
    return _put(values, [-start for start, _ in within], [stop - start for start, stop in within])


def _put(values: Tensor, starts: Sequence[int], size: Sequence[int]) -> Tensor:
    """Values from given places on, in zeros of a size; what lies beyond its ends is left out."""
    if not any(starts) and values.shape[values.ndim - len(size) :] == tuple(size):
        return values
    found: Tensor = _Moved.apply(values, tuple(starts), tuple(size))
    return found


class _Moved(torch.autograd.Function):
    """`_put`, whose way back is `_put`, too."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, starts: tuple[int, ...], size: tuple[int, ...]) -> Tensor:
        ctx.starts, ctx.size = starts, values.shape[values.ndim - len(size) :]
        within = []
        for axis, (start, length) in enumerate(zip(starts, size, strict=True), start=values.ndim - len(size)):
            first, last = max(0, -start), min(values.shape[axis], length - start)
            if first >= last:  # of a convolution, that saw nothing but its padding there
                return _zeros(values, size)
            values = values.narrow(axis, first, last - first)
            within.append((start + first, start + last))
        if values.shape[values.ndim - len(size) :] == size:
            return values.clone() if values.is_contiguous() else values.contiguous()
        found = _zeros(values, size)
        part = found
        for axis, (start, stop) in enumerate(within, start=values.ndim - len(size)):
            part = part.narrow(axis, start, stop - start)
        part.copy_(values)
        _tell(found, within)
        return found

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return _put(gradients[0], [-start for start in ctx.starts], ctx.size), None, None


def _zeros(like: Tensor, size: tuple[int, ...]) -> Tensor:
    """Zeros that cost nothing where nobody looks: the system gives numpy its pages on first use, torch writes each."""
    shape = (*like.shape[: like.ndim - len(size)], *size)
    if like.device.type != "cpu" or like.dtype not in (torch.float32, torch.float64):
        return like.new_zeros(shape)
    return torch.from_numpy(np.zeros(shape, np.float32 if like.dtype == torch.float32 else np.float64))


def _joined_to_others(function: Callable[..., Tensor], tensors: Sequence[Tensor], dim: int = 0, **named: Any) -> Tensor:
    """`torch.cat` with tensors that have no gradient, as a U-Net does: the way back keeps what is known of it."""
    (place,) = [number for number, one in enumerate(tensors) if one.requires_grad]
    start, length = sum(one.shape[dim] for one in tensors[:place]), tensors[place].shape[dim]

    def back(gradient: Tensor) -> Tensor:
        found = gradient.narrow(dim, start, length)
        within = _told(gradient)
        if dim == 1 and within is not None:
            _tell(found, within)
        return found

    def compute(given: Tensor) -> tuple[Tensor, Back]:
        return function([*tensors[:place], given, *tensors[place + 1 :]], dim, **named), back

    return _joined(tensors[place], compute)


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
    if training or running_mean is None or running_var is None or _are_computed(weight, bias):
        return function(input, running_mean, running_var, weight, bias, training, momentum, eps)

    def compute(given: Tensor) -> tuple[Tensor, Back]:
        scale = (running_var + eps).rsqrt() * (1.0 if weight is None else weight)
        scale = scale.reshape(-1, *[1] * (given.ndim - 2))
        result = function(given, running_mean, running_var, weight, bias, training, momentum, eps)
        return result, lambda gradient: _times(gradient, scale.to(gradient))

    return _joined(input, compute)


def _rectified(function: Callable[..., Tensor], input: Tensor, inplace: bool = False) -> Tensor:
    def compute(given: Tensor) -> tuple[Tensor, Back]:
        result = function(given, inplace) if inplace else function(given)
        positive = result > 0
        return result, lambda gradient: _times(gradient, positive)

    return _joined(input, compute, written=inplace)


_LEAN: dict[Any, Callable[..., Tensor]] = {
    **dict.fromkeys(CONVOLUTIONS, _convolved),
    **dict.fromkeys(TRANSPOSED, _transposed),
    F.batch_norm: _normalised,
    F.relu: _rectified,
    torch.relu: _rectified,
}
