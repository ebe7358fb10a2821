"""Code of the user's own: a fault in it is told with its place, and torchvision imports whatever build torch is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import l2caf
from l2caf.errors import CatalogueError
from l2caf.networks.embedding import load_backbone

NETS = """
import torch
from torch import nn

def build():
    return wired()

def wired():
    return nn.Linear(3, 4)(torch.zeros(2, 5))

def sized(classes, width=8):
    return nn.Linear(width, classes)

class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()

def good(classes=3):
    return nn.Linear(2, classes)
"""


@pytest.fixture
def nets(tmp_path: Path) -> Path:
    file = tmp_path / "nets.py"
    file.write_text(NETS)
    return file


def test_a_fault_in_a_builder_is_told_with_its_place(nets: Path) -> None:
    with pytest.raises(CatalogueError, match=r"RuntimeError: mat1.*nets\.py, line 9\): fix it there") as caught:
        l2caf.load(f"{nets}:build")
    assert "argument" not in str(caught.value)
    assert isinstance(caught.value.__cause__, RuntimeError)  # with its whole traceback


@pytest.mark.parametrize("name", ["sized", "Net"])
def test_a_builder_that_needs_arguments_is_told_so(nets: Path, name: str) -> None:
    with pytest.raises(CatalogueError, match=r"needs arguments .*'classes'\): give a function that runs without any"):
        l2caf.load(f"{nets}:{name}")


def test_a_builder_with_defaults_runs(nets: Path) -> None:
    assert l2caf.load(f"{nets}:good").network.out_features == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def build(:\n    pass", r"SyntaxError: .*broken\.py, line 1\): fix it there"),
        ("import math\n\nmath.sqrt('a')", r"TypeError: .*broken\.py, line 3\): fix it there"),
        ("import nothing_of_this_name", r"No module named 'nothing_of_this_name'\): install what it needs"),
    ],
    ids=["syntax", "import", "missing"],
)
def test_a_file_that_cannot_be_imported_is_told_with_the_place(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "broken.py").write_text(text)
    with pytest.raises(CatalogueError, match=said):
        l2caf.load(f"{tmp_path / 'broken.py'}:build")


def test_torchvision_imports_after_l2caf_beside_any_torch(tmp_path: Path) -> None:
    """In a network file, and in a program, whether or not its operators load here."""
    (tmp_path / "own.py").write_text(
        "import torchvision\nfrom torch import nn\ndef build():\n    return nn.Linear(2, 2)\n"
    )
    program = "import l2caf; l2caf.load('own.py:build'); import timm, torch, torchvision.models"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


STAND_IN = """
from torchvision import ops
value = ops.value
"""
OPERATORS = """
import torch
if not hasattr(torch.ops.torchvision, "nms"):
    raise RuntimeError("operator torchvision::nms does not exist")
value = 3
"""


def test_operators_are_declared_where_they_are_missing_and_only_there(tmp_path: Path) -> None:
    package = tmp_path / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text(STAND_IN)
    (package / "ops.py").write_text(OPERATORS)
    program = "import sys; sys.path.insert(0, '.'); import l2caf, torchvision; print(torchvision.value)"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.strip() == "3", done.stderr
    (package / "ops.py").write_text("raise RuntimeError('something else')")
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert "RuntimeError: something else" in done.stderr


def test_the_default_network_has_the_name_that_timm_gives_it() -> None:
    """Its weights load into timm's efficientnet_lite0 too, which pads otherwise; the old name still means ours."""
    ours = l2caf.load(pretrained=False)
    assert ours.name == "tf_efficientnet_lite0"
    old = l2caf.load("efficientnet_lite0", pretrained=False)
    assert (old.name, old.preprocess) == (ours.name, ours.preprocess)
    assert load_backbone("efficientnet_lite0", pretrained=False).name == ours.name
