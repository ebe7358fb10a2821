"""What the book shows as files and as tables of calls runs."""

from __future__ import annotations

import importlib.util
import inspect
import re
import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

import l2caf
from l2caf.datasets import LAYOUTS
from l2caf.rendering.drawn import ALONE, OPTIONS
from pages_for_tests import ROOT, read

EXTEND = ROOT / "examples" / "extend"
KINDS = ("dataset", "filter", "network", "objective", "recipe", "solver")


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    """One file, imported; what it adds to a table is gone afterwards."""
    monkeypatch.setattr(LAYOUTS, "_entries", dict(LAYOUTS._entries))

    def load(kind: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"extend_{kind}", EXTEND / f"{kind}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_of_ones_own_does_what_its_file_says(kind: str, example: Any) -> None:
    """Each `main` asserts where its map lies, or what it trained."""
    with torch.random.fork_rng():
        assert example(kind).main() is not None


def test_every_file_is_shown_in_full() -> None:
    assert {file.stem for file in EXTEND.glob("*.py")} == {*KINDS}
    page = read("docs/extend-examples.md")
    for kind in KINDS:
        assert f"```{{literalinclude}} ../examples/extend/{kind}.py\n```" in page
        assert f"[file](../examples/extend/{kind}.py)" in page


def test_the_network_of_the_example_answers_to_its_colour(example: Any) -> None:
    network = example("network")
    heatmap, model = network.main(), network.build()
    view = model.preprocess(l2caf.images.as_photograph(network.sample("motorcycle")))
    red = view[0] - view[1:].mean(dim=0)
    assert red[heatmap.maps[0] > 0.5].mean() > 0.2 > red.mean()


def test_the_network_of_the_example_is_taken_by_the_command_line(tmp_path: Path) -> None:
    from l2caf.cli.app import run

    photograph = runpy.run_path(str(EXTEND / "network.py"))["sample"]("motorcycle")
    photograph.save(tmp_path / "photo.jpg")
    words = ["explain", str(tmp_path / "photo.jpg"), "--class", "red", "--out", str(tmp_path / "out.png")]
    assert run([*words, "--network", f"{EXTEND / 'network.py'}:build"]) == 0
    assert (tmp_path / "out.png").is_file()


# The tables of calls in `coming-from.md`


def rows(library: str) -> list[list[str]]:
    part = re.search(rf"\*\*{library}\*\*\n\n\|.*?\n\n", read("docs/coming-from.md") + "\n\n", re.DOTALL)
    assert part is not None, library
    lines = part[0].splitlines()[4:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("|")]


@pytest.mark.parametrize("library", ["pytorch-grad-cam", "torch-cam", "captum"])
def test_the_calls_of_ours_run(library: str) -> None:
    torch.manual_seed(0)
    net = nn.Sequential()
    net.layer3 = nn.Sequential(nn.Conv2d(3, 8, 5, stride=4), nn.ReLU())
    net.layer4 = nn.Sequential(nn.Conv2d(8, 8, 1), nn.ReLU())
    net.mean, net.flat, net.fc = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)
    dense = nn.Sequential(nn.Conv2d(3, 8, 8, stride=8), nn.ReLU(), nn.Upsample(scale_factor=8), nn.Conv2d(8, 5, 1))

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
            return self.net(first) * second

    x, mask = torch.rand(2, 3, 32, 32), torch.zeros(32, 32)
    mask[8:16, 8:16] = 1
    names = {
        "l2caf": l2caf,
        "x": x,
        "y": torch.rand(2, 1),
        "c": 3,
        "d": 4,
        "labels": [3, 4],
        "function": lambda o: o[:, 3],
    }
    names |= {"mask": mask, "category": 2}
    calls = [call for row in rows(library) for call in re.findall(r"`(l2caf\.[^`…]+\))`", row[1])]
    assert len(calls) >= 4
    for call in calls:
        network = dense if "Region" in call else Two() if "(x, y)" in call else net
        made = eval(call, {**names, "net": network})
        assert isinstance(made, (l2caf.Heatmap, l2caf.Method)), call


def test_what_the_others_are_said_to_have_is_there() -> None:
    import captum.attr
    import pytorch_grad_cam
    import pytorch_grad_cam.utils.image
    import pytorch_grad_cam.utils.model_targets
    import torchcam.methods
    import torchcam.utils
    from captum.attr import visualization

    homes = {
        "pytorch-grad-cam": (pytorch_grad_cam, pytorch_grad_cam.utils.image, pytorch_grad_cam.utils.model_targets),
        "torch-cam": (torchcam.methods, torchcam.utils),
        "captum": (captum.attr, visualization),
    }
    for library, modules in homes.items():
        theirs = " ".join(row[0] for row in rows(library))
        called = set(re.findall(r"(?<![\w.])([A-Za-z_]{4,})\(", theirs)) - {"extractor", "to_pil_image"}
        assert called
        for name in called:
            assert any(hasattr(module, name) for module in modules), f"{library}: {name}"


# The options of drawings


def test_the_table_of_drawings_has_every_option() -> None:
    part = read("docs/python.md").partition("## Drawings\n")[2].partition("\n## ")[0]
    listed = set(re.findall(r"`([a-z]+)=", "\n".join(line for line in part.splitlines() if line.startswith("| `"))))
    taken = {name for options in OPTIONS.values() for name in options} | {*ALONE, "fps", "title"}
    for call in (l2caf.Heatmap.overlay, l2caf.Heatmap.plot, l2caf.Heatmap.save):
        taken |= {*inspect.signature(call).parameters} - {"self", "path", "image", "style"}
    assert listed == taken
