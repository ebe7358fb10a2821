"""Today's maps and documents are those that were stored before the files were moved (see make.py)."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from golden import documents, maps
from golden.make import DOCUMENTS, key, stored, tiny_cases

ANSWERS = stored()
PRINTED: dict[str, Any] = json.loads(DOCUMENTS.read_text("utf-8"))


def check(name: str, found: maps.Found) -> None:
    expected = ANSWERS[name]
    assert maps.differences(expected, found, maps.tolerance_for(expected.facts)) == []


@pytest.mark.parametrize(("network", "question"), tiny_cases())
def test_a_tiny_network_gives_the_stored_map(network: str, question: str) -> None:
    check(key(network, question), maps.tiny(network, question))


@pytest.fixture(scope="module")
def of_photographs() -> dict[str, maps.Found]:
    return dict(maps.embedded())


@pytest.mark.parametrize("question", maps.EMBEDDED_QUESTIONS)
def test_the_embedded_network_gives_the_stored_maps(question: str, of_photographs: dict[str, maps.Found]) -> None:
    check(key(maps.EMBEDDED, question), of_photographs[question])


@pytest.mark.parametrize("name", documents.COMMANDS)
def test_a_command_prints_the_stored_document(name: str, tmp_path: Path) -> None:
    assert documents.differences(PRINTED[name], documents.run(name, tmp_path)) == []


def test_what_is_stored_is_what_is_compared() -> None:
    """A case that is left out of the tables would be lost without a word."""
    compared = {key(*case) for case in tiny_cases()} | {key(maps.EMBEDDED, one) for one in maps.EMBEDDED_QUESTIONS}
    assert compared == set(ANSWERS)
    assert set(documents.COMMANDS) == set(PRINTED)
    searched = [one.facts for one in ANSWERS.values() if maps.descended(one.facts)]
    assert sum(not facts["steady"] for facts in searched) < 0.1 * len(searched)


# The comparison itself must be able to fail.


@pytest.mark.parametrize("name", [key("pooled", "oblivious"), key("curved", "class"), key("pooled", "CAM")])
def test_another_map_is_told_apart(name: str) -> None:
    expected = ANSWERS[name]
    assert expected.weights is not None
    tolerance = maps.tolerance_for(expected.facts)
    assert maps.differences(expected, expected, tolerance) == []
    turned = np.roll(expected.weights, 1, axis=-1)
    for weights in (-expected.weights, turned, 1.1 * expected.weights, expected.weights[:1], None):
        assert maps.differences(expected, replace(expected, weights=weights), tolerance)
    for field, value in (("layer", "0"), ("shown", [0.5, 0.5]), ("classes", [[9], [9]]), ("outcome", ["non_finite"])):
        assert maps.differences(expected, replace(expected, facts=expected.facts | {field: value}), tolerance)
    if "loss" in expected.facts:
        worse = [1.02 * loss for loss in expected.facts["loss"]]
        assert maps.differences(expected, replace(expected, facts=expected.facts | {"loss": worse}), tolerance)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("code",), 1),
        (("files",), []),
        (("document", "network"), "another"),
        (("document", "more"), None),
        (("document", "images", 0, "maps", 0, "loss"), 1),
        (("document", "images", 0, "maps", 0, "loss"), 1000.0),
        (("document", "images", 0, "predicted", "index"), 282.0),
        (("document", "images", 0, "maps"), []),
    ],
)
def test_another_document_is_told_apart(place: tuple[Any, ...], value: Any) -> None:
    changed = copy.deepcopy(PRINTED["explain"])
    inner = changed
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    assert documents.differences(PRINTED["explain"], PRINTED["explain"]) == []
    assert len(documents.differences(PRINTED["explain"], changed)) == 1
