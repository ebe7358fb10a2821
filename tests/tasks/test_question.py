"""What is asked: every word of the tables, and what contradicts itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from l2caf.errors import InputError
from l2caf.filters import Gaussian, Softmax, UnitL1, UnitL2
from l2caf.methods.attention_filter import AttentionFilter
from l2caf.methods.grad_cam import GradCAM
from l2caf.methods.table import METHODS
from l2caf.objectives.classes import ClassSpecific
from l2caf.objectives.output import ClassOblivious
from l2caf.solvers.gradient_descent import GradientDescent
from l2caf.tasks.question import Question


@pytest.mark.parametrize("key", METHODS)
def test_every_method_of_the_table_can_be_asked(key: str) -> None:
    question = Question(key)
    made, entry = question.as_method(), METHODS[key].make()
    assert type(made) is type(entry)
    if isinstance(made, AttentionFilter) and isinstance(entry, AttentionFilter):
        assert (made.objective, made.filter) == (entry.objective, entry.filter)
    assert question.title.replace(", as", " as") == METHODS[key].title


@pytest.mark.parametrize(
    ("asked", "objective"),
    [
        ({}, ClassOblivious()),
        ({"classes": [3, 1]}, ClassSpecific(classes=[3, 1])),
        ({"top": 2}, ClassSpecific(top=2)),
        ({"published": True}, ClassSpecific(published=True)),
        ({"about_a_class": True}, ClassSpecific()),
        ({"method": "l2caf-class"}, ClassSpecific()),
        ({"method": "l2caf-published", "top": 1}, ClassSpecific(top=1, published=True)),
        ({"method": "softmax", "classes": [2]}, ClassSpecific(classes=[2])),
    ],
)
def test_what_an_attention_filter_is_asked(asked: dict[str, Any], objective: object) -> None:
    question = Question(**asked)
    method = question.as_method()
    assert isinstance(method, AttentionFilter)
    assert method.objective == objective
    assert question.is_class_oblivious == isinstance(objective, ClassOblivious)


@pytest.mark.parametrize(
    ("asked", "filter"),
    [
        ({}, UnitL2),
        ({"filter": "l1"}, UnitL1),
        ({"filter": "softmax"}, Softmax),
        ({"method": "gaussian"}, Gaussian),
        ({"method": "l1", "filter": "l1"}, UnitL1),
        ({"method": "l2caf-class", "filter": "gaussian"}, Gaussian),
    ],
)
def test_the_filter(asked: dict[str, Any], filter: type) -> None:
    method = Question(**asked).as_method()
    assert isinstance(method, AttentionFilter)
    assert type(method.filter) is filter


def test_the_seed_reaches_the_solver_that_has_one() -> None:
    method = Question(solver="gradient-descent", seed=7).as_method()
    assert isinstance(method, AttentionFilter)
    assert isinstance(method.solver, GradientDescent)
    assert method.solver.seed == 7
    assert isinstance(Question(solver="exact", seed=7).as_method(), AttentionFilter)


def test_classes_reach_other_methods() -> None:
    assert Question("gradcam", classes=[4]).as_method() == GradCAM(classes=[4])
    assert Question("gradcam", top=3).as_method() == GradCAM(top=3)


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"method": "l3caf"}, "method"),
        ({"filter": "l3"}, "filter"),
        ({"solver": "newton"}, "solver"),
        ({"classes": [1], "top": 2}, "top"),
        ({"top": 0}, "top"),
        ({"method": "cam", "filter": "l1"}, "filter"),
        ({"method": "cam", "solver": "exact"}, "solver"),
        ({"method": "gradcam", "published": True}, "published"),
        ({"method": "softmax", "filter": "l1"}, "filter"),
    ],
)
def test_what_contradicts_itself_names_its_field(asked: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        Question(**asked)
    assert caught.value.field == field
    assert "--" not in str(caught.value)


class TestSettled:
    """With no method named, a network whose classes have names is asked what kept its prediction."""

    @pytest.mark.parametrize(
        ("asked", "names", "embedding", "method"),
        [
            ({}, ("cat", "dog"), False, "l2caf-prediction"),
            ({}, (), False, "l2caf"),
            ({}, ("cat", "dog"), True, "l2caf"),
            ({"top": 1}, ("cat", "dog"), False, "l2caf"),
            ({"classes": ("cat",)}, ("cat", "dog"), False, "l2caf"),
            ({"about_a_class": True}, ("cat", "dog"), False, "l2caf"),
            ({"published": True}, ("cat", "dog"), False, "l2caf"),
            ({"filter": "l1"}, ("cat", "dog"), False, "l2caf"),
            ({"method": "l2caf"}, ("cat", "dog"), False, "l2caf"),
            ({"method": "gradcam"}, ("cat", "dog"), False, "gradcam"),
        ],
    )
    def test_the_method(self, asked: dict[str, Any], names: tuple[str, ...], embedding: bool, method: str) -> None:
        model = SimpleNamespace(class_names=names, embedding=embedding)
        assert Question(**asked).settled(model).method == method  # type: ignore[arg-type]
