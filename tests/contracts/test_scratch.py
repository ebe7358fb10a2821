"""A new method, layout of data sets, recipe or source of networks: one new file and one line in one table, and no more.

The package is copied to a scratch folder and gets one of each there, as a contributor would add them; the command line
of the copy must know them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import l2caf
import squares


@dataclass(frozen=True)
class Part:
    """One new file, and one line at the end of one table."""

    file: str
    text: str
    table: str
    name: str
    line: str


METHOD = Part(
    "methods/dust.py",
    '''
from dataclasses import dataclass
from typing import Any
from .method import Maps, Method

@dataclass(frozen=True)
class Dust(Method):
    """How strong the features are."""
    classes: Any = None
    top: Any = None
    labels: Any = None

    def formula(self, head):
        return Maps(head.features.detach().abs().mean(dim=1))
''',
    "methods/table.py",
    "METHODS",
    'MethodEntry("dust", "Dust map", "l2caf.methods.dust:Dust", "Dust", "class", _CLASSES),',
)
LAYOUT = Part(
    "datasets/attic.py",
    """
from pathlib import Path
from .dataset import Dataset, Sample

def read(root):
    lines = (Path(root) / "boxes.csv").read_text().splitlines()[1:]
    rows = [line.split(",") for line in lines]
    samples = [Sample(Path(root) / file, file, int(label), [[float(x) for x in box]]) for file, label, *box in rows]
    return Dataset("the attic", tuple(samples), {0: "red", 1: "green", 2: "blue"})
""",
    "datasets/__init__.py",
    "LAYOUTS",
    'DatasetEntry("attic", "what was put away", "l2caf.datasets.attic:read", own_classes=False),',
)
SOURCE = Part(
    "networks/from_cellar.py",
    squares.BUILDER
    + """
from .model import Model
from .source import CatalogueRow, Source

class Cellar(Source):
    def load(self, name, *, weights=None, pretrained=True):
        network, prepare = build()
        return Model(name, network.eval(), prepare, tuple("abcdef"), "found in the cellar")

    def summary(self):
        return CatalogueRow("cellar:NAME", "cellar", None, "a candle", "what was put by")
""",
    "networks/catalogue.py",
    "SOURCES",
    'SourceEntry("cellar", "what was put by", "l2caf.networks.from_cellar:Cellar", form="cellar:NAME"),',
)
RECIPE = Part(
    "training/jam.py",
    """
from dataclasses import dataclass
from typing import ClassVar
from .recipe import Limits, Recipe, option

@dataclass(frozen=True)
class JamRecipe(Recipe):
    name: ClassVar[str] = "jam"
    about: ClassVar[str] = "Stir now and then."
    sugar: float = option(0.5, "How much of it is sugar.")

    @property
    def limits(self):
        return Limits(10)

    def prepare(self, data, fabric, progress):
        raise NotImplementedError
""",
    "training/__init__.py",
    "RECIPES",
    'Entry("jam", "Boil down what was picked.", "l2caf.training.jam:JamRecipe"),',
)
PARTS = {"method": METHOD, "layout": LAYOUT, "source": SOURCE, "recipe": RECIPE}
# Several commands in one process, so that torch is loaded once; what each said goes to a file.
PROGRAM = """
import contextlib, io, json, sys
from pathlib import Path
import l2caf
from l2caf.cli.app import run
said = [l2caf.__file__]
for line in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        code = run(line.split())
    assert code == 0, f"{line}: {code} {printed.getvalue()}"
    said.append(printed.getvalue())
Path("said.json").write_text(json.dumps(said))
"""


def add(part: Part, package: Path) -> None:
    """Write the file, and insert the line before the end of the table."""
    assert not (package / part.file).exists()
    (package / part.file).write_text("from __future__ import annotations\n" + part.text)
    home = package / part.table
    text = home.read_text()
    start = re.search(rf"^{part.name}\b.*\($", text, re.MULTILINE)
    assert start, f"{part.table} has no table {part.name}"
    end = text.index("\n)", start.end())
    home.write_text(f"{text[:end]}\n    {part.line}{text[end:]}")


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with one new part of each kind, and pictures to try it on."""
    folder = tmp_path_factory.mktemp("scratch")
    package = Path(l2caf.__file__).parent
    shutil.copytree(package, folder / "l2caf", ignore=shutil.ignore_patterns("__pycache__"))
    for part in PARTS.values():
        add(part, folder / "l2caf")
    squares.folder(folder / "pictures", count=6)
    return folder


def said(scratch: Path, *lines: str) -> list[str]:
    """What the copy's command line prints."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(lines)],
        cwd=scratch,
        env=os.environ | {"PYTHONPATH": str(scratch), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    home, *printed = json.loads((scratch / "said.json").read_text())
    assert Path(home).is_relative_to(scratch), "the copy was not imported"
    return printed


def test_help_names_them(scratch: Path) -> None:
    explain, evaluate, networks, train, jam = said(
        scratch, "explain --help", "evaluate --help", "networks", "train --help", "train jam --help"
    )
    assert "cellar:NAME" in explain
    assert "dust" in evaluate
    assert "attic" in evaluate
    assert "what was put by" in networks
    assert "Boil down what was picked." in train
    assert "How much of it is sugar." in jam


def test_the_method_is_compared_evaluated_and_reported(scratch: Path) -> None:
    compared, evaluated = said(
        scratch,
        "compare pictures/00.png --network cellar:bright --out sheet.png --json",
        "evaluate attic pictures --network cellar:bright --classes predicted -m dust -m l2caf --out maps --json",
    )
    assert "Dust map" in compared
    assert "found in the cellar" in compared or "cellar:bright" in compared
    results = json.loads(evaluated)
    assert results["dataset"] == "the attic"
    assert list(results["methods"]) == ["dust", "l2caf"]
    assert results["methods"]["dust"]["gt_known"]["value"] == 100
    assert "Dust map" in (scratch / "maps" / "report.html").read_text()


def test_a_plain_evaluation_asks_the_new_method_too(scratch: Path) -> None:
    (evaluated,) = said(scratch, "evaluate attic pictures --network cellar:bright --classes predicted --out all --json")
    assert "dust" in json.loads(evaluated)["methods"]
