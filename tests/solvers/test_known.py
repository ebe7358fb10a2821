"""What is answered at once is what the solver finds and says of it; what is not clear is left to the solver."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from l2caf.deadline import time_limit
from l2caf.filters import UnitL1, UnitL2
from l2caf.heads.planned import PlannedHead
from l2caf.methods.attention_filter import pose
from l2caf.objectives.classes import ClassSpecific
from l2caf.objectives.objective import Objective
from l2caf.objectives.output import ClassOblivious, Similarity
from l2caf.objectives.prediction import Prediction
from l2caf.recorder import record
from l2caf.solvers.auto import Auto
from l2caf.solvers.known import at_once
from networks_for_tests import pixels, pooled, seeded

ASKED: dict[str, Objective] = {
    "oblivious": ClassOblivious(),
    "prediction": Prediction(),
    "best class": ClassSpecific(),
    "three classes": ClassSpecific(top=3),
    "as published": ClassSpecific(classes=[0, 2], published=True),
    "a class per sample": ClassSpecific(labels=[1, 0, 2]),
    "similar": Similarity(torch.arange(5.0)),
}


def wide() -> nn.Module:
    """With so many outputs and positions that a few products are taken in place of eigenvalues."""
    mean = nn.AdaptiveAvgPool2d(1)
    return nn.Sequential(nn.Conv2d(3, 64, 4, stride=4), nn.ReLU(), mean, nn.Flatten(), nn.Linear(64, 40))


def planned(inputs: Tensor, network: nn.Module | None = None) -> PlannedHead:
    network = network or seeded(pooled)
    record(network, pixels(len(inputs), seed=9))
    head = record(network, inputs).head
    assert isinstance(head, PlannedHead)
    return head


@pytest.mark.parametrize("make", [pooled, wide])
@pytest.mark.parametrize("asked", ASKED)
def test_the_solver_finds_and_says_the_same(asked: str, make: Callable[[], nn.Module]) -> None:
    head = planned(pixels(3), seeded(make))
    objective = Similarity(torch.arange(float(head.output.shape[1]))) if asked == "similar" else ASKED[asked]
    problem, losses = pose(head, UnitL2(), objective)
    found = at_once(problem, several=losses.several)
    expected = Auto().solve(problem, several=losses.several)
    assert found == expected  # numbers, outcomes, solver, reason, endpoint


@pytest.mark.parametrize("asked", [name for name in ASKED if name != "a class per sample"])
def test_a_batch_gives_what_its_samples_give(asked: str) -> None:
    inputs = pixels(3)
    whole, losses = pose(planned(inputs), UnitL2(), ASKED[asked])
    together = at_once(whole, several=losses.several)
    assert together is not None
    for sample in range(3):
        alone, _ = pose(planned(inputs[sample : sample + 1]), UnitL2(), ASKED[asked])
        found = at_once(alone, several=losses.several)
        assert found is not None
        torch.testing.assert_close(found.filter, together.filter[sample : sample + 1], rtol=0, atol=1e-6)
        torch.testing.assert_close(found.loss, together.loss[sample : sample + 1], rtol=1e-4, atol=1e-6)


def with_nan() -> Tensor:
    inputs = pixels(3)
    inputs[1, 0, 4, 4] = torch.nan
    return inputs


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("case", ["one sample is grey", "one sample is not finite"])
def test_what_is_not_clear_is_left_to_the_solver(case: str, asked: str) -> None:
    inputs = with_nan() if case == "one sample is not finite" else pixels(3)
    if case == "one sample is grey":
        inputs[1] = 0.5
    problem, losses = pose(planned(inputs), UnitL2(), ASKED[asked])
    assert at_once(problem, several=losses.several) is None


def test_what_cannot_be_answered_in_closed_form_is_left_to_the_solver() -> None:
    head = planned(pixels(3))
    assert at_once(pose(head, UnitL1(), ClassOblivious())[0], several=False) is None
    assert at_once(pose(head, UnitL2(), Similarity(torch.ones(5), cosine=True))[0], several=False) is None
    assert at_once(pose(head, UnitL2(), ClassSpecific(top=2))[0], several=False) is None  # the solver says why
    with time_limit(60):  # the best filters so far are to be kept
        assert at_once(pose(head, UnitL2(), ClassOblivious())[0], several=False) is None
    recorded = head.in_full()
    assert at_once(pose(recorded, UnitL2(), ClassOblivious())[0], several=False) is None
