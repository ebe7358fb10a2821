"""Taking a network's learning away, from the top layer down, while its signals stay alive.

A layer is a module with a weight matrix of its own, and the modules after it that only scale or shift (a norm
is one). The order is that of a run, seen by watching one; no class of module is asked for.

How a layer is drawn anew, so that it knows nothing of what was learnt and yet neither silences nor overflows
what follows: by the module's own `reset_parameters`, where it has one, with each random tensor then brought
to the root mean square of the trained one; else from a normal distribution with the trained tensor's mean and
deviation. Batch norms start again at scale 1 and shift 0, and their statistics are measured anew in one run
over the images: kept as they were, they would normalise signals that are no longer there, and at 0 and 1 a
deep network would fade out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..errors import InputError, NetworkError
from ..recording.borrow import Call, borrowed, forwards_replaced, unwrap, watching

STAGES = 12


@dataclass(frozen=True)
class WeightedLayer:
    """A module with a weight matrix, by name, with all modules that are drawn anew along with it."""

    name: str
    modules: tuple[str, ...]


@dataclass(frozen=True)
class Stage:
    """One step down the cascade: the layers that it adds, and how many are random from then on."""

    adds: tuple[WeightedLayer, ...]
    depth: int

    @property
    def name(self) -> str:
        """The lowest layer that is random."""
        return self.adds[-1].name or "the network's own"


def cascade(network: nn.Module, inputs: Tensor, *, stages: int | None = STAGES) -> tuple[Stage, ...]:
    """Plan the way from the logits layer alone (first stage) to all layers (last), in even steps.

    `stages=None` makes every layer a stage of its own.
    """
    if stages is not None and stages < 2:
        raise InputError(f"{stages} stages are too few: the logits layer and all layers make 2.", field="stages")
    layers = layers_from_the_top(network, inputs)
    count = len(layers)
    steps = count if stages is None else min(stages, count)
    depths = sorted({1 + round(step * (count - 1) / max(1, steps - 1)) for step in range(steps)})
    starts = [0, *depths[:-1]]
    return tuple(Stage(tuple(layers[start:depth]), depth) for start, depth in zip(starts, depths, strict=True))


def layers_from_the_top(network: nn.Module, inputs: Tensor) -> list[WeightedLayer]:
    """The layers of a network in the reverse of the order in which they last ran."""
    network = unwrap(network)
    started = _started(network, inputs[:1])
    modules = dict(network.named_modules())
    moments: dict[str, int] = {}
    for name, module in modules.items():
        # What is not called itself may still be used by its parent, as the last matrix of an attention is.
        user = module if module in started else modules[name.rpartition(".")[0]]
        if user in started and _own(module):
            moments[name] = started[user]
    layers: list[list[str]] = []
    for name in sorted(moments, key=lambda name: moments[name]):
        if not layers or any(_is_matrix(parameter) for parameter in _own(modules[name])):
            layers.append([])
        layers[-1].append(name)
    if not layers:
        raise NetworkError("This network has no weights, so there is nothing to randomise: give a trained one.")
    return [WeightedLayer(layer[0], tuple(layer)) for layer in reversed(layers)]


def randomize(network: nn.Module, layers: Iterable[WeightedLayer], *, first: int, seed: int) -> list[nn.Module]:
    """Draw layers anew, in place, and return their modules; `first` is the first one's number from the top.

    A layer's draw depends on the seed and on its number alone, not on how the cascade is cut into stages.
    torch's own random state is as before.
    """
    touched = []
    devices = {parameter.device for parameter in network.parameters() if parameter.device.type == "cuda"}
    with torch.random.fork_rng(devices=list(devices)), torch.no_grad():
        for number, layer in enumerate(layers, start=first):
            torch.manual_seed(seed * 1_000_003 + number)
            for name in layer.modules:
                module = network.get_submodule(name)
                _redraw(module)
                touched.append(module)
    return touched


def _started(network: nn.Module, inputs: Tensor) -> dict[nn.Module, int]:
    """When each module was last called."""
    started: dict[nn.Module, int] = {}
    clock = itertools.count()

    def called(call: Call) -> None:
        started[call.module] = next(clock)

    with borrowed(network) as loan, forwards_replaced(watching(loan.modules, called=called)), torch.no_grad():
        network(inputs)
    return started


def _redraw(module: nn.Module) -> None:
    own = [parameter for parameter in _own(module) if parameter.is_floating_point()]
    trained = [parameter.clone() for parameter in own]
    was_reset = _reset(module)
    for parameter, before in zip(own, trained, strict=True):
        if was_reset and not torch.equal(parameter, before):
            _rescale(parameter, before)
        elif not was_reset or _is_matrix(parameter):
            # Also where a reset wrote into something else, as it does under a parametrisation.
            spread = before.float().std(correction=0)
            parameter.copy_(torch.randn_like(parameter, dtype=torch.float32) * spread + before.float().mean())


def _reset(module: nn.Module) -> bool:
    """Call the module's own reset, if it has one; its children stay as they are."""
    reset = getattr(module, "reset_parameters", None)
    if not callable(reset):
        return False
    own = {id(parameter) for parameter in _own(module)}
    others = [(parameter, parameter.clone()) for parameter in module.parameters() if id(parameter) not in own]
    try:
        reset()
    except Exception:  # noqa: BLE001 - somebody's reset may want arguments or fail: there is another way
        return False
    finally:
        for parameter, before in others:
            parameter.copy_(before)
    return True


def _rescale(parameter: Tensor, before: Tensor) -> None:
    """Give a random tensor the trained one's root mean square; constants, as in norms, are left alone."""
    new, old = (tensor.float().square().mean().sqrt() for tensor in (parameter, before))
    varies = bool(parameter.max() > parameter.min())
    if varies and bool(old > 0) and bool(old.isfinite()):
        parameter.mul_(old / new)


def _own(module: nn.Module) -> list[nn.Parameter]:
    return list(module.parameters(recurse=False))


def _is_matrix(parameter: Tensor) -> bool:
    return sum(size > 1 for size in parameter.shape) > 1
