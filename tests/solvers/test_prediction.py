"""`Prediction` against torch's own divergence, its Hessian, and SciPy's minima."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor, nn

import l2caf
import networks_for_tests as nets
from l2caf.errors import InputError, OutputError
from l2caf.methods.table import METHODS
from l2caf.objectives.prediction import Kind, Prediction
from l2caf.solution import Outcome


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def pooled(classes: int, *, scale: float = 30.0, channels: int = 12) -> nn.Sequential:
    """A convolution, a mean and a linear map whose scores differ by some units."""
    network = nn.Sequential(
        nn.Conv2d(3, channels, 3, stride=4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(channels, classes),
    )
    with torch.no_grad():
        network[4].weight.mul_(scale)
    return network


def jacobian(network: nn.Sequential, images: Tensor) -> np.ndarray[Any, Any]:
    """J = W A / n, written out in double precision: (B, m, n)."""
    with torch.no_grad():
        columns = network[:2](images).flatten(2).double()
    made: np.ndarray[Any, Any] = (network[4].weight.double() @ columns / columns.shape[2]).detach().numpy()
    return made


def form(network: nn.Sequential, images: Tensor, temperature: float, kind: Kind) -> np.ndarray[Any, Any]:
    """1/2 J^T (diag(p) - p p^T) J / T^2, as it stands in the book: (B, n, n)."""
    logits = network(images).detach().double() / temperature
    p = (logits.softmax(dim=1) if kind == "softmax" else logits.sigmoid()).numpy()
    found = []
    for own, matrix in zip(p, jacobian(network, images), strict=True):
        metric = np.diag(own) - np.outer(own, own) if kind == "softmax" else np.diag(own * (1 - own))
        found.append(matrix.T @ metric @ matrix / (2 * temperature**2))
    return np.stack(found)


def least_by_scipy(matrix: np.ndarray[Any, Any], starts: int) -> tuple[float, np.ndarray[Any, Any]]:
    """The least (1 - f)^T G (1 - f) over unit filters, by L-BFGS from many starts."""
    matrix = matrix / np.linalg.eigvalsh(matrix)[-1]
    generator = np.random.default_rng(0)

    def value(free: np.ndarray[Any, Any]) -> tuple[float, np.ndarray[Any, Any]]:
        length = np.linalg.norm(free)
        f = free / length
        pulled = -2 * matrix @ (1 - f)
        return float((1 - f) @ matrix @ (1 - f)), (pulled - f * (f @ pulled)) / length

    options = {"maxiter": 500, "ftol": 1e-13, "gtol": 1e-12}
    found = [
        minimize(value, generator.standard_normal(len(matrix)), jac=True, method="L-BFGS-B", options=options)
        for _ in range(starts)
    ]
    best = min(found, key=lambda one: one.fun)
    return float(best.fun), best.x / np.linalg.norm(best.x)


@pytest.mark.parametrize("kind", ["softmax", "sigmoid"])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_metric_is_the_second_order_of_the_divergence(kind: Kind, temperature: float) -> None:
    scores = 2 * torch.randn(3, 5, dtype=torch.float64)
    asked = Prediction(temperature, kind).losses(scores).losses[0]
    assert asked.approximation is not None
    assert asked.approximation.metric is not None
    metric = asked.approximation.metric
    rows = metric.push(torch.eye(5, dtype=torch.float64).expand(3, -1, -1)).mT  # S, column by column
    torch.testing.assert_close(metric.pull(torch.eye(5, dtype=torch.float64).expand(3, -1, -1)), rows)
    for sample in range(3):
        own = scores[sample]

        def divergence(found: Tensor, own: Tensor = own) -> Tensor:
            if kind == "softmax":
                log_p, log_q = (own / temperature).log_softmax(0), (found / temperature).log_softmax(0)
                return nn.functional.kl_div(log_q, log_p, log_target=True, reduction="sum")
            p, q = (own / temperature).sigmoid(), (found / temperature).sigmoid()
            return nn.functional.binary_cross_entropy(q, p, reduction="sum") - nn.functional.binary_cross_entropy(
                p, p, reduction="sum"
            )

        second = torch.autograd.functional.hessian(divergence, own)
        torch.testing.assert_close(
            rows[sample].mT @ rows[sample], second / 2, rtol=1e-9, atol=1e-10
        )  # torch adds 1e-12
        elsewhere = torch.linspace(-1, 2, 5, dtype=torch.float64)
        given = asked(elsewhere.expand(3, -1))[sample]
        torch.testing.assert_close(given, divergence(elsewhere), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("margin", [5.0, 21.0, 45.0, 200.0, 3000.0])
def test_metric_of_a_confident_prediction_loses_nothing(margin: float) -> None:
    """At 1 - 1e-9 and far beyond, where p rounds to 1: against whole-number shares of the other classes."""
    scores = torch.tensor([[margin, 0.0, -np.log(3.0), -np.log(6.0)]], dtype=torch.float64)
    approximation = Prediction(1.0).losses(scores).losses[0].approximation
    assert approximation is not None
    assert approximation.metric is not None
    value = torch.tensor([[2.0, 1.0, -1.0, 4.0]], dtype=torch.float64)
    shares, relative = np.array([6, 2, 1]) / 9, np.array([1.0, -1.0, 4.0]) - 2.0
    others = 1.5 * np.exp(-margin) / (1 + 1.5 * np.exp(-margin))
    expected = shares @ relative**2 - others * (shares @ relative) ** 2
    size = max(others / 2, 1e-30)
    found = float(approximation.metric.push(value).square().sum())
    assert found == pytest.approx(size * expected, rel=1e-12)


@pytest.mark.parametrize("kind", ["softmax", "sigmoid"])
@pytest.mark.parametrize(("classes", "temperature"), [(3, 1.0), (10, 2.0), (100, 1.0), (100, 4.0)])
def test_closed_form_is_never_beaten(classes: int, temperature: float, kind: Kind) -> None:
    network, images = pooled(classes), torch.rand(3, 3, 28, 28)
    found = l2caf.explain(network, images, objective=Prediction(temperature, kind)).solved
    assert found.outcome == [Outcome.EXACT] * 3
    assert found.solver == "Exact"
    assert "second order" in found.reason
    for weights, loss, matrix in zip(
        found.filter.flatten(1).double().numpy(), found.loss, form(network, images, temperature, kind), strict=True
    ):
        largest = np.linalg.eigvalsh(matrix)[-1]
        own = (1 - weights) @ matrix @ (1 - weights) / largest
        least, best = least_by_scipy(matrix, 20)
        assert own <= least * (1 + 1e-5) + 1e-9
        assert float(loss) == pytest.approx(own * largest, rel=1e-3)
        if np.linalg.norm(weights) > 0.999:
            assert abs(weights @ best) >= 0.9999


def test_prediction_of_one_in_a_thousand_million_doubts() -> None:
    network, images = pooled(20), torch.rand(2, 3, 28, 28)
    with torch.no_grad():
        network[4].bias[7] += 40 - (network(images).topk(2).values.diff().abs().amax())
        q = 1 - network(images).double().softmax(dim=1)[:, 7]
    assert bool((q < 1e-9).all())
    found = l2caf.explain(network, images, objective=Prediction(1.0)).solved
    assert found.outcome == [Outcome.EXACT] * 2
    # q's own size drops out: only the shares of the others count.
    logits = network(images).detach().double()
    logits[:, 7] = -torch.inf
    shares = logits.softmax(dim=1).numpy()
    for weights, share, matrix in zip(
        found.filter.flatten(1).double().numpy(), shares, jacobian(network, images), strict=True
    ):
        relative = matrix - matrix[7]
        _, best = least_by_scipy(relative.T @ np.diag(share) @ relative, 5)
        assert weights @ best >= 0.9999


def test_two_classes_are_the_map_of_the_one_against_the_other() -> None:
    network, images = pooled(2), torch.rand(4, 3, 28, 28)
    nn.init.zeros_(network[4].bias)
    ours = l2caf.explain(network, images, objective=Prediction())
    against = l2caf.explain(network, images, objective=l2caf.ClassSpecific())
    torch.testing.assert_close(ours.maps, against.maps, rtol=0, atol=1e-4)


def test_one_score_is_a_yes_or_no() -> None:
    network, images = pooled(1), torch.rand(2, 3, 28, 28)
    softmax, sigmoid = (l2caf.explain(network, images, objective=Prediction(kind=kind)) for kind in KINDS)
    assert torch.equal(softmax.maps, sigmoid.maps)
    assert softmax.solved.outcome == [Outcome.EXACT] * 2
    assert bool((softmax.maps.amax(dim=(1, 2)) == 1).all())


KINDS: tuple[Kind, ...] = ("softmax", "sigmoid")


@pytest.mark.parametrize("kind", KINDS)
def test_ten_thousand_classes(kind: Kind) -> None:
    network, images = pooled(10_000), torch.rand(2, 3, 28, 28)
    found = l2caf.explain(network, images, objective=Prediction(kind=kind)).solved
    assert found.outcome == [Outcome.EXACT] * 2
    for weights, matrix in zip(found.filter.flatten(1).double().numpy(), form(network, images, 2, kind), strict=True):
        assert weights @ least_by_scipy(matrix, 3)[1] >= 0.9999


def test_what_the_prediction_cannot_see_is_zero() -> None:
    """Two classes hear one direction g; where little of 1 lies along it, a short filter does, and the rest stays 0."""
    network, images = pooled(2), torch.rand(1, 3, 28, 28)
    nn.init.zeros_(network[4].bias)
    with torch.no_grad():
        mean = network[:2](images).mean(dim=(2, 3))[0]
        along = mean / mean.norm()
        network[4].weight -= 0.99 * (network[4].weight @ along)[:, None] * along  # what positions say nearly cancels
        matrix = jacobian(network, images)[0]
    heard = matrix[0] - matrix[1]
    expected = heard * heard.sum() / (heard @ heard)
    assert np.linalg.norm(expected) < 0.9, "this is no hard case"
    for solver in (l2caf.Auto(), l2caf.Exact()):
        found = l2caf.explain(network, images, objective=Prediction(), solver=solver).solved
        np.testing.assert_allclose(found.filter.flatten().numpy(), expected, atol=1e-5)
        assert expected.max() > 0.01
        assert found.outcome == [Outcome.EXACT]
        assert float(found.loss) == pytest.approx(0, abs=1e-9)
        assert "what the prediction cannot see is zero" in found.reason


def test_all_scores_equal() -> None:
    network, images = pooled(4), torch.rand(2, 3, 28, 28)
    for part in (network[4].weight, network[4].bias):
        nn.init.zeros_(part)
    found = l2caf.explain(network, images, objective=Prediction())
    assert all(one is Outcome.UNMOVED for one in found.solved.outcome)
    assert not bool(found.maps.any())
    with torch.no_grad():
        network[4].weight.add_(torch.randn(1, 12))  # every class says the same
    found = l2caf.explain(network, images, objective=Prediction())
    assert all(one is Outcome.UNIFORM for one in found.solved.outcome)
    assert not bool(found.maps.any())


def test_nan_stays_with_its_sample() -> None:
    network, images = pooled(40), torch.rand(3, 3, 28, 28)
    alone = l2caf.explain(network, images[:1], objective=Prediction()).maps
    images[1] = torch.nan
    found = l2caf.explain(network, images, objective=Prediction())
    assert found.solved.outcome == [Outcome.EXACT, Outcome.NON_FINITE, Outcome.EXACT]
    torch.testing.assert_close(found.maps[:1], alone, rtol=0, atol=1e-5)


def test_scores_that_are_probabilities_are_seen_as_such() -> None:
    network, images = pooled(6), torch.rand(2, 3, 28, 28)
    ends = nn.Sequential(*network, nn.Softmax(dim=1))
    given = network(images).detach()
    for scores in (given, given.softmax(dim=1)):
        asked = Prediction(2.0).losses(scores).losses[0]
        other = torch.randn(2, 6, generator=torch.Generator().manual_seed(1))
        filtered = other if scores is given else other.softmax(dim=1)
        expected = nn.functional.kl_div(
            (other.double() / 2).log_softmax(1), (given.double() / 2).softmax(1), reduction="none"
        ).sum(dim=1)
        torch.testing.assert_close(asked(filtered), expected, rtol=1e-5, atol=1e-7)
    by_probabilities = l2caf.explain(ends, images, objective=Prediction()).solved
    by_descent = l2caf.explain(network, images, objective=Prediction(), solver=l2caf.Riemannian()).solved
    assert by_probabilities.solver == "Riemannian"
    cosine = (by_probabilities.filter * by_descent.filter).sum(dim=(1, 2))
    assert bool((cosine > 0.999).all())


def test_a_curved_head_descends_on_the_divergence_itself() -> None:
    network, images = nets.curved(), torch.rand(2, 3, 32, 32)
    ours = l2caf.explain(network, images, objective=Prediction(1.0)).solved
    oblivious = l2caf.explain(network, images).solved
    replay = l2caf.record(network, images).head
    kept = network(images).detach().double().softmax(dim=1)

    def divergence(weights: Tensor) -> Tensor:
        found = replay.filtered(weights.flatten(1)).double()
        return nn.functional.kl_div(found.log_softmax(dim=1), kept, reduction="none").sum(dim=1)

    with torch.no_grad():
        torch.testing.assert_close(divergence(ours.filter), ours.loss.double(), rtol=1e-3, atol=1e-9)
        assert bool((ours.loss <= divergence(oblivious.filter) * (1 + 1e-3)).all())
        for seed in range(20):
            other = torch.randn(ours.filter.shape, generator=torch.Generator().manual_seed(seed))
            other /= other.flatten(1).norm(dim=1)[:, None, None]
            assert bool((ours.loss <= divergence(other)).all())


def test_a_head_that_does_not_feel_scale_says_so() -> None:
    network, images = nets.Normalised(), torch.rand(2, 3, 32, 32)
    found = l2caf.explain(network, images, objective=Prediction())
    assert found.solved.outcome == [Outcome.UNIFORM] * 2
    assert not bool(found.maps.any())
    assert "the uniform filter keeps the output already" in found.solved.reason


def test_a_second_call_gives_the_same_and_a_batch_what_its_samples_give() -> None:
    network, images = pooled(100), torch.rand(3, 3, 32, 32)
    first = l2caf.explain(network, images, objective=Prediction()).maps
    again = l2caf.explain(network, images, objective=Prediction()).maps
    alone = torch.cat([l2caf.explain(network, one[None], objective=Prediction()).maps for one in images])
    torch.testing.assert_close(first, again, rtol=0, atol=1e-5)
    torch.testing.assert_close(first, alone, rtol=0, atol=1e-5)


def test_embeddings_are_refused_by_name() -> None:
    with pytest.raises(InputError, match="ClassOblivious"):
        METHODS["l2caf-prediction"].make_for_embeddings()
    assert "l2caf-prediction" not in METHODS.for_embeddings()


@pytest.mark.parametrize("settings", [{"temperature": 0}, {"temperature": float("nan")}, {"kind": "tanh"}])
def test_bad_settings(settings: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(settings))):
        Prediction(**settings)


def test_a_map_of_scores_is_no_prediction() -> None:
    with pytest.raises(OutputError, match="ClassOblivious"):
        Prediction().losses(torch.zeros(2, 3, 4, 4))
