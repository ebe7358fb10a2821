"""Whatever happens, the network is given back as it was."""

from __future__ import annotations

import copy
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import l2caf
import networks_for_tests as nets
from l2caf.errors import L2cafError
from l2caf.objectives.classes import ClassSpecific
from methods_for_tests import EVERY_METHOD, NETWORKS, PAIRS
from networks_for_tests import pixels, seeded
from state_for_tests import assert_same, state_of, worn


@pytest.mark.parametrize(("method", "network"), PAIRS)
def test_after_a_normal_run(method: str, network: str) -> None:
    make, size, _ = NETWORKS[network]
    model = worn(make)
    inputs = torch.rand(2, *size, requires_grad=True)
    before, pixels_before = state_of(model), inputs.detach().clone()
    EVERY_METHOD[method](model, inputs)
    assert_same(state_of(model), before)
    assert torch.equal(inputs.detach(), pixels_before)
    assert inputs.grad is None


class Trips(nn.Module):
    """Raises at its n-th run."""

    def __init__(self, error: BaseException, run: int) -> None:
        super().__init__()
        self.state = {"left": run}
        self.error = error

    def forward(self, x: Tensor) -> Tensor:
        self.state["left"] -= 1
        if self.state["left"] < 0:
            raise self.error
        return x


@pytest.mark.parametrize("error", [RuntimeError("half-way"), KeyboardInterrupt(), ZeroDivisionError()], ids=repr)
@pytest.mark.parametrize(
    ("method", "run"),
    [
        *product(["AttentionFilter", "AttentionFilter by descent"], [0, 1, 2, 3, 5]),
        *product(["GradCAM"], [0, 1, 2, 3]),  # it does not run more often
    ],
)
def test_after_an_error_in_a_module(method: str, run: int, error: BaseException) -> None:
    """In the survey, while recording, while probing, and in the search."""
    model = worn(lambda: nn.Sequential(*nets.curved()[:5], Trips(error, run), nets.curved()[5]))
    before = state_of(model)
    with pytest.raises(type(error)) as caught:
        EVERY_METHOD[method](model, pixels())
    assert caught.value is error
    assert_same(state_of(model), before)
    model[5].state["left"] = 10**6
    assert len(EVERY_METHOD[method](model, pixels())) == 2  # and it can be explained as if nothing had been


BAD_ARGUMENTS: dict[str, dict[str, Any]] = {
    "layer": {"layer": "nowhere"},
    "call": {"layer": "1", "call": 7},
    "class": {"objective": ClassSpecific(99)},
    "output": {"output": "logits"},
    "objective": {"objective": lambda output: output},
    "at": {"objective": l2caf.ClassOblivious(at="0")},
}


@pytest.mark.parametrize("case", BAD_ARGUMENTS)
def test_after_a_bad_argument(case: str) -> None:
    model = worn(nets.pooled)
    before = state_of(model)
    with pytest.raises(L2cafError):
        l2caf.explain(model, pixels(), **BAD_ARGUMENTS[case])
    assert_same(state_of(model), before)


def test_a_forward_of_the_owners_own_stays() -> None:
    network = seeded(nets.pooled)
    plain = l2caf.explain(network, pixels()).solution.loss
    calls: list[int] = []
    original = network[0].forward

    def counting(x: Tensor) -> Tensor:
        calls.append(1)
        return original(x) * 2

    network[0].forward = counting
    doubled = l2caf.explain(network, pixels())
    assert network[0].forward is counting
    assert calls
    torch.testing.assert_close(doubled.solution.loss, 4 * plain)


def test_hooks_of_the_owner_take_part() -> None:
    """A hook that changes what a module gives changes what is explained, before, at and after the layer."""
    network = seeded(nets.curved)
    reference = copy.deepcopy(network)
    reference[0].weight.data *= 2
    reference[0].bias.data *= 2
    reference[3].weight.data *= 0.5
    reference[3].bias.data *= 0.5
    network[0].register_forward_hook(lambda module, args, output: output * 2)
    network[3].register_forward_hook(lambda module, args, output: output * 0.5)
    seen: list[tuple[int, ...]] = []
    network[1].register_forward_hook(lambda module, args, output: seen.append(tuple(output.shape)))
    expected = l2caf.explain(reference, pixels())
    found = l2caf.explain(network, pixels())
    torch.testing.assert_close(found.weights, expected.weights, rtol=0, atol=1e-3)
    torch.testing.assert_close(found.solution.loss, expected.solution.loss, rtol=1e-3, atol=1e-6)
    assert seen
    assert set(seen) <= {(1, 8, 4, 4), (2, 8, 4, 4)}
    before = len(seen)
    network(pixels())
    assert len(seen) == before + 1


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_backward_hooks_of_the_owner_do_no_harm() -> None:
    network = seeded(nets.curved)
    expected = l2caf.explain(network, pixels()).weights
    for module in network:
        module.register_full_backward_hook(lambda module, slopes_in, slopes_out: None)
    torch.testing.assert_close(l2caf.explain(network, pixels()).weights, expected)


def test_a_training_step_goes_on_as_if_nothing_had_been() -> None:
    network, twin = seeded(nets.curved).train(), seeded(nets.curved).train()
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (network, twin)]
    for model, optimizer in zip((network, twin), optimizers, strict=True):
        for step in range(3):
            loss = model(pixels(seed=step)).square().sum()
            if model is network:
                l2caf.explain(model, pixels())
            loss.backward()
            if model is network:
                l2caf.explain(model, pixels(), objective=ClassSpecific(1))
            optimizer.step()
            optimizer.zero_grad()
    for ours, theirs in zip(network.parameters(), twin.parameters(), strict=True):
        assert torch.equal(ours, theirs)
