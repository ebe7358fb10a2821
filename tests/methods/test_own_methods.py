"""A method of one's own gets a key, and is compared, evaluated and explained by it like those of l2caf."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import l2caf
import networks_for_tests as nets
import squares
from l2caf.errors import InputError
from l2caf.evaluation.localization import Localization
from l2caf.methods.table import METHODS
from l2caf.tasks.compare import CompareRequest, compare_methods
from l2caf.tasks.evaluate import EvaluationRequest, evaluate
from l2caf.tasks.network_choice import NetworkChoice
from networks_for_tests import pixels, seeded


@dataclass(frozen=True)
class Strength(l2caf.Method):
    """How strong the features are."""

    def formula(self, head: l2caf.Head) -> l2caf.Maps:
        return l2caf.Maps(head.columns.norm(dim=1).unflatten(1, head.layout.shape))


@dataclass(frozen=True)
class OfClass(l2caf.Method):
    """The same, whatever class it is asked about."""

    classes: Any = None
    top: Any = None
    labels: Any = None

    def formula(self, head: l2caf.Head) -> l2caf.Maps:
        assert self.classes is None
        return Strength().formula(head)


@pytest.fixture
def registered() -> Iterator[None]:
    before = dict(METHODS._entries)
    METHODS.register("strength", Strength(), title="feature strength")
    METHODS.register("of-class", OfClass, about="class")
    yield
    METHODS._entries = before


@pytest.mark.usefixtures("registered")
def test_it_is_explained_by_its_key() -> None:
    network = seeded(nets.pooled)
    assert l2caf.explain(network, pixels(), method="strength") == Strength()(network, pixels())
    assert l2caf.explain(network, pixels(), method="of-class").method == "OfClass"


@pytest.mark.usefixtures("registered")
def test_it_is_compared_evaluated_and_reported_by_its_key(tmp_path: Path) -> None:
    pictures = squares.folder(tmp_path / "pictures", count=6)
    choice = NetworkChoice(f"{pictures / 'bright.py'}:build")
    sheet = compare_methods(CompareRequest(pictures / "00.png", tmp_path / "sheet.png", choice))
    assert {"feature strength", "of-class"} <= {one["method"] for one in sheet.as_dict()["methods"]}
    methods = ("strength", "of-class", "l2caf")
    request = EvaluationRequest(
        "manifest", pictures / "boxes.csv", tmp_path / "run", choice, methods=methods, classes="labels"
    )
    evaluation = evaluate(request)
    assert tuple(evaluation.as_dict()["methods"]) == methods
    assert "feature strength" in evaluation.report.read_text()


def test_a_method_without_a_key_is_told_how_to_get_one() -> None:
    with pytest.raises(InputError, match=r"a Strength is none: give it one with METHODS\.register\('mine', method\)"):
        Localization(methods=(Strength(),))  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"There is no method 'mine'"):
        Localization(methods=("mine",))


@pytest.mark.parametrize(
    ("key", "made_by", "more", "said"),
    [
        ("gradcam", Strength(), {}, "There is a method 'gradcam' already: choose another key"),
        ("mine", 3, {}, "A int makes no method: give a method"),
        ("mine", Strength(), {"about": "class"}, "for one about a class its class"),
        ("mine", Strength(), {"about": "classes"}, "say class, output or prediction"),
        ("", Strength(), {}, "give a short word"),
    ],
    ids=["taken", "no method", "an object about classes", "about", "no key"],
)
def test_what_cannot_be_registered(key: str, made_by: Any, more: dict[str, Any], said: str) -> None:
    before = list(METHODS)
    with pytest.raises(InputError, match=said):
        METHODS.register(key, made_by, **more)
    assert list(METHODS) == before
