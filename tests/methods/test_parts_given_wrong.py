"""Classes in place of objects, words of the command line, and parts of the answer that are none: a sentence each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import l2caf
import networks_for_tests as nets
from l2caf.errors import InputError, OutputError, WeightsError
from l2caf.networks.weights import load_weights
from l2caf.solvers.auto import Auto
from l2caf.solvers.gradient_descent import GradientDescent
from networks_for_tests import pixels, seeded


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"filter": "l1"}, r"The filter is 'l1': give an object, such as UnitL1\(\)"),
        ({"filter": "L2"}, r"The filter is 'L2': give an object, such as UnitL2\(\)"),
        ({"filter": l2caf.UnitL1}, r"The filter is the class UnitL1: give an object, UnitL1\(\)"),
        ({"filter": 3}, r"The filter is a int: give an object, such as UnitL2\(\)"),
        ({"solver": "exact"}, r"The solver is 'exact': give an object, such as Exact\(\)"),
        ({"solver": GradientDescent}, r"The solver is the class GradientDescent: give an object"),
        ({"solver": Auto}, r"The solver is the class Auto: give an object, Auto\(\)"),
        ({"objective": l2caf.ClassSpecific}, r"The objective is the class ClassSpecific: give an object"),
        ({"objective": "class"}, "The objective is a str: give an objective or a function"),
    ],
    ids=str,
)
def test_a_part_that_is_none(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        l2caf.explain(seeded(nets.pooled), pixels(), **given)


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = seeded(nets.pooled)

    def forward(self, pictures: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"scores": self.inner(pictures)}


@pytest.mark.parametrize("select", [[0], {"a": 1}, {1}, True, slice(0, 1), torch.tensor(0), ["scores"]], ids=repr)
@pytest.mark.parametrize("make", [Named, nets.pooled])
def test_a_part_of_the_answer_that_is_no_key(make: Any, select: Any) -> None:
    with pytest.raises(OutputError, match="give a key, an index, or a function") as caught:
        l2caf.explain(seeded(make), pixels(), output=select)
    assert caught.value.field == "output"


def _coo(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_sparse()


KINDS = {
    "sparse": (_coo, r"4\.weight of weights\.pth is sparse \(torch\.sparse_coo\): save it dense"),
    "meta": (lambda tensor: tensor.to("meta"), r"4\.weight of weights\.pth has a shape and no values"),
    "complex": (lambda tensor: tensor.to(torch.complex64), "is complex"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_hold_no_ordinary_values(tmp_path: Path, kind: str) -> None:
    network = seeded(nets.pooled)
    changed, said = KINDS[kind]
    weights = {name: changed(value) if value.ndim == 2 else value for name, value in network.state_dict().items()}
    torch.save(weights, tmp_path / "weights.pth")
    before = {name: value.clone() for name, value in network.state_dict().items()}
    with pytest.raises(WeightsError, match=said):
        load_weights(network, tmp_path / "weights.pth")
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
