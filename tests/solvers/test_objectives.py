"""The objectives against the paper's formulas, and through to the maps."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import torch
from torch import Tensor

import l2caf
import networks_for_tests as nets
from l2caf.errors import ClassError, InputError, LayerError, OutputError
from l2caf.methods.attention_filter import as_objective
from l2caf.objectives.classes import ClassSpecific
from l2caf.objectives.objective import Objective
from l2caf.objectives.output import ClassOblivious, Similarity
from l2caf.recording.replay import Replay
from networks_for_tests import pixels, seeded


def papers(scores: Tensor, chosen: int) -> Tensor:
    """Eq. 2: -FT_c + sum over i != c of FT_i."""
    return scores.sum(dim=1) - 2 * scores[:, chosen]


@pytest.mark.parametrize("chosen", [0, 3])
def test_class_specific_is_the_papers_formula_on_centred_logits(chosen: int) -> None:
    untouched, filtered = torch.randn(2, 4, 7)
    (loss,) = ClassSpecific(chosen).losses(untouched).losses
    torch.testing.assert_close(loss(filtered), papers(filtered - filtered.mean(dim=1, keepdim=True), chosen))
    shifted = filtered + torch.randn(4, 1)
    torch.testing.assert_close(loss(shifted), loss(filtered), rtol=0, atol=1e-5)  # as softmax, it does not notice


def test_published_form() -> None:
    untouched, filtered = torch.randn(2, 4, 7)
    asked = ClassSpecific(2, published=True).losses(untouched)
    torch.testing.assert_close(asked.losses[0](filtered), papers(filtered, 2))
    assert not asked.signed


def test_class_oblivious() -> None:
    untouched, filtered = torch.randn(2, 4, 3, 5)
    (loss,) = ClassOblivious().losses(untouched).losses
    expected = torch.stack([(a - b).flatten().dot((a - b).flatten()) for a, b in zip(untouched, filtered, strict=True)])
    torch.testing.assert_close(loss(filtered), expected)
    assert torch.equal(loss(untouched), torch.zeros(4))


def test_top_is_each_samples_own() -> None:
    scores = torch.tensor([[1.0, 3, 2], [9, 7, 8]])
    assert ClassSpecific(top=2).choose(scores).tolist() == [[1, 2], [0, 2]]
    assert ClassSpecific().choose(scores).tolist() == [[1], [0]]
    assert ClassSpecific(labels=[2, 1]).choose(scores).tolist() == [[2], [1]]
    assert ClassSpecific(classes=[0, 2]).choose(scores).tolist() == [[0, 2], [0, 2]]


@pytest.mark.parametrize(
    ("classes", "several"),
    [
        (1, False),
        (numpy.int64(1), False),
        (torch.tensor(1), False),
        ([1], True),
        ((1, 2), True),
        (range(2), True),
        (torch.tensor([1, 2]), True),
        (numpy.array([1, 2]), True),
    ],
    ids=repr,
)
def test_classes_in_any_form(classes: Any, several: bool) -> None:
    asked = ClassSpecific(classes).losses(torch.randn(3, 5))
    assert asked.several is several
    maps = l2caf.explain(seeded(nets.pooled), pixels(), objective=ClassSpecific(classes=classes)).maps
    assert maps.shape == ((2, len(asked.losses), 32, 32) if several else (2, 32, 32))


@pytest.mark.parametrize(
    ("objective", "match"),
    [
        (ClassSpecific(5), "Class 5 is out of range: the network has 5 classes, 0 to 4"),
        (ClassSpecific(-1), "Class -1 is out of range"),
        (ClassSpecific(classes=[0, 7]), "Class 7 is out of range"),
        (ClassSpecific(labels=[0, 9]), "Class 9 is out of range"),
        (ClassSpecific(labels=[0]), "labels names 1 classes for 2 inputs"),
        (ClassSpecific(top=0), "The best 0 classes are asked for, but the network has 5: give 1 to 5"),
        (ClassSpecific(top=6), "The best 6 classes are asked for"),
        (ClassSpecific([]), "No class is given"),
        (ClassSpecific(1.5), "names no class"),
        (ClassSpecific("cat"), "names no class"),
    ],
    ids=repr,
)
def test_classes_that_are_not_there(objective: Objective, match: str) -> None:
    with pytest.raises(ClassError, match=match):
        l2caf.explain(seeded(nets.pooled), pixels(), objective=objective)


def test_two_ways_to_name_classes_at_once() -> None:
    with pytest.raises(InputError, match="one of classes, labels, top"):
        ClassSpecific(1, top=2)


def test_several_maps_are_the_single_maps() -> None:
    network = seeded(nets.pooled)
    together = l2caf.explain(network, pixels(), objective=ClassSpecific([4, 0, 2]))
    assert together.classes.tolist() == [[4, 0, 2]] * 2
    assert together.solution.loss.shape == (2, 3)
    assert together.solution.outcome == [["exact"] * 3] * 2
    for place, chosen in enumerate((4, 0, 2)):
        alone = l2caf.explain(network, pixels(), objective=ClassSpecific(chosen))
        torch.testing.assert_close(together.maps[:, place], alone.maps)
        torch.testing.assert_close(together.signed[:, place], alone.signed)


def test_top_maps_are_the_maps_of_those_classes() -> None:
    network = seeded(nets.curved)
    top = l2caf.explain(network, pixels(), objective=ClassSpecific(top=2))
    best = network(pixels()).topk(2, dim=1).indices
    assert torch.equal(top.classes, best)
    second = l2caf.explain(network, pixels(), objective=ClassSpecific(labels=best[:, 1]))
    torch.testing.assert_close(top.maps[:, 1], second.maps, rtol=0, atol=1e-3)


def test_similarity_by_dot_product_is_exact_and_by_hand() -> None:
    network = seeded(nets.pooled)
    to = torch.randn(nets.CLASSES)
    heatmap = l2caf.explain(network, pixels(), objective=Similarity(to))
    assert heatmap.solution.outcome == ["exact", "exact"]
    features = Replay(network, pixels()).features
    pull = torch.einsum("m,mc,bchw->bhw", to, network[4].weight.detach(), features)
    expected = pull / pull.flatten(1).norm(dim=1).reshape(-1, 1, 1)
    torch.testing.assert_close(heatmap.weights, expected, rtol=0, atol=1e-5)
    each = l2caf.explain(network, pixels(), objective=Similarity(torch.stack([to, to])))
    torch.testing.assert_close(each.weights, heatmap.weights)


def test_similarity_by_cosine_beats_the_dot_products_filter() -> None:
    network = seeded(nets.pooled)
    to = network(pixels(1, seed=9)).detach()[0]
    cosine = l2caf.explain(network, pixels(), objective=Similarity(to, cosine=True))
    dot = l2caf.explain(network, pixels(), objective=Similarity(to))
    replay = Replay(network, pixels())

    def similarity(weights: Tensor) -> Tensor:
        return torch.cosine_similarity(replay.filtered(weights.flatten(1)), to[None], dim=1)

    assert (similarity(cosine.weights) >= similarity(dot.weights) - 1e-4).all()
    torch.testing.assert_close(cosine.solution.loss, -similarity(cosine.weights).double(), rtol=0, atol=1e-4)


@pytest.mark.parametrize("shape", [(4,), (3, 5), (2, 4), (1, 2, 5)], ids=str)
def test_similarity_to_an_embedding_of_another_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(OutputError, match="give one of the same length"):
        l2caf.explain(seeded(nets.pooled), pixels(), objective=Similarity(torch.ones(shape)))


def test_any_function_of_the_output() -> None:
    network = seeded(nets.pooled)
    heatmap = l2caf.explain(network, pixels(), objective=lambda output: -output[:, 3])
    gradient = Replay(network, pixels())
    leaf = torch.ones(2, 64, requires_grad=True)
    (slope,) = torch.autograd.grad(gradient.filtered(leaf)[:, 3].sum(), leaf)
    expected = slope / slope.norm(dim=1, keepdim=True)
    assert torch.cosine_similarity(heatmap.weights.flatten(1), expected).min() > 0.999


@pytest.mark.parametrize("function", [lambda output: output, lambda output: output.sum(), lambda output: 1.0])
def test_a_function_that_gives_no_number_a_sample(function: Any) -> None:
    with pytest.raises(InputError, match="must give one number per sample"):
        l2caf.explain(seeded(nets.pooled), pixels(), objective=function)


def test_what_is_no_objective() -> None:
    with pytest.raises(InputError, match="The objective is a int"):
        as_objective(3)


def test_a_class_of_an_output_that_is_no_row_of_scores() -> None:
    with pytest.raises(OutputError, match="needs one row of scores"):
        l2caf.explain(seeded(nets.UNet), pixels(), objective=ClassSpecific(0))


def test_keeping_a_later_layer_instead_of_the_output() -> None:
    network = seeded(nets.curved)
    heatmap = l2caf.explain(network, pixels(), objective=ClassOblivious(at="3"))
    assert heatmap.solution.endpoint == "3"
    assert heatmap.solution.outcome == ["exact", "exact"]
    replay = Replay(network, pixels())
    call = replay.later_call("3")
    kept = replay.filtered(torch.ones(2, 16), until=call)
    found = replay.filtered(heatmap.weights.flatten(1), until=call)
    torch.testing.assert_close((kept - found).square().sum(dim=1).double(), heatmap.solution.loss, rtol=1e-4, atol=1e-7)
    beyond = l2caf.explain(network, pixels(), objective=ClassOblivious(at="4"))
    assert beyond.solution.endpoint == "4"
    assert beyond.solution.solver == "Riemannian"


def test_keeping_a_large_later_layer() -> None:
    heatmap = l2caf.explain(seeded(nets.UNet), pixels(), layer="bottom", objective=ClassOblivious(at="up1"))
    assert heatmap.solution.endpoint == "up1"
    assert all(outcome in ("converged", "step_limit", "exact") for outcome in heatmap.solution.outcome)


@pytest.mark.parametrize("at", ["0", "nowhere"])
def test_keeping_what_does_not_come_later(at: str) -> None:
    with pytest.raises((LayerError, l2caf.errors.NetworkError), match=at):
        l2caf.explain(seeded(nets.pooled), pixels(), objective=ClassOblivious(at=at))
