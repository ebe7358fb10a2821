"""The documents that the commands print with --json, from made files in a folder of their own."""

from __future__ import annotations

import io
import json
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import stripes
from golden.maps import photograph
from l2caf.cli import main

NETS = """
import torch
from torch import nn

def _trunk():
    torch.manual_seed(0)
    return [nn.Conv2d(3, 8, 28, stride=28), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]

def straight():
    return nn.Sequential(*_trunk(), nn.Linear(8, 4))

def curved():
    return nn.Sequential(*_trunk(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))

class Bright(nn.Module):
    def __init__(self):
        super().__init__()
        self.map = nn.AvgPool2d(28)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.scores = nn.Linear(3, 4)
        with torch.no_grad():
            self.scores.weight.copy_(torch.tensor([[1.0, 0.1, 0.0], [0.0, 1.0, 0.2], [0.3, 0.0, 1.0], [-1, -1, -1.5]]))
            self.scores.bias.zero_()
    def forward(self, images):
        return self.scores(self.pool(self.map(images + 2.2)).flatten(1))

def bright():
    return Bright()
"""


@dataclass(frozen=True)
class Command:
    """A command line, without --json, and the places of its document whose values are left open."""

    line: str
    open: tuple[str, ...] = ()


SEARCHED = ("*/steps", "*/evaluations", "*/loss")  # rounding alone changes them
COMMANDS: dict[str, Command] = {
    "explain": Command("explain cat.png --out out"),
    "explain, top 2": Command("explain cat.png cup.png --top 2 --npy --box --out out"),
    "explain, a class": Command("explain cat.png --class 285 --published --out out"),
    "explain, whole": Command("explain cup.png --class espresso --signed --view whole --bare --out out"),
    "explain, gradcam": Command("explain cat.png --method gradcam --out out"),
    "explain, cam": Command("explain cat.png --method cam --top 1 --out out"),
    "explain, searched": Command("explain cat.png --network nets.py:curved --out out", SEARCHED),
    "explain, descent": Command(
        "explain cat.png --network nets.py:straight --solver gradient-descent --out out", SEARCHED
    ),
    "explain, some files bad": Command("explain cat.png bad.png none.png --network nets.py:straight --out out"),
    "explain, all files bad": Command("explain bad.png none.png --network nets.py:straight --out out"),
    "explain, bad option": Command("explain cat.png --top 9 --network nets.py:straight --out out"),
    "explain, unknown option": Command("explain cat.png --nothing", ("error",)),  # its words are those of click
    "compare": Command("compare cat.png --out out"),
    "compare, head not affine": Command("compare cat.png --class 1 --network nets.py:curved --out sheet.png"),
    "animate": Command("animate cat.png --frames 3 --steps 60 --out out", ("steps",)),
    "animate, a class": Command(
        "animate cat.png --class 2 --network nets.py:straight --frames 3 --out slow.gif", ("steps", "outcome")
    ),
    # How many networks there are is up to the installed version of their library.
    "networks": Command("networks", ("1/description", "2/description")),
    "networks, pattern": Command("networks torchvision:resnet1*"),
    "layers": Command("layers efficientnet_lite0"),
    "layers, own": Command("layers nets.py:curved"),
    "match": Command("match query.png gallery --network nets.py:bright --top 3 --out out"),
    "match, classifier": Command("match query.png gallery --top 2 --contrast 1:2 --out out"),
    "evaluate": Command(
        "evaluate manifest boxes/boxes.csv --network nets.py:bright --classes labels --batch 4 --out out"
        " -m l2caf -m l2caf-class -m l2caf-published -m cam -m gradcam -m gradcam-abs"
    ),
    "evaluate, retrieval": Command(
        "evaluate manifest boxes/boxes.csv --network nets.py:bright --embedding --protocol retrieval --batch 4"
        " --view squash --out out"
    ),
    "evaluate, retrieval without boxes": Command(
        "evaluate folder stripes --network nets.py:bright --embedding --protocol retrieval --limit 12 --out out"
    ),
    "sanity": Command("sanity cat.png cup.png query.png --network nets.py:straight --seeds 2 --stages 2 --out out"),
    "time": Command(
        "time efficientnet_lite0 --rounds 1 --out out",
        ("machine", "*/seconds/*", "*/rounds/*", "*/steps"),
    ),
    "train": Command(
        "train retrieval folder stripes --loss npair --iterations 2 --freeze trunk --views 1 --dimension 8"
        " --device cpu --out out",
        ("seconds", "*/seconds"),
    ),
}


def lay_out(folder: Path) -> None:
    """Write the files that the commands read."""
    (folder / "nets.py").write_text(NETS)
    for name, source in (("cat.png", "chelsea.png"), ("cup.png", "coffee.png")):
        (folder / name).write_bytes(photograph(source).read_bytes())
    (folder / "bad.png").write_text("no picture")
    draw = np.random.default_rng(0)
    _square(folder / "query.png", draw, 0)
    for number, group in enumerate(("red", "green", "blue", "blue")):
        _square(folder / "gallery" / group / f"{number}.png", draw, min(number, 2))
    lines = ["file,label,x0,y0,x1,y1"]
    for number in range(12):
        x, y = _square(folder / "boxes" / f"{number:02}.png", draw, number % 3)
        if number % 4 == 3:  # a box that is not about the square
            x, y = 40 - x, 40 - y
        label = (number + (number == 5)) % 3  # and one label that is wrong
        lines.append(f"{number:02}.png,{label},{x},{y},{x + 24},{y + 24}")
    lines.append("bad.png,0,0,0,8,8")
    (folder / "boxes" / "bad.png").write_text("no picture")
    (folder / "boxes" / "boxes.csv").write_text("\n".join(lines) + "\n")
    stripes.folder(folder / "stripes", classes=3, each=8)


def _square(path: Path, draw: np.random.Generator, colour: int) -> tuple[int, int]:
    """A noisy picture of 64 x 64 with a square of 24 x 24 in one colour; where it lies."""
    pixels = draw.integers(0, 60, (64, 64, 3), dtype=np.uint8)
    x, y = (int(corner) for corner in draw.integers(0, 40, 2))
    pixels[y : y + 24, x : x + 24, colour] = draw.integers(150, 256)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return x, y


def run(name: str, folder: Path) -> dict[str, Any]:
    """Run a command in a fresh folder: its exit code, its document, and the files that it left."""
    lay_out(folder)
    before = _files(folder)
    printed = io.StringIO()
    with chdir(folder), redirect_stdout(printed), redirect_stderr(io.StringIO()):
        code = main([*COMMANDS[name].line.split(), "--json"])
    document = _opened(json.loads(printed.getvalue()), COMMANDS[name].open)
    return {"code": code, "document": document, "files": sorted(_files(folder) - before)}


def _files(folder: Path) -> set[str]:
    found = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    return {path.as_posix() for path in found if "__pycache__" not in path.parts}


def _opened(value: Any, patterns: tuple[str, ...], place: str = "") -> Any:
    """The document with the names of types in place of the values that are left open; other numbers rounded."""
    if isinstance(value, dict):
        return {key: _opened(inner, patterns, f"{place}/{key}") for key, inner in value.items()}
    if isinstance(value, list):
        return [_opened(inner, patterns, f"{place}/{number}") for number, inner in enumerate(value)]
    if any(fnmatchcase(place.removeprefix("/"), pattern) for pattern in patterns):
        return f"<{type(value).__name__}>"
    return float(f"{value:.6g}") if isinstance(value, float) else value


def differences(expected: Any, found: Any, place: str = "") -> list[str]:
    """Say where two documents differ: in keys, types, lengths, or values beyond rounding."""
    if type(expected) is not type(found):
        return [f"{place}: {found!r}, was {expected!r}"]
    if isinstance(expected, dict):
        said = [f"{place}/{key}: gone" for key in expected.keys() - found.keys()]
        said += [f"{place}/{key}: new" for key in found.keys() - expected.keys()]
        for key in expected.keys() & found.keys():
            said += differences(expected[key], found[key], f"{place}/{key}")
        return sorted(said)
    if isinstance(expected, list):
        if len(expected) != len(found):
            return [f"{place}: {len(found)} entries, were {len(expected)}"]
        pairs = enumerate(zip(expected, found, strict=True))
        return [words for number, (one, other) in pairs for words in differences(one, other, f"{place}/{number}")]
    same = found == pytest.approx(expected, rel=1e-3, abs=1e-4) if isinstance(expected, float) else found == expected
    return [] if same else [f"{place}: {found!r}, was {expected!r}"]
