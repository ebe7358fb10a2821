"""The map part of an exported graph: from the layer's columns and the output to the exact filters, in ONNX's own terms.

With A the columns (B, C, n), W and b the head, every map is a few products (`heads/pooled.py`):

- of a class c: f = normalize(A^T (w_c - mean w)), one product for the best k classes together;
- of the output: f <- normalize(f + t (G 1 - G f)) from f = normalize(G 1), t = 2 / ||G f||, G = A^T W^T W A / n^2;
- of the prediction: the same with S W in place of W, S the metric of softmax (`softmax_metric.py`); G 1 comes from the
  output itself, since y - b = W A 1 / n.

On photographs lam is some three times the largest eigenvalue of G or more, so that each multiplication leaves a sixth
of the error or less. Where it is not, the residual says so: ||G (1 - f) - lam f|| / lam of the filter that the last
multiplication was given, which is above what is left after it. G is never formed: M = W^T W is kept where that takes
fewer multiplications than W and W^T do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from ..exported.card import COLUMNS, MAPS, OUTPUT, Card

Array = npt.NDArray[np.float32]

TINY = 1e-30  # so that nothing is divided by zero in single precision
FAR_BELOW = -1e30  # a score that has no part in a softmax


@dataclass(frozen=True)
class HeadArrays:
    """W (m, C) and b (m,)."""

    weight: Array
    bias: Array


def with_maps(base: onnx.ModelProto, head: HeadArrays, card: Card) -> onnx.ModelProto:
    """The graph with its maps as further outputs, and with the card in its metadata.

    base   gives `output` (B, m) and `columns` (B, C, n) of `images`
    """
    model = onnx.ModelProto()
    model.CopyFrom(base)
    part = _Part(model.graph, head, card)
    outputs = [_output_of(model.graph, OUTPUT)]
    for key in card.maps:
        outputs += {"output": part.of_output, "class": part.of_classes, "prediction": part.of_prediction}[key]()
    del model.graph.output[:]
    model.graph.output.extend(outputs)
    del model.metadata_props[:]
    helper.set_model_props(model, {"l2caf": card.as_json()})
    model.producer_name, model.doc_string = "l2caf", card.about
    onnx.checker.check_model(model)
    return model


def _output_of(graph: onnx.GraphProto, name: str) -> onnx.ValueInfoProto:
    (found,) = (one for one in graph.output if one.name == name)
    plain = onnx.ValueInfoProto()
    plain.CopyFrom(found)
    del plain.metadata_props[:]
    return plain


@dataclass
class _Part:
    """Adds nodes to a graph; each method returns the name of what its node gives."""

    graph: onnx.GraphProto
    head: HeadArrays
    card: Card
    made: int = 0
    kept: dict[str, str] = field(default_factory=dict)  # constants and shared values, by what they are

    @property
    def positions(self) -> int:
        return int(np.prod(self.card.grid))

    # What a graph is made of

    def node(self, kind: str, *inputs: str, **settings: Any) -> str:
        """Add one node."""
        self.made += 1
        name = f"l2caf_{self.made}_{kind.lower()}"
        self.graph.node.append(helper.make_node(kind, inputs, [name], name=f"l2caf/{self.made}/{kind}", **settings))
        return name

    def constant(self, values: Any, kind: type = np.float32) -> str:
        """A constant; equal ones are kept once."""
        array: npt.NDArray[Any] = np.asarray(values, kind)
        key = f"{array.dtype} {array.shape} {array.tobytes().hex()}"
        if key not in self.kept:
            self.kept[key] = self._initializer(f"l2caf_constant_{len(self.kept)}", array)
        return self.kept[key]

    def _initializer(self, name: str, array: npt.NDArray[Any]) -> str:
        self.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def shared(self, key: str, array: Array) -> str:
        """A large array: the graph's own where it holds the same already."""
        if key not in self.kept:
            own = [one for one in self.graph.initializer if tuple(one.dims) == array.shape]
            same = [one.name for one in own if np.array_equal(numpy_helper.to_array(one), array)]
            self.kept[key] = same[0] if same else self._initializer(f"l2caf_{key}", array)
        return self.kept[key]

    def result(self, value: str, name: str, shape: Sequence[int]) -> onnx.ValueInfoProto:
        """Give a value the name of an output, (B, *shape)."""
        axes = self.constant([0, *shape], np.int64)
        self.graph.node.append(helper.make_node("Reshape", [value, axes], [name], name=f"l2caf/{name}"))
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *shape])

    # What all maps share

    @property
    def weight(self) -> str:
        return self.shared("W", self.head.weight)

    def turned(self, key: str, make: Callable[[], str]) -> str:
        """A value that several maps need, made once."""
        if key not in self.kept:
            self.kept[key] = make()
        return self.kept[key]

    def rows(self, value: str) -> str:
        """(B, m) as (B, 1, m)."""
        return self.node("Unsqueeze", value, self.constant([1], np.int64))

    def pushed(self, weights: str) -> str:
        """A f: (B, 1, n) to (B, 1, C)."""
        across = self.turned("A^T", lambda: self.node("Transpose", COLUMNS, perm=[0, 2, 1]))
        return self.node("MatMul", weights, across)

    def pulled(self, directions: str) -> str:
        """A^T W^T d: (B, 1, m) to (B, 1, n)."""
        return self.node("MatMul", self.node("MatMul", directions, self.weight), COLUMNS)

    def scores_of(self, means: str) -> str:
        """W v / n: (B, 1, C) to (B, 1, m)."""
        flat = self.node("Squeeze", means, self.constant([1], np.int64))
        return self.rows(self.node("Gemm", flat, self.weight, transB=1, alpha=1 / self.positions))

    def untouched(self) -> str:
        """y - b = W A 1 / n: (B, 1, m)."""
        less = lambda: self.rows(self.node("Sub", OUTPUT, self.constant(self.head.bias)))  # noqa: E731
        return self.turned("y - b", less)

    # The maps

    def of_classes(self) -> list[onnx.ValueInfoProto]:
        """The best k classes, raised above the others: of a network with one score, the score itself."""
        top, best = self.constant([self.card.top], np.int64), MAPS["class"].classes
        self.graph.node.append(
            helper.make_node("TopK", [OUTPUT, top], ["l2caf_best_scores", best], name="l2caf/best", axis=1)
        )
        rows = self.node("Gather", self.weight, best, axis=0)
        if len(self.head.weight) > 1:
            middle = self.head.weight.astype(float).mean(axis=0, keepdims=True)
            rows = self.node("Sub", rows, self.constant(middle))
        maps = self.node("LpNormalization", self.node("MatMul", rows, COLUMNS), axis=2, p=2)
        return [
            helper.make_tensor_value_info(best, TensorProto.INT64, ["batch", self.card.top]),
            self.result(maps, MAPS["class"].map, [self.card.top, *self.card.grid]),
        ]

    def of_output(self) -> list[onnx.ValueInfoProto]:
        """What keeps the output as it is."""
        outputs, channels = self.head.weight.shape
        if channels >= 2 * outputs:

            def multiplied(weights: str) -> str:
                return self.pulled(self.scores_of(self.pushed(weights)))

            return self._kept_by("output", self.card.products, self.pulled(self.untouched()), multiplied)
        weight = self.head.weight.astype(float)
        product = self.shared("M", (weight.T @ weight / self.positions).astype(np.float32))

        def multiplied_by_m(weights: str) -> str:
            return self.node("MatMul", self.node("MatMul", self.pushed(weights), product), COLUMNS)

        # From the output, G 1 would take as many multiplications, and W would have to come from memory beside M.
        everywhere = self.constant(np.ones((1, 1, self.positions)))
        return self._kept_by("output", self.card.products, multiplied_by_m(everywhere), multiplied_by_m)

    def of_prediction(self) -> list[onnx.ValueInfoProto]:
        """What keeps the prediction."""
        shares, mean = self._metric()

        def seen(values: str) -> str:
            """S^T S v = s (v - u.v) - u sum(s (v - u.v))."""
            middle = self._sum(self.node("Mul", mean, values))
            seen = self.node("Mul", shares, self.node("Sub", values, middle))
            return self.node("Sub", seen, self.node("Mul", mean, self._sum(seen)))

        def multiplied(weights: str) -> str:
            return self.pulled(seen(self.scores_of(self.pushed(weights))))

        # Few classes compete, so that the largest eigenvalue is nearer to the multiplier, and each step leaves more.
        return self._kept_by("prediction", self.card.products + 1, self.pulled(seen(self.untouched())), multiplied)

    def _kept_by(
        self, key: str, products: int, gradient: str, multiplied: Callable[[str], str]
    ) -> list[onnx.ValueInfoProto]:
        """Least squares on the unit sphere by a fixed number of multiplications, and its residual."""
        weights = self._unit(gradient)
        step = residual = ""
        for number in range(products):
            product = multiplied(weights)
            missing = self.node("Sub", gradient, product)
            if number == 0:
                length = self.node("Max", self._length(product), self.constant(TINY))
                step = self.node("Div", self.constant(2.0), length)
            if number == products - 1:
                residual = self._residual(missing, weights)
            weights = self._unit(self.node("Add", weights, self.node("Mul", step, missing)))
        return [
            self.result(weights, MAPS[key].map, self.card.grid),
            self.result(residual, MAPS[key].residual, []),
        ]

    def _residual(self, missing: str, weights: str) -> str:
        """||G (1 - f) - lam f|| / lam with lam = f . G (1 - f), and very large where lam is not above zero.

        There, f is a stationary filter but not the best one (`unit_sphere.py`), however small the difference is.
        """
        lam = self._sum(self.node("Mul", weights, missing))
        rest = self._length(self.node("Sub", missing, self.node("Mul", lam, weights)))
        return self.node("Div", rest, self.node("Max", lam, self.constant(TINY)))

    def _metric(self) -> tuple[str, str]:
        """Squared sizes s and a mean's weights u, both (B, 1, m), as `softmax_metric.py` derives them.

        s is left without the factor that all scores of a sample share: a filter of least squares does not depend on it.
        """
        scaled = self.rows(self.node("Mul", OUTPUT, self.constant(1 / self.card.temperature)))
        best = self.node("ArgMax", scaled, axis=2, keepdims=1)
        is_best = self.node("Equal", self.constant(np.arange(len(self.head.weight)), np.int64), best)
        top = self.node("ReduceMax", scaled, self.constant([2], np.int64), keepdims=1)
        others = self.node("Where", is_best, self.constant(FAR_BELOW), scaled)
        second = self.node("ReduceMax", others, self.constant([2], np.int64), keepdims=1)
        shares = self.node("Softmax", others, axis=2)
        total = self._sum(self.node("Exp", self.node("Sub", others, second)))
        odds = self.node("Add", self.node("Sub", second, top), self.node("Log", total))
        root = self.node("Sqrt", self.node("Sigmoid", self.node("Neg", odds)))
        drawn = self.node("Div", self.node("Sigmoid", odds), self.node("Add", self.constant(1.0), root))
        # 1 - drawn is this root as well: with q = 1 - p, drawn = q / (1 + root of p) = 1 - root of p.
        return shares, self.node("Where", is_best, root, self.node("Mul", drawn, shares))

    def _sum(self, values: str) -> str:
        return self.node("ReduceSum", values, self.constant([2], np.int64), keepdims=1)

    def _length(self, values: str) -> str:
        return self.node("ReduceL2", values, self.constant([2], np.int64), keepdims=1)

    def _unit(self, values: str) -> str:
        return self.node("LpNormalization", values, axis=2, p=2)
