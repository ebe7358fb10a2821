"""The Python in the docs runs: as it stands, from top to bottom, on small networks.

A block that begins with `# src/l2caf/….py` becomes that module; one that begins with `# a line of TABLE in …` joins
that table; all other blocks of a page share one namespace.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import l2caf
from l2caf.cli.app import run as command_line
from l2caf.datasets import Dataset, Sample
from l2caf.networks.model import Model
from l2caf.preprocessing import Preprocessing
from l2caf.table import Table
from networks_for_tests import Frames, seeded

ROOT = Path(__file__).parents[2]
FILE = re.compile(r"# src/(l2caf/\S+)\.py\n")
LINE = re.compile(r"# a line of (\w+) in src/(l2caf/\S+)\.py\n")


def blocks(page: str) -> Iterator[tuple[str, str]]:
    """The Python blocks of a page, each with where it stands."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for found in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield f"{page}:{text.count(chr(10), 0, found.start()) + 2}", found[1]


def module_name(path: str) -> str:
    return path.removesuffix("/__init__").replace("/", ".")


def small_network() -> nn.Module:
    torch.manual_seed(0)
    layers = {
        "layer3": nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU()),
        "layer4": nn.Sequential(nn.Conv2d(8, 8, 3, stride=2), nn.ReLU()),
        "mean": nn.AdaptiveAvgPool2d(1),
        "flat": nn.Flatten(),
        "scores": nn.Linear(8, 1000),
    }
    return nn.Sequential(OrderedDict(layers)).eval()


class Folded(nn.Module):
    """The frames of (B, T, 3, H, W) as rows of one batch."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 4, stride=4)
        self.scores = nn.Linear(8, 5)

    def forward(self, clip: Tensor) -> Tensor:
        maps: Tensor = self.conv(clip.flatten(0, 1)).relu()
        return self.scores(maps.mean(dim=(2, 3)).unflatten(0, clip.shape[:2]).mean(dim=1))


class Page:
    """One page, block by block."""

    def __init__(self, patch: pytest.MonkeyPatch, **names: Any) -> None:
        self.patch = patch
        self.names: dict[str, Any] = {"__name__": "page", **names}
        self.added: list[tuple[str, str]] = []
        # A dataclass looks for the module that it was defined in.
        patch.setitem(sys.modules, "page", ModuleType("page"))

    def run(self, page: str) -> None:
        for place, text in blocks(page):
            if found := FILE.match(text):
                self._add_module(module_name(found[1]), text, place)
            elif found := LINE.match(text):
                self._add_line(found[1], module_name(found[2]), text[found.end() :])
            else:
                exec(compile(text, place, "exec"), self.names)

    def _add_module(self, name: str, text: str, place: str) -> None:
        assert importlib.util.find_spec(name) is None, f"{place} would overwrite {name}"
        package, _, own = name.rpartition(".")
        module = ModuleType(name)
        module.__package__ = package
        self.patch.setitem(sys.modules, name, module)
        self.patch.setattr(importlib.import_module(package), own, module, raising=False)
        exec(compile(text, place, "exec"), vars(module))

    def _add_line(self, table: str, home: str, line: str) -> None:
        module = importlib.import_module(home)
        entry = eval(line.strip().removesuffix(","), vars(module))
        there = getattr(module, table)
        if isinstance(there, Table):
            assert entry.key not in there
            self.patch.setitem(there._entries, entry.key, entry)
            assert entry.load().__module__ == entry.home.partition(":")[0]
            self.added.append((table, entry.key))
        else:
            self.patch.setattr(module, table, (*there, entry))
            self.added.append((table, entry))


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Page:
    monkeypatch.chdir(tmp_path)
    noise = torch.Generator().manual_seed(0)
    images = torch.rand(2, 3, 32, 32, generator=noise)
    folder = tmp_path / "birds"
    folder.mkdir()
    for number in range(6):
        Image.new("RGB", (80, 72), (40 * number, 90, 200)).save(
            folder / f"{'wren' if number % 2 else 'owl'}_{number}.png"
        )
    photograph = Image.fromarray((torch.rand(240, 320, 3, generator=noise) * 255).byte().numpy())
    photograph.save(tmp_path / "photo.jpg")
    return Page(
        monkeypatch,
        network=small_network(),
        shared=seeded(Frames).eval(),
        folded=seeded(Folded).eval(),
        clip=torch.rand(2, 3, 3, 32, 32, generator=noise),
        images=images,
        photograph=photograph,
        folder=folder,
        prototype=torch.randn(1000, generator=noise),
        embedding=torch.randn(1000, generator=noise),
    )


@pytest.mark.parametrize("name", ["README.md", "docs/use.md"])
def test_the_python_of_a_page_runs(name: str, page: Page) -> None:
    page.run(name)


def test_the_python_of_the_page_on_retrieval_runs(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """With another network and other pictures than it names: those take a training and a download."""
    embeds = Model("small", small_network(), Preprocessing((32, 32), (36, 36)), embedding=True)
    birds = Dataset(
        "birds", tuple(Sample(file, file.name, n % 2) for n, file in enumerate(page.names["folder"].iterdir()))
    )
    monkeypatch.setattr("l2caf.networks.catalogue.load", lambda name: embeds)
    monkeypatch.setattr("l2caf.datasets.read", lambda kind, root, half: birds)
    page.run("docs/retrieval.md")
    assert page.names["neighbours"].indices.shape == (5, 6)


def test_every_part_of_the_page_on_extending_runs_and_joins(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    page.run("docs/extend.md")
    assert {table for table, _ in page.added} == {
        "METHODS", "LAYOUTS", "SOURCES", "LOADERS", "RECIPES", "WORKS", "COMMANDS",
    }  # fmt: skip
    assert page.names["heatmap"].method == "AttentionFilter"
    assert page.names["again"].name == page.names["model"].name
    weights = page.names["model"].network[0].weight
    torch.testing.assert_close(page.names["again"].network[0].weight, weights)
    assert page.names["result"].iterations == 2
    assert command_line(["predict", "photo.jpg", "--network", "tiny:10"]) == 0
    assert "photo.jpg" in capsys.readouterr().out


def test_the_pages_name_only_what_is_there() -> None:
    """Every dotted name of ours in code, and every file of ours, exists."""
    for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]):
        text = path.read_text(encoding="utf-8")
        made = {f"src/{found}.py" for found in FILE.findall(text)}
        for file in re.findall(r"`((?:src/l2caf/|tests/|docs/)?[a-z_]+(?:/[a-z_]+)*/[a-z_]+\.py)`", text):
            assert any((ROOT / base / file).exists() for base in ("", "src/l2caf")) or file in made, (
                f"{path.name}: {file}"
            )
        for dotted in re.findall(r"\bl2caf(?:\.[A-Za-z_]+)+", re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
            assert named(dotted), f"{path.name}: {dotted}"


def named(dotted: str) -> bool:
    """Whether a dotted name leads to something."""
    found: Any = l2caf
    for number, part in enumerate(parts := dotted.split(".")[1:], start=1):
        if not hasattr(found, part):
            try:
                importlib.import_module(".".join(["l2caf", *parts[:number]]))
            except ImportError:
                return False
        found = getattr(found, part)
    return True
