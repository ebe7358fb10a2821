"""Compute the golden values with the code as it is and store them beside this file.

PYTHONPATH=src:tests python -m golden.make

Run it only when a value is meant to change, and say in the commit which and why: the tests compare with what it left.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from golden import documents, maps

FOLDER = Path(__file__).parent
FACTS, WEIGHTS, DOCUMENTS = FOLDER / "facts.json", FOLDER / "weights.npz", FOLDER / "documents.json"
ALL_ASKED = ("pooled", "curved")  # of the tiny networks: those to which every question is put


def tiny_cases() -> list[tuple[str, str]]:
    """Every tiny network with the questions that are put to it."""
    return [
        (network, question)
        for network in maps.NETWORKS
        for question in (maps.ALL_QUESTIONS if network in ALL_ASKED else maps.QUESTIONS)
    ]


def key(network: str, question: str) -> str:
    return f"{network}: {question}"


def answers() -> Iterator[tuple[str, maps.Found]]:
    """All answers, by network and question."""
    for network, question in tiny_cases():
        found = maps.tiny(network, question)
        if maps.descended(found.facts):
            found.facts["steady"] = maps.steady(network, question, found)
        yield key(network, question), found
    for question, found in maps.embedded():
        yield key(maps.EMBEDDED, question), found


def stored() -> dict[str, maps.Found]:
    """The answers as they were stored."""
    with np.load(WEIGHTS) as weights:
        kept = dict(weights)
    return {name: maps.Found(facts, kept.get(name)) for name, facts in json.loads(FACTS.read_text("utf-8")).items()}


def make() -> None:
    """Write the three files."""
    torch.set_num_threads(1)  # as in the tests
    found = dict(answers())
    _write(FACTS, {name: one.facts for name, one in found.items()})
    np.savez_compressed(WEIGHTS, **{name: one.weights for name, one in found.items() if one.weights is not None})
    printed = {}
    for name in documents.COMMANDS:
        with tempfile.TemporaryDirectory() as folder:
            printed[name] = documents.run(name, Path(folder))
    _write(DOCUMENTS, printed)


def _write(path: Path, entries: dict[str, Any]) -> None:
    """One line for each entry, so that a difference shows where it is."""
    lines = [f"{json.dumps(name)}: {json.dumps(entry, ensure_ascii=False)}" for name, entry in entries.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


if __name__ == "__main__":
    make()
