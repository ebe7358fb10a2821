"""The modules of a network are those of torch's own list, and a look tells what has changed among them."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
import torch
from torch import nn

from l2caf.recording.census import _known, look_through, modules_of
from networks_for_tests import pooled, seeded


def block() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU())


def tree() -> nn.Module:
    return nn.Sequential(block(), nn.Sequential(), block(), nn.Linear(3, 2)).eval()


def shared() -> nn.Module:
    network, relu = tree(), nn.ReLU()
    network[0][1] = network[2][1] = relu  # type: ignore[index, operator]
    network.add_module("again", network[0])  # type: ignore[index]
    return network.eval()


def with_an_empty_place() -> nn.Module:
    network = tree()
    network.register_module("nothing", None)
    return network


def round_and_round() -> nn.Module:
    network = tree()
    network[0].add_module("up", network)  # type: ignore[index, operator]
    return network


NETWORKS: list[Callable[[], nn.Module]] = [tree, shared, with_an_empty_place, round_and_round]


@pytest.mark.parametrize("make", NETWORKS)
def test_the_modules_are_those_that_torch_lists(make: Callable[[], nn.Module]) -> None:
    network = make()
    for _ in range(3):
        look = look_through(network)
        assert len(look.modules) == len(set(look.modules))
        assert set(look.modules) == set(network.modules())
        assert look.modules == modules_of(network)
        assert all(own is module.__dict__ for own, module in zip(look.own, look.modules, strict=True))
        assert not look.some_special


@pytest.mark.parametrize("make", NETWORKS[:3])
def test_nothing_has_changed(make: Callable[[], nn.Module]) -> None:
    network = make()
    first = look_through(network)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(1.0)
    assert look_through(network).census is first.census


def moved(network: nn.Module) -> None:
    """From one that is then empty to one that was: the same modules under the same names in the same order."""
    first, second = network.get_submodule("0"), network.get_submodule("1")
    for name in ("0", "1"):
        second.add_module(name, first.get_submodule(name))
    for name in ("0", "1"):
        del first._modules[name]


def renamed(network: nn.Module) -> None:
    part = network.get_submodule("0")
    part._modules = {"zero" if name == "0" else name: one for name, one in part._modules.items()}


def exchanged(network: nn.Module) -> None:
    one, other = network.get_submodule("0"), network.get_submodule("2")
    one._modules["0"], other._modules["0"] = other._modules["0"], one._modules["0"]


def of_another_class(network: nn.Module) -> None:
    network.get_submodule("0.1").__class__ = nn.SiLU


def emptied(network: nn.Module) -> None:
    network.get_submodule("0")._modules["1"] = None


CHANGES: list[Callable[[nn.Module], None]] = [
    moved,
    renamed,
    exchanged,
    of_another_class,
    emptied,
    lambda network: network.add_module("more", nn.ReLU()),
    lambda network: setattr(network.get_submodule("0"), "1", nn.ReLU()),
    lambda network: network.get_submodule("0").add_module("up", network),
]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("make", NETWORKS[:3])
def test_a_change_gives_another_census(make: Callable[[], nn.Module], change: Callable[[nn.Module], None]) -> None:
    network = make()
    first = look_through(network)
    change(network)
    again = look_through(network)
    assert again.census is not first.census
    assert set(again.modules) == set(network.modules())
    if change is not CHANGES[-1]:
        assert look_through(network).census is again.census


def test_a_module_in_the_place_of_one_that_is_gone() -> None:
    """Whose id it may have."""
    network = tree()
    for _ in range(200):
        census = look_through(network).census
        name = network.get_submodule("0")
        del name._modules["1"]
        name._modules["1"] = nn.ReLU().eval()
        assert look_through(network).census is not census


SPECIAL: list[Callable[[nn.Module], object]] = [
    lambda network: network.get_submodule("0.1").train(),
    lambda network: network.get_submodule("0.1").register_forward_hook(lambda *given: None),
    lambda network: network.get_submodule("0.1").register_forward_pre_hook(lambda *given: None),
    lambda network: network.get_submodule("0.1").register_full_backward_hook(lambda *given: None),
    lambda network: network.get_submodule("0.1").register_full_backward_pre_hook(lambda *given: None),
    lambda network: network.get_submodule("0.1").compile(backend="eager"),
]


@pytest.mark.parametrize("make_special", SPECIAL)
def test_what_is_not_as_a_run_needs_it_is_seen(make_special: Callable[[nn.Module], object]) -> None:
    network = tree()
    assert not look_through(network).some_special
    make_special(network)
    assert look_through(network).some_special


def test_no_network_is_kept_alive() -> None:
    gc.collect()
    before = len(_known)
    for seed in range(20):
        look_through(seeded(pooled, seed))
    gc.collect()
    assert len(_known) <= before
