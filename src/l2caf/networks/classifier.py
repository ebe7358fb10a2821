"""The last layer of a classifier: found by one run, and taken off where its pooled features are wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..recording.borrow import borrowed


class Taken(NamedTuple):
    """The layer that was taken off, and how many numbers it was given."""

    name: str
    width: int


def without_classifier(network: nn.Module, inputs: Tensor, *, classes: int = 0) -> Taken | None:
    """Take off the linear layer that gives the output, and tell which it was; None where there is none.

    It is the layer whose output is the network's own, or was its last of that width (softmax may follow). A network
    that fails on these inputs is searched by its modules, for the last with an output for each of `classes`.
    """
    name = _by_one_run(network, inputs) or _by_count(network, classes)
    if name is None:
        return None
    layer = network.get_submodule(name)
    parent, _, own = name.rpartition(".")
    setattr(network.get_submodule(parent), own, nn.Identity())
    assert isinstance(layer, nn.Linear)
    return Taken(name, layer.in_features)


def _by_one_run(network: nn.Module, inputs: Tensor) -> str | None:
    called: list[tuple[str, Tensor]] = []

    def note(name: str) -> Callable[[nn.Module, Any, Any], None]:
        return lambda module, given, output: called.append((name, output))

    linear = {name: module for name, module in network.named_modules() if name and isinstance(module, nn.Linear)}
    with borrowed(network), torch.no_grad():
        watched = [module.register_forward_hook(note(name)) for name, module in linear.items()]
        try:
            output = network(inputs)
        except Exception:  # noqa: BLE001 - any network may fail in any way on a picture that is all grey
            return None
        finally:
            for hook in watched:
                hook.remove()
    if not isinstance(output, Tensor) or output.ndim not in (1, 2):
        return None
    scores = output.reshape(len(output), -1)
    # A layer that is called several times has a part in the features too.
    names = [name for name, _ in called]
    fitting = [(name, found) for name, found in called if names.count(name) == 1 and found.shape == scores.shape]
    same = [name for name, found in fitting if torch.equal(found, scores)]
    found = same or [name for name, _ in fitting]
    return found[-1] if found else None


def _by_count(network: nn.Module, classes: int) -> str | None:
    """The last linear layer that has an output for each class."""
    fitting = [
        name
        for name, module in network.named_modules()
        if classes and name and isinstance(module, nn.Linear) and module.out_features == classes
    ]
    return fitting[-1] if fitting else None
