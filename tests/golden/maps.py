"""Maps of the tiny networks and of the embedded one, through public names only, and how two of them are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

import l2caf
import networks_for_tests as nets
from l2caf.networks import catalogue

Ask = Callable[..., l2caf.Heatmap]
Facts = dict[str, Any]

# Name: how it is made, the shape of one input, and which part of the output is explained.
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int | str | None]] = {
    "pooled": (nets.pooled, (3, 32, 32), None),
    "flattened": (nets.flattened, (3, 32, 32), None),
    "curved": (nets.curved, (3, 32, 32), None),
    "rectified after pooling": (nets.RectifiedAfterPooling, (3, 32, 32), None),
    "rectified after the layer": (nets.RectifiedAfterLayer, (3, 32, 32), None),
    "normalised": (nets.Normalised, (3, 32, 32), None),
    "tokens": (nets.Tokens, (3, 32, 32), None),
    "channels last": (nets.ChannelsLast, (3, 32, 32), None),
    "frames": (nets.Frames, (3, 3, 16, 16), None),
    "shared rectifier": (nets.OneRectifier, (3, 32, 32), None),
    "no checkpoint": (lambda: nets.Checkpointed(reentrant=None), (3, 32, 32), None),
    "checkpoint": (lambda: nets.Checkpointed(reentrant=False), (3, 32, 32), None),
    "dense predictor": (nets.UNet, (3, 32, 32), None),
    "residual, branch first": (lambda: nets.Residual(branch_first=True), (3, 32, 32), None),
    "residual, branch last": (lambda: nets.Residual(branch_first=False), (3, 32, 32), None),
    "limits in place": (nets.LimitsInPlace, (3, 32, 32), None),
    "scaled in place": (nets.ScaledInPlace, (3, 32, 32), None),
    "glue": (nets.Glue, (3, 32, 32), None),
    "pair": (nets.Pair, (3, 32, 32), 0),
    "writes into views": (nets.WritesIntoViews, (3, 32, 32), None),
    "named": (nets.Named, (3, 32, 32), "one"),
    "always random": (nets.AlwaysRandom, (3, 32, 32), None),
    "unfelt": (nets.Unfelt, (3, 32, 32), None),
    "auxiliary": (nets.Auxiliary, (3, 32, 32), None),
    "sample by sample": (nets.SampleBySample, (3, 32, 32), None),
    "signal": (nets.Signal, (2, 64), None),
    "volume": (nets.Volume, (1, 8, 16, 16), None),
}


def _explain(**how: Any) -> Ask:
    """`l2caf.explain` with some of its arguments given."""
    return lambda network, inputs, **more: l2caf.explain(network, inputs, **how, **more)


QUESTIONS: dict[str, Ask] = {
    "oblivious": _explain(),
    "class": _explain(objective=l2caf.ClassSpecific()),
    "published": _explain(objective=l2caf.ClassSpecific(published=True)),
    "top 2": _explain(objective=l2caf.ClassSpecific(top=2)),
    "CAM": l2caf.CAM(),
    "GradCAM": l2caf.GradCAM(),
    "GradCAMAbs": l2caf.GradCAMAbs(),
    "GradCAM of an embedding": l2caf.GradCAM(embedding=True),
}
# Asked of one network with an affine head and one without.
MORE_QUESTIONS: dict[str, Ask] = {
    "a list of classes": _explain(objective=l2caf.ClassSpecific(classes=[3, 1])),
    "a class each": _explain(objective=l2caf.ClassSpecific(labels=[4, 2])),
    "similarity": _explain(objective=l2caf.Similarity(torch.arange(1.0, 1 + nets.CLASSES))),
    "cosine": _explain(objective=l2caf.Similarity(torch.arange(1.0, 1 + nets.CLASSES), cosine=True)),
    "own objective": _explain(objective=lambda output: output[:, 0].square() - output[:, 1]),
    "UnitL1": _explain(filter=l2caf.UnitL1()),
    "Softmax": _explain(filter=l2caf.Softmax()),
    "Gaussian": _explain(filter=l2caf.Gaussian()),
    "Riemannian": _explain(solver=l2caf.Riemannian()),
    "GradientDescent": _explain(solver=l2caf.GradientDescent(steps=200)),
    "vanilla GradientDescent": _explain(solver=l2caf.GradientDescent(steps=20, vanilla=True)),
    "GradCAM of top 2": l2caf.GradCAM(top=2),
    "GradCAMAbs of an embedding": l2caf.GradCAMAbs(embedding=True),
}
ALL_QUESTIONS = QUESTIONS | MORE_QUESTIONS

EMBEDDED = "efficientnet_lite0"
PHOTOGRAPHS = ("chelsea.png", "coffee.png", "motorcycle_left.png", "camera.png", "rocket.jpg")
EMBEDDED_QUESTIONS: dict[str, Ask] = {
    "oblivious": _explain(),
    "class": _explain(objective=l2caf.ClassSpecific()),
    "published": _explain(objective=l2caf.ClassSpecific(published=True)),
    "top 3": _explain(objective=l2caf.ClassSpecific(top=3)),
    "CAM of top 3": l2caf.CAM(top=3),
    "GradCAM of top 3": l2caf.GradCAM(top=3),
    "GradCAMAbs of top 3": l2caf.GradCAMAbs(top=3),
    "GradCAM at blocks.4": lambda network, inputs: l2caf.GradCAM()(network, inputs, layer="blocks.4"),
}


def photograph(name: str) -> Path:
    """Where scikit-image keeps one of its photographs."""
    spec = find_spec("skimage")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "data" / name


@dataclass(frozen=True)
class Found:
    """What a question gave: the weights (None where it was refused) and what is told about them."""

    facts: Facts
    weights: NDArray[np.float32] | None = None


def tiny(network: str, question: str, *, noise: int = 0) -> Found:
    """Put a question to a tiny network; `noise` numbers a change of its inputs as small as rounding."""
    make, size, select = NETWORKS[network]
    inputs = torch.rand(2, *size, generator=torch.Generator().manual_seed(4))
    if noise:
        change = torch.rand(inputs.shape, generator=torch.Generator().manual_seed(noise)) - 0.5
        inputs = inputs * (1 + 2e-6 * change)
    return asked(ALL_QUESTIONS[question], nets.seeded(make), inputs, output=select)


def embedded() -> Iterator[tuple[str, Found]]:
    """Put every question to the embedded network, all photographs in one batch."""
    entry = catalogue.load(EMBEDDED)
    pictures = [Image.open(photograph(name)).convert("RGB") for name in PHOTOGRAPHS]
    inputs = torch.stack([entry.preprocess(picture) for picture in pictures])
    for question, ask in EMBEDDED_QUESTIONS.items():
        yield question, asked(ask, entry.network, inputs)


def asked(ask: Ask, network: nn.Module, inputs: Tensor, **more: Any) -> Found:
    """Ask, and note the answer or the kind of refusal."""
    try:
        heatmap = ask(network, inputs, **more)
    except l2caf.L2cafError as error:
        public = next(kind for kind in type(error).__mro__ if not kind.__name__.startswith("_"))
        return Found({"refused": public.__name__})
    axes = tuple(range(-len(heatmap.size), 0))
    facts: Facts = {
        "layer": heatmap.layer,
        "method": heatmap.method,
        "size": list(heatmap.size),
        "keeps_sign": heatmap.keeps_sign,
        "classes": None if heatmap.classes is None else heatmap.classes.tolist(),
        # How the map is enlarged and scaled, in one number a map.
        "shown": _rounded(heatmap.maps.mean(dim=axes)),
        "signed": _rounded(heatmap.signed.mean(dim=axes)),
    }
    if not (solution := heatmap.solution).is_formula:
        facts |= {
            "outcome": [str(one) for row in solution.outcome for one in (row if isinstance(row, list) else [row])],
            "solver": solution.solver,
            "endpoint": solution.endpoint,
            "loss": _rounded(solution.loss),
        }
    weights = heatmap.weights.flatten(0, -1 - len(heatmap.size))  # one row for every map
    return Found(facts, weights.detach().cpu().numpy().astype(np.float32))


def descended(facts: Facts) -> bool:
    """Whether any of the filters was searched for, so that rounding alone may change it a little."""
    return facts.get("solver", "Exact") != "Exact" and bool({"converged", "step_limit"} & set(facts["outcome"]))


def steady(network: str, question: str, found: Found) -> bool:
    """Whether the search ends at the same filter when the inputs change as little as by rounding."""
    half = Tolerance(cosine=0.995, loss=5e-3, mean=1e-2, length=1e-2)
    return not any(differences(found, tiny(network, question, noise=noise), half) for noise in (1, 2, 3))


@dataclass(frozen=True)
class Tolerance:
    """How far an answer may be from the stored one."""

    cosine: float
    loss: float
    mean: float
    length: float = 1e-3
    same_outcome: bool = True


CLOSED_FORM = Tolerance(cosine=0.9999, loss=1e-4, mean=1e-3)
DESCENT = Tolerance(cosine=0.99, loss=1e-2, mean=2e-2, length=2e-2)
# Rounding leads the search another way down, to a filter that must be as good.
UNSTEADY = Tolerance(cosine=-1.0, loss=0.1, mean=1.0, length=0.5, same_outcome=False)


def tolerance_for(facts: Facts) -> Tolerance:
    if not descended(facts):
        return CLOSED_FORM
    return DESCENT if facts.get("steady", True) else UNSTEADY


def differences(expected: Found, found: Found, tolerance: Tolerance) -> list[str]:
    """Say in which points an answer is not the stored one."""
    loose = {"loss", "shown", "signed", "steady"} | (set() if tolerance.same_outcome else {"outcome"})
    keys = (expected.facts.keys() | found.facts.keys()) - loose
    said = [
        f"{key}: {found.facts.get(key)!r}, was {expected.facts.get(key)!r}"
        for key in sorted(keys)
        if found.facts.get(key) != expected.facts.get(key)
    ]
    if expected.weights is None or found.weights is None or expected.weights.shape != found.weights.shape:
        shapes = [None if one.weights is None else one.weights.shape for one in (found, expected)]
        return said if shapes[0] == shapes[1] else [*said, f"weights: {shapes[0]}, were {shapes[1]}"]
    for key, allowed in (("loss", tolerance.loss), ("shown", tolerance.mean), ("signed", tolerance.mean)):
        before, after = (np.array(one.facts.get(key, []), dtype=np.float64) for one in (expected, found))
        # The absolute part is for losses that are zero but for rounding.
        if before.shape != after.shape or not np.allclose(after, before, rtol=allowed, atol=1e-6, equal_nan=True):
            said.append(f"{key}: {after.tolist()}, was {before.tolist()}")
    for number, (before, after) in enumerate(zip(expected.weights, found.weights, strict=True)):
        said += [f"map {number}: {words}" for words in _map_differences(before, after, tolerance)]
    return said


def _map_differences(before: NDArray[np.float32], after: NDArray[np.float32], tolerance: Tolerance) -> list[str]:
    one, other = before.astype(np.float64).ravel(), after.astype(np.float64).ravel()
    lengths = float(np.linalg.norm(one)), float(np.linalg.norm(other))
    if not np.isclose(lengths[1], lengths[0], rtol=tolerance.length, atol=1e-9):
        return [f"length {lengths[1]}, was {lengths[0]}"]
    if lengths[0] < 1e-9:
        return []
    cosine = float(one @ other) / (lengths[0] * lengths[1])
    return [] if cosine >= tolerance.cosine else [f"cosine {cosine:.6f} with the stored one"]


def _rounded(values: Tensor) -> list[float]:
    return [float(f"{value:.7g}") for value in values.flatten().tolist()]
