"""Many explanations in one process, several threads, and networks that come and go."""

from __future__ import annotations

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
import torch

import l2caf
import networks_for_tests as nets
from l2caf.objectives.classes import ClassSpecific
from l2caf.recording import borrow
from methods_for_tests import METHODS, SHORT_SEARCH
from networks_for_tests import pixels, seeded


def tensors_alive() -> int:
    return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())


OTHERS = ("AttentionFilter of the top 2", "GradCAM")


@pytest.mark.parametrize(
    "method", ["AttentionFilter", *(pytest.param(name, marks=pytest.mark.endurance) for name in OTHERS)]
)
def test_many_explanations_leave_nothing_behind(method: str) -> None:
    network = seeded(nets.pooled)
    inputs = pixels()
    process = psutil.Process()

    def explain(times: int) -> None:
        for _ in range(times):
            METHODS[method](network, inputs, output=lambda output: output)  # a new function every time

    explain(50)
    gc.collect()
    objects, tensors = len(gc.get_objects()), tensors_alive()
    growth = []
    for _ in range(3):
        memory = process.memory_info().rss
        explain(100)
        gc.collect()
        growth.append(process.memory_info().rss - memory)
    assert tensors_alive() <= tensors
    assert len(gc.get_objects()) - objects < 100
    assert min(growth) < 2 << 20  # an allocator that takes a page in between makes one of them large, a leak all
    assert all(not module._forward_hooks and "forward" not in module.__dict__ for module in network.modules())


@pytest.mark.parametrize("method", METHODS)
def test_a_network_that_is_let_go_is_gone(method: str) -> None:
    network = seeded(nets.pooled)
    heatmap = METHODS[method](network, pixels())
    alive = weakref.ref(network)
    del network
    gc.collect()
    assert alive() is None
    assert len(heatmap) == 2


def test_a_network_that_failed_is_gone_too() -> None:
    network = seeded(nets.pooled)
    with pytest.raises(l2caf.L2cafError):
        l2caf.explain(network, pixels(), layer="nowhere")
    alive = weakref.ref(network)
    del network
    gc.collect()
    assert alive() is None
    assert not borrow._loans


def test_a_heatmap_holds_no_more_than_its_maps() -> None:
    heatmap = l2caf.explain(seeded(nets.pooled), pixels(4))
    assert heatmap.weights.untyped_storage().nbytes() <= 4 * 64 * 8
    assert heatmap.weights.grad_fn is None
    assert heatmap.solution.filter.grad_fn is None
    assert heatmap.solution.loss.grad_fn is None


def test_threads_get_what_one_thread_gets() -> None:
    shared = seeded(nets.curved).train()
    own = [seeded(nets.curved, seed) for seed in range(4)]
    work = [(network, pixels(seed=seed), objective) for seed, network in enumerate([shared, *own, shared])
            for objective in (None, ClassSpecific(1))]  # fmt: skip

    def explain(place: int) -> torch.Tensor:
        network, inputs, objective = work[place % len(work)]
        return l2caf.explain(network, inputs, objective=objective, solver=SHORT_SEARCH).weights

    expected = [explain(place) for place in range(len(work))]
    barrier = threading.Barrier(4)

    def explain_beside_others(place: int) -> torch.Tensor:
        if place < 4:
            barrier.wait(timeout=300)
        return explain(place)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(explain_beside_others, range(4 * len(work))))
    for place, weights in enumerate(found):
        assert torch.equal(weights, expected[place % len(work)])
    assert all(module.training for module in shared.modules())
    assert all("forward" not in module.__dict__ for module in shared.modules())
