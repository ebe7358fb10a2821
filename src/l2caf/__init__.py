"""l2caf: see where a neural network looks.

    import l2caf
    heatmap = l2caf.explain(network, images)          # where did it look?
    heatmap.save("where.png", image)

What is public: the names in `l2caf.__all__`, and by their own names and docstrings these packages, which load when they
are first used, so that importing l2caf costs nothing:

    networks, datasets                      what a name stands for; readers of labelled pictures
    methods, objectives, filters, solvers   what is asked, and how it is solved; `methods.table.METHODS` has the keys
    heatmap, solution, errors               what one gets, and what may go wrong
    images, clips, signals, volumes, preprocessing, boxes, localization, rendering
                                            photographs, clips, signals, scans, boxes and drawings, without torch
    retrieval, evaluation, training, runs, reports
                                            vectors and matches, measurements, networks trained, work in blocks, pages
    monitor                                 where a network looks while it learns; its Lightning callback
    tasks                                   what each command does: typed request, function, typed result
    features                                feature maps that were kept, read and explained as arrays, without torch
    exported                                networks that were exported as ONNX files, run without torch
    deadline                                `time_limit`: how long a search may take

Everything else (`recording`, `heads`, `recorder`, `problem`, `exporter`, `numerics`, `files`, `table`, `progress`,
`cli`) is how these are made; it may change between any two versions, but for what `l2caf.__all__` names of it.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    # what one calls
    "explain": "explanation",
    "explain_features": "feature_explanation",
    "export": "exporter.onnx_file",
    "load": "networks.catalogue",
    "read": "datasets",
    "record": "recorder",
    "AttentionWatch": "monitor.watch",
    "usable_layers": "recording.layers",
    # what one gets
    "Heatmap": "heatmap",
    "Solution": "solution",
    "Outcome": "solution",
    "Layout": "recording.layout",
    "Recording": "recorder",
    "Model": "networks.model",
    "Exported": "exporter.onnx_file",
    "L2cafError": "errors",
    # what one asks
    "ClassOblivious": "objectives.output",
    "ClassSpecific": "objectives.classes",
    "Prediction": "objectives.prediction",
    "Region": "objectives.region",
    "Similarity": "objectives.output",
    "UnitL2": "filters",
    "UnitL1": "filters",
    "UnitL2PerFrame": "filters",
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
    # what one derives from, and what that is made of
    "Objective": "objectives.objective",
    "Losses": "objectives.objective",
    "Linear": "objectives.objective",
    "LeastSquares": "objectives.objective",
    "General": "objectives.objective",
    "Filter": "filters",
    "Solver": "solvers.solver",
    "Found": "solvers.solver",
    "Problem": "problem",
    "Method": "methods.method",
    "Maps": "methods.method",
    "Head": "heads.head",
    "Dataset": "datasets",
    "Sample": "datasets",
    "Source": "networks.source",
    "Work": "runs.work",
    "Executor": "runs.executor",
    "Recipe": "training.recipe",
    "Job": "training.job",
}
_ROOMS = (
    "boxes",
    "clips",
    "datasets",
    "deadline",
    "errors",
    "evaluation",
    "exported",
    "features",
    "filters",
    "heatmap",
    "images",
    "localization",
    "methods",
    "monitor",
    "networks",
    "objectives",
    "preprocessing",
    "rendering",
    "reports",
    "retrieval",
    "runs",
    "signals",
    "solution",
    "solvers",
    "tasks",
    "training",
    "volumes",
)

__all__ = [
    "CAM",
    "AttentionFilter",
    "AttentionWatch",
    "Auto",
    "ClassOblivious",
    "ClassSpecific",
    "Dataset",
    "Exact",
    "Executor",
    "Exported",
    "Filter",
    "Found",
    "Gaussian",
    "General",
    "GradCAM",
    "GradCAMAbs",
    "GradientDescent",
    "Head",
    "Heatmap",
    "Job",
    "L2cafError",
    "Layout",
    "LeastSquares",
    "Linear",
    "Losses",
    "Maps",
    "Method",
    "Model",
    "Objective",
    "Outcome",
    "Prediction",
    "Problem",
    "Recipe",
    "Recording",
    "Region",
    "Riemannian",
    "Sample",
    "Similarity",
    "Softmax",
    "Solution",
    "Solver",
    "Source",
    "UnitL1",
    "UnitL2",
    "UnitL2PerFrame",
    "Work",
    "explain",
    "explain_features",
    "export",
    "load",
    "read",
    "record",
    "usable_layers",
]

if TYPE_CHECKING:
    from .datasets import Dataset as Dataset
    from .datasets import Sample as Sample
    from .datasets import read as read
    from .errors import L2cafError as L2cafError
    from .explanation import explain as explain
    from .exporter.onnx_file import Exported as Exported
    from .exporter.onnx_file import export as export
    from .feature_explanation import explain_features as explain_features
    from .filters import Filter as Filter
    from .filters import Gaussian as Gaussian
    from .filters import Softmax as Softmax
    from .filters import UnitL1 as UnitL1
    from .filters import UnitL2 as UnitL2
    from .filters import UnitL2PerFrame as UnitL2PerFrame
    from .heads.head import Head as Head
    from .heatmap import Heatmap as Heatmap
    from .methods.attention_filter import AttentionFilter as AttentionFilter
    from .methods.cam import CAM as CAM
    from .methods.grad_cam import GradCAM as GradCAM
    from .methods.grad_cam import GradCAMAbs as GradCAMAbs
    from .methods.method import Maps as Maps
    from .methods.method import Method as Method
    from .monitor.watch import AttentionWatch as AttentionWatch
    from .networks.catalogue import load as load
    from .networks.model import Model as Model
    from .networks.source import Source as Source
    from .objectives.classes import ClassSpecific as ClassSpecific
    from .objectives.objective import General as General
    from .objectives.objective import LeastSquares as LeastSquares
    from .objectives.objective import Linear as Linear
    from .objectives.objective import Losses as Losses
    from .objectives.objective import Objective as Objective
    from .objectives.output import ClassOblivious as ClassOblivious
    from .objectives.output import Similarity as Similarity
    from .objectives.prediction import Prediction as Prediction
    from .objectives.region import Region as Region
    from .problem import Problem as Problem
    from .recorder import Recording as Recording
    from .recorder import record as record
    from .recording.layers import usable_layers as usable_layers
    from .recording.layout import Layout as Layout
    from .runs.executor import Executor as Executor
    from .runs.work import Work as Work
    from .solution import Outcome as Outcome
    from .solution import Solution as Solution
    from .solvers.auto import Auto as Auto
    from .solvers.exact import Exact as Exact
    from .solvers.gradient_descent import GradientDescent as GradientDescent
    from .solvers.riemannian import Riemannian as Riemannian
    from .solvers.solver import Found as Found
    from .solvers.solver import Solver as Solver
    from .training.job import Job as Job
    from .training.recipe import Recipe as Recipe


class _Torchvision:
    """Finds torchvision in a way that works beside a torch of another build (`networks/imports.py` says why)."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torchvision":
            return None
        return importlib.import_module(".networks.imports", __name__).torchvision_spec(path)


sys.meta_path.insert(0, _Torchvision)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    if name in _ROOMS:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, *_ROOMS]
