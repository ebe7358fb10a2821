"""A dataset's layout and a method are one file and one line each: help texts, evaluation and report know them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import l2caf
import squares

LAYOUT = """
from pathlib import Path
from l2caf.datasets import Dataset, Sample

def read(root, *, half="all"):
    lines = (Path(root) / "boxes.csv").read_text().splitlines()[1:]
    rows = [line.split(",") for line in lines]
    kept = [row for row in rows if half == "all" or (int(row[1]) == 0) == (half == "first")]
    samples = [Sample(Path(root) / file, file, int(label), [[float(x) for x in box]]) for file, label, *box in kept]
    return Dataset("the attic", tuple(samples), {0: "red", 1: "green", 2: "blue"})
"""
METHOD = """
from l2caf.methods.grad_cam import GradCAMAbs

def made(**asked):
    return GradCAMAbs(**asked)
"""
# One line in each table, as it would stand there.
PROGRAM = """
import sys
from l2caf import datasets
from l2caf.methods import table
from l2caf.table import Table
datasets.LAYOUTS = Table(
    "dataset",
    *datasets.LAYOUTS.values(),
    datasets.DatasetEntry("attic", "what was put away", "attic_layout:read", halves=True),
)
table.METHODS = table.Methods(
    "method",
    *table.METHODS.values(),
    table.MethodEntry("dust", "Dust map", "attic_method:made", "Dust", "class", table._BOTH),
)
from l2caf.cli.app import run
for line in sys.stdin.read().splitlines():
    code = run(line.split())
    if code:
        sys.exit(code)
"""


def test_they_are_in_help_results_and_report(tmp_path: Path) -> None:
    squares.folder(tmp_path, count=12)
    (tmp_path / "attic_layout.py").write_text(LAYOUT)
    (tmp_path / "attic_method.py").write_text(METHOD)
    given = "--network bright.py:build -m dust -m l2caf"
    commands = [
        "evaluate --help",
        "train retrieval --help",
        f"evaluate attic . {given} --out maps --classes predicted",
        f"evaluate attic . {given} --out near --protocol retrieval --embedding",
    ]
    search = [str(tmp_path), str(Path(l2caf.__file__).parents[1])]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {search!r}\n{PROGRAM}"],
        input="\n".join(commands),
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    evaluating, training = done.stdout.split("train retrieval", 1)
    assert "attic" in evaluating
    assert "dust" in evaluating
    assert "attic" in training
    for out, images in (("maps", 12), ("near", 8)):  # of retrieval the half of the classes that training leaves aside
        results = json.loads((tmp_path / out / "results.json").read_text())
        assert results["dataset"] == "the attic"
        assert results["images"] == images
        assert list(results["methods"]) == ["dust", "l2caf"]
        assert "Dust map − L2-CAF, class-oblivious" in (tmp_path / out / "report.html").read_text()
