"""l2caf: see where a neural network looks.

    import l2caf
    heatmap = l2caf.explain(network, images)          # where did it look?
    heatmap.save("where.png", image)

Names load what they need when they are first used, so that importing l2caf costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "explain": "explanation",
    "load": "networks.catalogue",
    "record": "recorder",
    "Heatmap": "heatmap",
    "ClassOblivious": "objectives.output",
    "ClassSpecific": "objectives.classes",
    "Prediction": "objectives.prediction",
    "Similarity": "objectives.output",
    "UnitL2": "filters",
    "UnitL1": "filters",
    "Softmax": "filters",
    "Gaussian": "filters",
    "Auto": "solvers.auto",
    "Exact": "solvers.exact",
    "Riemannian": "solvers.riemannian",
    "GradientDescent": "solvers.gradient_descent",
    "AttentionFilter": "methods.attention_filter",
    "CAM": "methods.cam",
    "GradCAM": "methods.grad_cam",
    "GradCAMAbs": "methods.grad_cam",
    "Layout": "recording.layout",
    "usable_layers": "recording.layers",
    "L2cafError": "errors",
}
_PACKAGES = (
    "networks",
    "errors",
    "heatmap",
    "filters",
    "objectives",
    "solvers",
    "methods",
    "rendering",
    "images",
)

__all__ = [
    "CAM",
    "AttentionFilter",
    "Auto",
    "ClassOblivious",
    "ClassSpecific",
    "Exact",
    "Gaussian",
    "GradCAM",
    "GradCAMAbs",
    "GradientDescent",
    "Heatmap",
    "L2cafError",
    "Layout",
    "Prediction",
    "Riemannian",
    "Similarity",
    "Softmax",
    "UnitL1",
    "UnitL2",
    "explain",
    "load",
    "record",
    "usable_layers",
]

if TYPE_CHECKING:
    from .errors import L2cafError as L2cafError
    from .explanation import explain as explain
    from .filters import Gaussian as Gaussian
    from .filters import Softmax as Softmax
    from .filters import UnitL1 as UnitL1
    from .filters import UnitL2 as UnitL2
    from .heatmap import Heatmap as Heatmap
    from .methods.attention_filter import AttentionFilter as AttentionFilter
    from .methods.cam import CAM as CAM
    from .methods.grad_cam import GradCAM as GradCAM
    from .methods.grad_cam import GradCAMAbs as GradCAMAbs
    from .networks.catalogue import load as load
    from .objectives.classes import ClassSpecific as ClassSpecific
    from .objectives.output import ClassOblivious as ClassOblivious
    from .objectives.output import Similarity as Similarity
    from .objectives.prediction import Prediction as Prediction
    from .recorder import record as record
    from .recording.layers import usable_layers as usable_layers
    from .recording.layout import Layout as Layout
    from .solvers.auto import Auto as Auto
    from .solvers.exact import Exact as Exact
    from .solvers.gradient_descent import GradientDescent as GradientDescent
    from .solvers.riemannian import Riemannian as Riemannian


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    if name in _PACKAGES:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, *_PACKAGES]
