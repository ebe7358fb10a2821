"""What is plainly wrong with inputs that a network failed on: looked at only after it has."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from ..errors import InputError, L2cafError
from .inputs import Arguments

_CONVOLUTIONS: dict[type[nn.Module], int] = {nn.Conv1d: 1, nn.Conv2d: 2, nn.Conv3d: 3}


@contextmanager
def mismatch_told(network: nn.Module, arguments: Arguments) -> Iterator[None]:
    """Raise one sentence in place of torch's own error, where inputs and network clearly do not fit."""
    try:
        yield
    except L2cafError:
        raise
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        why = _arguments(network, arguments) if isinstance(error, TypeError) else _tensors(error, network, arguments)
        if why is None:  # the network's own error, which says more than we could
            raise
        raise InputError(why) from error


def _arguments(network: nn.Module, arguments: Arguments) -> str | None:
    """Other arguments than `forward` takes."""
    try:
        signature = inspect.signature(network.forward)
        signature.bind(*arguments.args, **arguments.kwargs)
        return None
    except ValueError:  # written in C
        return None
    except TypeError as fault:
        shapes = {tuple(value.shape) for value in arguments.args if hasattr(value, "shape")}
        if not arguments.kwargs and len(arguments.args) > 1 and len(shapes) == 1:
            return (
                f"{len(arguments.args)} inputs are given as arguments of their own, but the network takes"
                f" {signature}: make one batch of them with torch.stack."
            )
        return f"The network takes {signature}, and not what is given ({fault}): name its inputs as it does."


def _tensors(error: Exception, network: nn.Module, arguments: Arguments) -> str | None:
    """A tensor of another kind than the weights, without a batch, or with other channels."""
    weights = next((one for one in network.parameters() if one.is_floating_point()), None)
    main = arguments.main
    if main.numel() == 0:
        return f"The input has shape {tuple(main.shape)} and holds no numbers: give at least one of everything."
    if weights is not None and main.is_floating_point():
        for name, given, wanted in (
            ("on", main.device, weights.device),
            ("of type", main.dtype, weights.dtype),
        ):
            if given != wanted and ("same" in str(error) or "but got" in str(error)):
                words = f"{str(wanted)!r}" if name == "on" else str(wanted)
                return f"The inputs are {name} {given} and the network's weights {wanted}: give inputs.to({words})."
    axes = next((_CONVOLUTIONS[type(one)] for one in network.modules() if type(one) in _CONVOLUTIONS), 0)
    is_alone = axes and main.ndim == axes + 1
    if is_alone or (axes and main.ndim == axes + 2 and _takes_a_batch_of(network, arguments)):
        return f"The input has shape {tuple(main.shape)} and no batch: give inputs.unsqueeze(0), or a batch of several."
    channels = re.search(r"to have (\d+) channels, but got (\d+) channels", str(error))
    if channels:
        return f"The inputs have {channels[2]} channels, but the network takes {channels[1]}: give it such ones."
    return None


@torch.no_grad()
def _takes_a_batch_of(network: nn.Module, arguments: Arguments) -> bool:
    """Whether the network runs on what it failed on as one of a batch: a clip, whose frames pass for a batch."""
    try:
        arguments.with_rows(arguments.main.unsqueeze(0)).call(network)
    except Exception:  # noqa: BLE001 - it may refuse in any way
        return False
    return True
