"""The judges themselves: what is planted wrong they must find, and what is right they must leave alone."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor, nn

import l2caf
from zoo.entry import Columns, first, picture, seeded, tokens
from zoo.hook import compare
from zoo.odd_inputs import Pooled, convolutions
from zoo.odd_positions import Prompted
from zoo.pixels import answer
from zoo.table import MOST_REFUSED

IMAGE = picture(2, 3, 64, 80)


def convolutional() -> nn.Module:
    return seeded(lambda: Pooled(convolutions(3, 8, 16, 16), 16))


def prompted() -> nn.Module:
    return seeded(lambda: Prompted(21))


def is_map(network: nn.Module, image: Tensor, layer: str, columns: Columns, grid: tuple[int, ...]) -> bool | None:
    return answer(network, image, layer=layer, index=0, columns=columns, grid=grid, path=("0",), axes=(2, 3)).is_map


def test_a_map_answers_to_its_pixels() -> None:
    assert is_map(convolutional(), IMAGE, "body", first, (8, 10))
    assert is_map(prompted(), picture(2, 3, 56, 56), "blocks.0", tokens(21), (14, 14))


@pytest.mark.parametrize(
    ("columns", "grid"),
    [
        (lambda x: x.flatten(2)[:, :, torch.randperm(80, generator=torch.Generator().manual_seed(1))], (8, 10)),
        (lambda x: x.transpose(2, 3).flatten(2), (8, 10)),
        (lambda x: x.flip(2).flatten(2), (8, 10)),
        (lambda x: x.roll(5, dims=3).flatten(2), (8, 10)),
        (first, (10, 8)),
        (first, (4, 20)),
        (lambda x: x.flatten(2).transpose(1, 2), (4, 4)),
    ],
    ids=["shuffled", "transposed", "mirrored", "rolled", "turned grid", "flat grid", "channels"],
)
def test_a_wrong_reading_of_a_map_does_not(columns: Columns, grid: tuple[int, ...]) -> None:
    assert is_map(convolutional(), IMAGE, "body", columns, grid) is False


@pytest.mark.parametrize(("prefix", "grid"), [(0, (7, 31)), (7, (14, 15)), (1, (12, 18)), (17, (10, 20))])
def test_prompts_read_as_patches_do_not(prefix: int, grid: tuple[int, ...]) -> None:
    assert is_map(prompted(), picture(2, 3, 56, 56), "blocks.0", tokens(prefix), grid) is False


def test_the_hook_confirms_a_true_loss_and_an_exact_filter() -> None:
    network = convolutional()
    solution = l2caf.explain(network, IMAGE).solved
    found = compare(network, IMAGE, layer="body", index=0, columns=first, solution=solution, select=None)
    assert found is not None
    assert not found.differs()
    assert not found.beaten().any()
    assert found.moves()


def test_the_hook_finds_a_false_loss_and_a_filter_that_is_not_the_best() -> None:
    network = convolutional()
    solution = l2caf.explain(network, IMAGE).solved
    judged = partial(compare, network, IMAGE, layer="body", index=0, columns=first, select=None)
    lied = judged(solution=replace(solution, loss=solution.loss * 0.9))
    assert lied is not None
    assert lied.differs()
    one = torch.zeros_like(solution.filter)
    one[:, 0, 0] = 1
    worse = judged(solution=replace(solution, filter=one))
    assert worse is not None
    assert worse.beaten().all()


def test_the_hook_finds_what_moves_nothing() -> None:
    class Deaf(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = convolutions(3, 8)
            self.head = nn.Linear(3, 5)

        def forward(self, x: Tensor) -> Tensor:
            self.body(x)
            return self.head(x.mean(dim=(2, 3)))

    network = seeded(Deaf)
    filters = torch.ones(2, 32, 40) / 32
    solution = replace(l2caf.explain(convolutional(), IMAGE).solved, filter=filters, loss=torch.zeros(2))
    found = compare(network, IMAGE, layer="body", index=0, columns=first, solution=solution, select=None)
    assert found is not None
    assert not found.moves()


def test_at_most_one_right_layer_in_twenty_may_be_refused() -> None:
    assert MOST_REFUSED == 0.05
