"""The map part of an exported graph against others' optima: SciPy's, eigenvalues, and explicit matrices."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from scipy.optimize import minimize
from scipy.special import softmax

from l2caf.exported.card import CONVERGED, Card
from l2caf.exporter.map_part import HeadArrays, with_maps
from l2caf.unit_sphere import by_eigenvalues

GRID, KINDS = (4, 5), ("output", "class", "prediction")


def session(weight: np.ndarray, bias: np.ndarray, *, products: int = 4, top: int = 3, maps: tuple[str, ...] = KINDS):
    """The map part behind a network that is nothing but its head: its images are its columns."""
    channels, positions = weight.shape[1], GRID[0] * GRID[1]
    nodes = [
        helper.make_node("Reshape", ["images", "shape"], ["columns"]),
        helper.make_node("ReduceMean", ["columns", "axis"], ["means"], keepdims=0),
        helper.make_node("Gemm", ["means", "weight", "bias"], ["output"], transB=1),
    ]
    constants = {
        "shape": np.array([0, channels, positions]), "axis": np.array([2]),
        "weight": weight.astype(np.float32), "bias": bias.astype(np.float32),
    }  # fmt: skip
    made = helper.make_model(
        helper.make_graph(
            nodes,
            "head",
            [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", channels, *GRID])],
            [
                helper.make_tensor_value_info("output", TensorProto.FLOAT, ["batch", len(weight)]),
                helper.make_tensor_value_info("columns", TensorProto.FLOAT, ["batch", channels, positions]),
            ],
            [numpy_helper.from_array(value, name) for name, value in constants.items()],
        ),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=10,
    )
    card = Card("head", "layer", GRID, GRID, maps=maps, top=top, products=products)
    model = with_maps(made, HeadArrays(constants["weight"], constants["bias"]), card)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return model, onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def asked(session: onnxruntime.InferenceSession, features: np.ndarray) -> dict[str, np.ndarray]:
    names = [one.name for one in session.get_outputs()]
    found = session.run(names, {"images": features.astype(np.float32).reshape(*features.shape[:2], *GRID)})
    return dict(zip(names, found, strict=True))


def head(outputs: int, channels: int, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return generator.standard_normal((outputs, channels)), generator.standard_normal(outputs)


def photographs(count: int, channels: int, *, seed: int = 1) -> np.ndarray:
    """Features as behind a rectifier: sparse, positive, strong in places."""
    generator = np.random.default_rng(seed)
    strength = generator.random((count, 1, GRID[0] * GRID[1])) ** 3
    return np.maximum(generator.standard_normal((count, channels, GRID[0] * GRID[1])) + 0.3, 0) * (strength + 0.02)


def by_scipy(jacobian: np.ndarray, metric: np.ndarray) -> np.ndarray:
    """The unit f with the least (J f - J 1)^T M (J f - J 1), by a general solver with a constraint."""
    quadratic = jacobian.T @ metric @ jacobian
    quadratic = quadratic / np.abs(quadratic).max()
    start = quadratic.sum(axis=0)
    found = minimize(
        lambda f: (f - 1) @ quadratic @ (f - 1),
        start / np.linalg.norm(start),
        jac=lambda f: 2 * quadratic @ (f - 1),
        constraints={"type": "eq", "fun": lambda f: f @ f - 1, "jac": lambda f: 2 * f},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 2000},
    )
    assert found.success
    return found.x


@pytest.mark.parametrize(("outputs", "channels"), [(30, 12), (12, 60)], ids=["by M", "by W and its transpose"])
def test_filters_are_the_optima_that_scipy_finds(outputs: int, channels: int) -> None:
    weight, bias = head(outputs, channels)
    features = photographs(4, channels)
    model, graph = session(weight, bias, products=12)
    assert any(one.name == "l2caf_M" for one in model.graph.initializer) == (channels < 2 * outputs)
    found = asked(graph, features)
    assert (found["output_residual"] < CONVERGED).all()
    assert (found["prediction_residual"] < CONVERGED).all()
    for sample, columns in enumerate(features):
        jacobian = weight @ columns / columns.shape[1]
        p = softmax((jacobian.sum(axis=1) + bias) / 2.0)
        for key, metric in (("output", np.eye(outputs)), ("prediction", np.diag(p) - np.outer(p, p))):
            np.testing.assert_allclose(found[f"{key}_map"][sample].ravel(), by_scipy(jacobian, metric), atol=2e-4)


def test_class_maps_are_the_slopes_of_centred_scores_best_class_first() -> None:
    weight, bias = head(9, 20)
    features = photographs(3, 20)
    found = asked(session(weight, bias)[1], features)
    for sample, columns in enumerate(features):
        jacobian = weight @ columns / columns.shape[1]
        best = np.argsort(-(jacobian.sum(axis=1) + bias))[:3]
        assert found["classes"][sample].tolist() == best.tolist()
        slopes = (jacobian - jacobian.mean(axis=0))[best]
        expected = slopes / np.linalg.norm(slopes, axis=1, keepdims=True)
        np.testing.assert_allclose(found["class_maps"][sample].reshape(3, -1), expected, atol=1e-5)


def test_the_one_score_of_a_network_is_raised_itself() -> None:
    weight, bias = head(1, 20)
    features = photographs(2, 20)
    found = asked(session(weight, bias, top=1, maps=("class",))[1], features)
    slopes = (weight @ features)[:, 0]
    expected = slopes / np.linalg.norm(slopes, axis=1, keepdims=True)
    np.testing.assert_allclose(found["class_maps"].reshape(2, -1), expected, atol=1e-5)


def hard_heads() -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Heads and features on which a fixed number of multiplications is too few for some, and enough for others."""
    made = []
    for seed in range(6):
        generator = np.random.default_rng(100 + seed)
        mixed = generator.standard_normal((30, 40, 20))
        low = generator.standard_normal((30, 40, 3)) @ generator.standard_normal((30, 3, 20))
        hidden = photographs(30, 40, seed=seed)
        hidden[:, :, :10] *= 0.01
        opposed = photographs(30, 40, seed=seed) * np.where(np.arange(20) % 2, 1.0, -0.9)
        confident = photographs(30, 40, seed=seed) * 40
        for name, features in {
            "mixed": mixed,
            "low": low,
            "hidden": hidden,
            "opposed": opposed,
            "sure": confident,
        }.items():
            made.append((name, head(12, 40, seed=seed)[0], features))
    return made


@pytest.mark.parametrize("products", [4, 16])
def test_a_small_residual_means_that_the_filter_is_exact(products: int) -> None:
    """Whatever the head: a map that did not converge says so, and one that does not say so is right."""
    right = wrong = told = 0
    for _, weight, features in hard_heads():
        found = asked(session(weight, np.zeros(len(weight)), products=products)[1], features)
        jacobian = weight @ features / features.shape[2]
        p = softmax(found["output"].astype(float) / 2.0, axis=1)
        roots = np.sqrt(p)[:, :, None] * (jacobian - (p[:, :, None] * jacobian).sum(axis=1, keepdims=True))
        for key, matrices, fill in (("output", jacobian, True), ("prediction", roots, False)):
            true = by_eigenvalues(matrices, fill=fill)
            ours = found[f"{key}_map"].reshape(len(true), -1)
            off = np.abs(
                ours / np.abs(ours).max(axis=1, keepdims=True) - true / np.abs(true).max(axis=1, keepdims=True)
            )
            small = found[f"{key}_residual"] <= CONVERGED
            wrong += int((small & (off.max(axis=1) > 2 * CONVERGED)).sum())
            right += int(small.sum())
            told += int((~small).sum())
    assert wrong == 0
    assert right > 100
    assert told > 100


def test_more_multiplications_bring_the_residual_down() -> None:
    weight, bias = head(30, 40)
    features = photographs(20, 40)
    residuals = [
        np.median(asked(session(weight, bias, products=products)[1], features)["output_residual"])
        for products in (1, 3, 5)
    ]
    assert residuals[0] > 5 * residuals[1] > 25 * residuals[2]


def test_features_that_are_zero_or_not_finite_touch_no_other_sample() -> None:
    weight, bias = head(9, 20)
    features = photographs(3, 20)
    graph = session(weight, bias)[1]
    alone = asked(graph, features[2:])
    features[0], features[1, 0, 0] = 0, np.nan
    together = asked(graph, features)
    for name, value in alone.items():
        np.testing.assert_allclose(together[name][2], value[0], rtol=1e-4, atol=1e-6)
    for key in KINDS:
        name = "class_maps" if key == "class" else f"{key}_map"
        assert not together[name][0].any()
        assert np.isnan(together[name][1]).any()


def test_the_graph_has_standard_operators_alone_and_keeps_the_weights_once() -> None:
    weight, bias = head(30, 40)
    model, _ = session(weight, bias)
    assert {(one.domain, one.version) for one in model.opset_import} == {("", 18)}
    for node in model.graph.node:
        assert node.domain == ""
        assert onnx.defs.has(node.op_type)
    assert {"Loop", "If", "Scan"} & {node.op_type for node in model.graph.node} == set()
    assert [tuple(one.dims) for one in model.graph.initializer].count((30, 40)) == 1
