"""The table of methods and networks that the contract tests multiply: a new one joins by a line."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from torch import nn

import networks_for_tests as nets
from l2caf.filters import Gaussian, Softmax
from l2caf.methods.attention_filter import AttentionFilter
from l2caf.methods.cam import CAM
from l2caf.methods.grad_cam import GradCAM, GradCAMAbs
from l2caf.methods.method import Method
from l2caf.objectives.classes import ClassSpecific
from l2caf.objectives.prediction import Prediction
from l2caf.objectives.region import Region
from l2caf.solvers.auto import Auto
from l2caf.solvers.gradient_descent import GradientDescent
from l2caf.solvers.riemannian import Riemannian

# All stages of a search, with the walkers of a long clip's frames: for what does not depend on how deep a search goes.
SHORT_SEARCH = Auto(Riemannian(exploring=160))

METHODS: dict[str, Method] = {
    "AttentionFilter": AttentionFilter(),
    "AttentionFilter of a class": AttentionFilter(ClassSpecific(1)),
    "AttentionFilter of the top 2": AttentionFilter(ClassSpecific(top=2), solver=SHORT_SEARCH),
    "AttentionFilter of the prediction": AttentionFilter(Prediction(), solver=SHORT_SEARCH),
    "AttentionFilter, Softmax": AttentionFilter(filter=Softmax()),
    "AttentionFilter, Gaussian": AttentionFilter(filter=Gaussian()),
    "AttentionFilter by descent": AttentionFilter(solver=GradientDescent(steps=20)),
    "AttentionFilter by vanilla descent": AttentionFilter(solver=GradientDescent(steps=5, vanilla=True)),
    "CAM": CAM(1),
    "GradCAM": GradCAM(1),
    "GradCAM of the top 2": GradCAM(top=2),
    "GradCAMAbs": GradCAMAbs(1),
    "GradCAM of an embedding": GradCAM(embedding=True),
}

# Questions about a region of an image-like output, which a row of scores does not have.
OF_A_REGION: dict[str, Method] = {
    "AttentionFilter, region": AttentionFilter(Region((1, 0, 7, 5), channel=1)),
    "AttentionFilter, region kept": AttentionFilter(Region((1, 0, 7, 5))),
}

EVERY_METHOD = METHODS | OF_A_REGION

Suits = Callable[[str], bool]


def any_method(method: str) -> bool:
    """The output is a row of scores, in which there are no regions."""
    return method not in OF_A_REGION


def but_cam(method: str) -> bool:
    """The head is not affine."""
    return method != "CAM" and any_method(method)


def no_classes(method: str) -> bool:
    """The output is a map, not a row of scores."""
    return method == "GradCAM of an embedding" or (method.startswith("AttentionFilter") and " of " not in method)


def but_vanilla(method: str) -> bool:
    """The loss moves back to an earlier module, which the vanilla form does not know."""
    return but_cam(method) and "vanilla" not in method


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], Suits]] = {
    "pooled": (nets.pooled, (3, 32, 32), any_method),
    "flattened": (nets.flattened, (3, 32, 32), any_method),
    "curved": (nets.curved, (3, 32, 32), but_cam),
    "rectified after the layer": (nets.RectifiedAfterLayer, (3, 32, 32), but_cam),
    "normalised": (nets.Normalised, (3, 32, 32), but_vanilla),
    "scaled in place": (nets.ScaledInPlace, (3, 32, 32), any_method),
    "channels last": (nets.ChannelsLast, (3, 32, 32), any_method),
    "tokens": (nets.Tokens, (3, 32, 32), but_vanilla),
    "frames": (nets.Frames, (3, 3, 16, 16), but_cam),
    "dense predictor": (nets.UNet, (3, 32, 32), no_classes),
    "shared rectifier": (nets.OneRectifier, (3, 32, 32), but_cam),
    "signal": (nets.Signal, (2, 64), any_method),
    "volume": (nets.Volume, (1, 8, 16, 16), any_method),
}

# Searches for classes on heads that bend are long: each such head is asked once, and each kind of class of two heads.
# All of them are in `make endurance`.
SEARCHED = {
    "AttentionFilter of a class": ("tokens", "shared rectifier"),
    "AttentionFilter of the top 2": ("curved", "rectified after the layer"),
    "AttentionFilter of the prediction": ("normalised", "frames"),
}
BENT = {network for networks in SEARCHED.values() for network in networks}


def marked(method: str, network: str) -> object:
    long = method in SEARCHED and network in BENT and network not in SEARCHED[method]
    return pytest.param(method, network, marks=pytest.mark.endurance if long else ())


# Every method with every network that it applies to.
PAIRS = [
    marked(method, network) for method in EVERY_METHOD for network, (_, _, suits) in NETWORKS.items() if suits(method)
]
