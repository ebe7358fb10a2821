"""Rows of the table as they come, one JSON object a line: a run that was cut goes on where it was."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from .judge import Judged, Verdict
from .networks import NETWORKS
from .pixels import Answer


def load(path: Path) -> dict[str, Judged]:
    """The rows by the names of their networks; of two for the same one, the later."""
    networks = {network.name: network for network in NETWORKS}
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    rows = {}
    for kept in map(json.loads, lines):
        name = kept.pop("network")
        if name in networks:
            answer = None if kept["answer"] is None else Answer(**kept["answer"])
            kept |= {"verdict": Verdict(kept["verdict"]), "grid": tuple(kept["grid"]), "answer": answer}
            rows[name] = Judged(network=networks[name], **kept)
    return rows


def append(path: Path, row: Judged) -> None:
    """Add a row at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fields = {name: getattr(row, name) for name in row.__dataclass_fields__}
    answer = None if row.answer is None else asdict(row.answer)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(fields | {"network": row.network.name, "answer": answer}) + "\n")
