"""Every picture of the docs is made by a program in the repository, and the list of which one is complete."""

from __future__ import annotations

import re
import runpy
import shlex
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from l2caf.tasks.video import make_demo
from pages_for_tests import ROOT, check_words, make_targets

PICTURES = ROOT / "docs" / "pictures"
MADE_BY = tomllib.loads((PICTURES / "made-by.toml").read_text("utf-8"))
SUFFIXES = {".png", ".jpg", ".jpeg", ".gif", ".svg", ".mp4", ".webp"}
NET = """
import torch
from l2caf import Model
from l2caf.clips import ClipInput
from l2caf.preprocessing import Preprocessing

def build():
    network = torch.nn.Sequential(
        torch.nn.Conv3d(3, 4, (2, 16, 16), stride=(2, 16, 16)), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool3d(1),
        torch.nn.Flatten(), torch.nn.Linear(4, 3),
    )
    prepare = Preprocessing((64, 64), (72, 72))
    return Model("mine", network.eval(), prepare, clip=ClipInput(frames=8, channels_first=True))
"""


def is_listed(picture: str) -> bool:
    return any(fnmatchcase(picture, name) for name in MADE_BY)


def test_the_list_is_complete() -> None:
    pictures = {file.relative_to(PICTURES).as_posix() for file in PICTURES.rglob("*") if file.suffix in SUFFIXES}
    missing = {name for name in pictures if not is_listed(name)}
    assert not missing, f"docs/pictures/made-by.toml does not say which command made {', '.join(sorted(missing))}"
    assert not {name for name in MADE_BY if "*" not in name} - pictures


def test_every_picture_of_the_pages_is_on_the_list() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"!\[[^\]]*\]\(([^)\s]+)\)", page.read_text("utf-8")):
            picture = (page.parent / target).resolve()
            assert is_listed(picture.relative_to(PICTURES).as_posix()), f"{page.name}: {target}"


@pytest.mark.parametrize("name", sorted(MADE_BY))
def test_every_command_could_run(name: str) -> None:
    tool, *words = shlex.split(MADE_BY[name])
    if tool == "python":
        script = ROOT / words[0]
        assert script.is_file()
        assert f"docs/pictures/{name}" in words or ("*" in name and "docs/pictures" in words)
    elif tool == "make":
        assert words[0] in make_targets()
    else:
        assert tool == "l2caf"
        check_words(words, "made-by.toml")


def test_the_decision_picture_is_what_the_script_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = ROOT / "examples" / "decision_picture.py"
    monkeypatch.setattr("sys.argv", [str(script), str(tmp_path / "choose.png")])
    runpy.run_path(str(script), run_name="__main__")
    drawn, kept = (
        np.asarray(Image.open(file).convert("RGB"), np.float32)
        for file in (tmp_path / "choose.png", PICTURES / "choose.png")
    )
    assert drawn.shape == kept.shape
    assert np.abs(drawn - kept).mean() < 3, (
        "draw it again: python examples/decision_picture.py docs/pictures/choose.png"
    )


def test_the_strip_of_a_clip_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("av")
    (tmp_path / "nets.py").write_text(NET, encoding="utf-8")
    script = runpy.run_path(str(ROOT / "examples" / "video_pictures.py"))
    clip = make_demo(tmp_path / "demo.mp4")
    script["filmstrip"](tmp_path / "strip.png", str(clip), f"{tmp_path / 'nets.py'}:build")
    with Image.open(tmp_path / "strip.png") as strip:
        assert strip.width > 800
