"""All that could be changed on a network or in the process, to compare it before and after."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn

from l2caf.recording import process
from networks_for_tests import seeded

HOOKS = [
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks_with_kwargs",
]


def state_of(network: nn.Module) -> dict[str, Any]:
    """All that could have been changed, by value."""
    tensors = {**dict(network.named_parameters()), **dict(network.named_buffers())}
    return {
        "values": {name: tensor.detach().clone() for name, tensor in tensors.items()},
        "versions": {name: tensor._version for name, tensor in tensors.items()},
        "requires_grad": {name: tensor.requires_grad for name, tensor in tensors.items()},
        "grads": {name: None if tensor.grad is None else tensor.grad.clone() for name, tensor in tensors.items()},
        "modes": {name: module.training for name, module in network.named_modules()},
        "attributes": {name: sorted(module.__dict__) for name, module in network.named_modules()},
        "hooks": {
            name: {kind: list(getattr(module, kind).items()) for kind in HOOKS}
            for name, module in network.named_modules()
        },
        "modules": [(name, id(module)) for name, module in network.named_modules()],
        "settings": (
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch.backends.cudnn.enabled,
            *process_of(),
            torch.random.get_rng_state().sum().item(),
        ),
    }


def process_of() -> list[Any]:
    """What torch decides for the process; its compiler, which loads late, has to be rid of our stand-in only."""
    names = [(vars(sys.modules[module]), name) for module, name, _ in process._NAMES if module in sys.modules]
    assert not any(isinstance(holder[name], process._StandIn) for holder, name in names)
    return [holder[name] for holder, name in names if name != "_stance"]


def assert_same(after: dict[str, Any], before: dict[str, Any]) -> None:
    for part in before:
        if part in ("values", "grads"):
            assert before[part].keys() == after[part].keys()
            for name, tensor in before[part].items():
                same = after[part][name]
                assert (tensor is None and same is None) or torch.equal(tensor, same), f"{part} of {name}"
        else:
            assert after[part] == before[part], part


def worn(make: Any) -> nn.Module:
    """A network in the middle of its life: mixed modes, some parameters frozen, gradients, hooks."""
    network = seeded(make)
    for place, module in enumerate(network.modules()):
        module.training = place % 2 == 0
    for place, parameter in enumerate(network.parameters()):
        parameter.requires_grad_(place % 3 != 0)
        if place % 3 == 1:
            parameter.grad = torch.full_like(parameter, 0.5)
    for module in network.modules():
        module.register_forward_hook(lambda module, args, output: None)
    return network
