"""What a second call costs, counted: borrows, runs of the network, and calls of our own functions."""

from __future__ import annotations

import gc
import sys
import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import nn

import l2caf
import networks_for_tests as nets
from l2caf.objectives.classes import ClassSpecific
from l2caf.recording import borrow, knowledge
from networks_for_tests import pixels, seeded

HOME = str(Path(l2caf.__file__).parent)


def embedded() -> nn.Module:
    return l2caf.load("efficientnet_lite0").network


NETWORKS: dict[str, tuple[Callable[[], nn.Module], int]] = {"small": (nets.pooled, 32), "embedded": (embedded, 128)}
ASKED: dict[str, dict[str, Any]] = {"oblivious": {}, "five classes": {"objective": ClassSpecific(top=5)}}


def calls_of(work: Callable[[], object]) -> Counter[str]:
    """How often each function of the package was called."""
    found: Counter[str] = Counter()

    def profile(frame: FrameType, event: str, arg: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(HOME):
            found[f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}"] += 1

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_second_call(name: str, asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, side = NETWORKS[name]
    network, inputs = seeded(make), pixels(1, size=(side, side))
    l2caf.explain(network, inputs, **ASKED[asked])
    runs: list[int] = []
    borrows: list[int] = []
    counting = network.register_forward_hook(lambda module, args, output: runs.append(1))
    taken = borrow._taken

    def counted(network: nn.Module) -> borrow.Loan:
        loan = taken(network)
        if loan.depth == 1:
            borrows.append(1)
        return loan

    l2caf.explain(network, inputs, **ASKED[asked])  # the hook is new
    runs.clear()
    monkeypatch.setattr(borrow, "_taken", counted)
    l2caf.explain(network, pixels(1, size=(side, side), seed=1), **ASKED[asked])
    assert len(borrows) == 1
    assert len(runs) == 1
    counting.remove()  # hooks of the owner's cost calls of their own
    l2caf.explain(network, inputs, **ASKED[asked])
    found = calls_of(lambda: l2caf.explain(network, pixels(1, size=(side, side), seed=1), **ASKED[asked]))
    assert found.total() - found["test_cost.counted"] <= 400, found.most_common(8)


def test_networks_that_were_explained_and_dropped_leave_nothing() -> None:
    def alive() -> tuple[int, int]:
        gc.collect()
        things = gc.get_objects()
        return (
            sum(issubclass(type(thing), nn.Module) for thing in things),
            sum(issubclass(type(thing), torch.Tensor) for thing in things),
        )

    def some(number: int) -> list[weakref.ref[nn.Module]]:
        gone = []
        for seed in range(number):
            network = seeded(nets.pooled, seed)
            if seed % 3 == 1:
                nn.utils.parametrizations.weight_norm(network[4])
            if seed % 3 == 2:  # a patch that refers to the network
                network.forward = lambda x, network=network: nn.Sequential.forward(network, x)
            l2caf.explain(network, pixels(1))
            l2caf.explain(network, pixels(1, seed=1))
            gone.append(weakref.ref(network))
        return gone

    some(6)
    before, known = alive(), len(knowledge._networks)
    gone = some(300)
    after = alive()
    assert not any(network() for network in gone)
    assert after == before
    assert len(knowledge._networks) <= known
    assert not borrow._loans
