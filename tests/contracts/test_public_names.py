"""What others call, and what importing it costs."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import typing

import pytest

import l2caf

PUBLIC = {
    "AttentionFilter", "AttentionWatch", "Auto", "CAM", "ClassOblivious", "ClassSpecific", "Dataset", "Exact",
    "Executor", "explain", "explain_features", "export", "Exported", "Filter", "Found", "Gaussian", "General",
    "GradCAM", "GradCAMAbs", "GradientDescent", "Head", "Heatmap", "Job", "L2cafError", "Layout", "LeastSquares",
    "Linear", "load", "Losses", "Maps", "Method", "Model", "Objective", "Outcome", "Prediction", "Problem", "read",
    "Recipe", "record", "Recording", "Region", "Riemannian", "Sample", "Similarity", "Softmax", "Solution", "Solver",
    "Source", "UnitL1", "UnitL2", "UnitL2PerFrame", "usable_layers", "Work",
}  # fmt: skip


def test_public_names() -> None:
    assert set(l2caf.__all__) == PUBLIC
    assert set(dir(l2caf)) >= PUBLIC
    for name in PUBLIC:
        assert getattr(l2caf, name).__name__ == name
        assert inspect.getdoc(getattr(l2caf, name))


def test_public_packages_load_when_they_are_first_used() -> None:
    assert set(l2caf._ROOMS) == {
        "boxes", "clips", "datasets", "deadline", "errors", "evaluation", "exported", "features", "filters", "heatmap",
        "images", "localization", "methods", "monitor", "networks", "objectives", "preprocessing", "rendering",
        "reports", "retrieval", "runs", "signals", "solution", "solvers", "tasks", "training", "volumes",
    }  # fmt: skip
    for name in l2caf._ROOMS:
        assert name in (l2caf.__doc__ or "")
        assert name in dir(l2caf)
    program = "import l2caf; print(l2caf.datasets.read.__name__, l2caf.evaluation.__name__, l2caf.tasks.__name__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert done.stdout.split() == ["read", "l2caf.evaluation", "l2caf.tasks"]


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'explian'"):
        l2caf.explian  # noqa: B018


def test_the_front_door() -> None:
    names = list(inspect.signature(l2caf.explain).parameters)
    assert names == [
        "network",
        "inputs",
        "objective",
        "layer",
        "call",
        "filter",
        "solver",
        "method",
        "output",
        "of",
        "layout",
        "frames",
        "timeout",
    ]
    kinds = {name: parameter.kind for name, parameter in inspect.signature(l2caf.explain).parameters.items()}
    assert all(kind is inspect.Parameter.KEYWORD_ONLY for name, kind in kinds.items() if name not in names[:2])


def test_what_a_heatmap_and_a_solution_hold() -> None:
    from l2caf.solution import Outcome, Solution

    assert {"maps", "signed", "weights", "layer", "method", "classes", "solution", "save", "overlay"} <= {
        *dir(l2caf.Heatmap), *typing.get_type_hints(l2caf.Heatmap, localns={"Image": object})
    }  # fmt: skip
    assert {"filter", "loss", "steps", "evaluations", "outcome", "solver", "reason", "endpoint"} <= set(
        Solution.__dataclass_fields__
    )
    assert {str(outcome) for outcome in Outcome} == {
        "exact", "converged", "first_order", "step_limit", "time_limit", "stuck", "uniform", "unmoved", "undecided",
        "non_finite", "formula",
    }  # fmt: skip


def test_importing_brings_nothing_but_itself() -> None:
    """What makes it quick, counted: one module of ours, and the rest is Python's own."""
    program = (
        "import sys, json; before = set(sys.modules); import l2caf; "
        "brought = set(sys.modules) - before; "
        "print(json.dumps(sorted(name for name in brought if name.partition('.')[0] not in sys.stdlib_module_names)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert json.loads(done.stdout) == ["l2caf"]
