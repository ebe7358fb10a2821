"""What the docs say to type works as it stands: every block of Python and every command, page by page, in order.

A page starts with nothing defined, in a folder with small photographs and data sets, and with no packages but those
that a plain install has and the page itself installs (`pages_for_tests`).
"""

from __future__ import annotations

import importlib
import re
import runpy
import shlex
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

import l2caf
from l2caf.cli.app import run as command_line
from l2caf.methods.table import METHODS
from l2caf.networks.catalogue import DEFAULT
from l2caf.networks.class_names import imagenet_class_names
from l2caf.networks.model import Model
from l2caf.preprocessing import Preprocessing
from l2caf.tasks.moving_shapes import KINDS, write_clips
from l2caf.tasks.samples import sample
from made_datasets import birds, picture, text, wsol
from pages_for_tests import FILE, LANGUAGES, PAGES, READ, ROOT, Block, Page, blocks, check_words, prose, read

NETS = """
import torch

def build():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 5, stride=8), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
        torch.nn.Linear(8, 4),
    )
"""
# What a command is given beside its words on the page: the least that it can do.
CHEAPER = {
    "animate": "--steps 3 --frames 3",
    "evaluate": "--limit 4",
    "reproduce": "--budget 1 --limit 4 --rounds 1",
    "sanity": "--seeds 1 --stages 2 -m l2caf",
    "serve": "--port 0",
    "time": "--rounds 1",
    "train": "--iterations 1 --views 1",
    "train wsol": "--budget 1 --views 1 --stride 32",
    "video": "--stride 20",
}
# Pages of which more is asked than that they run.
EXTENDING, PORTED = "docs/extend.md", "docs/coming-from.md"
WRITTEN_BY_MAKE = ("docs/benchmarks.md", "docs/zoo.md")
# Whole minutes of work, or another machine.
MOST_NOT_RUN = 3


def small_model(name: str) -> Model:
    torch.manual_seed(0)
    layers = {
        "layer3": nn.Sequential(nn.Conv2d(3, 8, 3, stride=4), nn.ReLU()),
        "layer4": nn.Sequential(nn.Conv2d(8, 8, 3, stride=2), nn.ReLU()),
        "mean": nn.AdaptiveAvgPool2d(1),
        "flat": nn.Flatten(),
        "scores": nn.Linear(8, 1000),
    }
    network = nn.Sequential(OrderedDict(layers)).eval()
    return Model(name, network, Preprocessing((32, 32), (36, 36)), imagenet_class_names(), weights="random")


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Page:
    """A folder with what the pages speak of."""
    for name in ("photo.jpg", "query.jpg", "bird.jpg", "gallery/cat/1.jpg", "holiday/1.jpg", "photos/a/1.jpg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        sample("cat").resize((320, 213)).save(tmp_path / name)
    for number, name in enumerate(("gallery/cat/2.png", "gallery/dog/22.png", "photos/a/2.png", "photos/b/22.png")):
        picture(tmp_path / name, (64 + number, 64))
    for number in range(6):
        picture(tmp_path / "birds" / f"{'wren' if number % 2 else 'owl'}_{number}.png", (80, 72))
    assert len([*write_clips(tmp_path / "turns", each=3, kinds=KINDS[:2], length=3, side=64)]) == 6
    wsol(tmp_path / "data" / "imagenet")
    birds(tmp_path / "data" / "CUB_200_2011")
    picture(tmp_path / "one.png", (64, 64))
    picture(tmp_path / "second.png", (64, 64))
    text(tmp_path / "boxes.csv", "file,label,x0,y0,x1,y1", "one.png,1,5,6,25,26", "second.png,3,0,0,40,30")
    text(tmp_path / "mypackage" / "nets.py", NETS)
    text(tmp_path / "mypackage" / "__init__.py", "")
    monkeypatch.syspath_prepend(tmp_path)
    # What a page registers is gone after it.
    monkeypatch.setattr(METHODS, "_entries", dict(METHODS._entries))
    made: dict[str, Any] = {}
    exec(NETS, made)
    save_file(made["build"]().state_dict(), tmp_path / "mine.safetensors")
    return Page(tmp_path, monkeypatch, make_commands_cheap)


def make_commands_cheap(patch: pytest.MonkeyPatch, words: list[str]) -> list[str]:
    """Whatever network a command names, it gets a small one, and nothing is fetched: what a page shows is how it is
    asked for. Its Python runs on what it says, and so does training with what it leaves."""
    ours = ("embedding.safetensors", "clips.safetensors", "localiser.safetensors")
    trains = words[0] == "train" or {"table2", "table3"} & {*words}
    if not trains and not any(word.endswith(ours) for word in words):
        for source in ("embedded:Embedded", "from_timm:Timm", "from_torchvision:Torchvision"):
            module, _, name = source.partition(":")
            home = importlib.import_module(f"l2caf.networks.{module}")
            patch.setattr(getattr(home, name), "load", lambda self, name=DEFAULT, **given: small_model(name))
    if words[0] == "serve":  # until somebody stops it, which here is at once
        patch.setattr("l2caf.web.server.Server.wait", lambda self: None)
    return shlex.split(CHEAPER.get(" ".join(words[:2]), CHEAPER.get(words[0], "")))


@pytest.mark.parametrize("name", [name for name in PAGES if any(blocks(name)) and name not in (EXTENDING, PORTED)])
def test_every_block_of_a_page_runs(name: str, page: Page) -> None:
    page.run(name)


def test_every_part_of_the_page_on_extending_runs_and_joins(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    page.run(EXTENDING)
    assert {table for table, _ in page.added} == {
        "METHODS", "LAYOUTS", "SOURCES", "LOADERS", "RECIPES", "WORKS", "COMMANDS",
    }  # fmt: skip
    weights = page.names["model"].network[0].weight
    torch.testing.assert_close(page.names["again"].network[0].weight, weights)
    assert page.names["result"].iterations == 2
    assert command_line(["predict", "photo.jpg", "--network", "tiny:10"]) == 0
    assert "photo.jpg" in capsys.readouterr().out


# Which of our maps is the last that the script of the other library made.
THE_SAME = {
    "pytorch_grad_cam": lambda heatmap: heatmap.maps[:, 1],
    "captum": lambda heatmap: heatmap.maps.unsqueeze(1),
    "torchcam": lambda heatmap: heatmap.weights[1:, 2].clamp_min(0),  # it is not resized there
}


def test_ported_scripts_give_the_same_maps_in_fewer_lines(page: Page) -> None:
    """Each script of another library is followed by ours."""
    originals: dict[str, tuple[int, torch.Tensor]] = {}
    ported: list[str] = []

    def after(block: Block) -> None:
        length = sum(bool(line.strip()) for line in block.text.splitlines())
        if found := re.search("^from (pytorch_grad_cam|captum|torchcam)", block.text, re.MULTILINE):
            originals[found[1]] = length, torch.as_tensor(page.names["maps"]).detach()
        elif block.language == "python" and (waiting := [name for name in originals if name not in ported]):
            (library,) = waiting
            longer, theirs = originals[library]
            assert length < longer / 2, block.place
            torch.testing.assert_close(
                scaled(THE_SAME[library](page.names["heatmap"])), scaled(theirs), atol=2e-3, rtol=0
            )
            ported.append(library)

    page.run(PORTED, after)
    assert ported == list(THE_SAME)


def scaled(maps: torch.Tensor) -> torch.Tensor:
    """From 0 to 1, each for itself."""
    lowest, highest = maps.amin(dim=(-2, -1), keepdim=True), maps.amax(dim=(-2, -1), keepdim=True)
    assert (highest > lowest).all()
    return (maps - lowest) / (highest - lowest)


def test_every_block_says_its_language_and_few_are_not_run() -> None:
    """A block in another language, or in none, would be run by nobody."""
    every = [block for page in PAGES for block in blocks(page)]
    assert len(every) > 40
    assert not [block.place for block in every if block.language not in LANGUAGES]
    for block in every:
        if block.language == "console":
            assert all(line.startswith("$ ") for line in block.text.splitlines()), block.place
    assert len([block.place for block in every if block.not_run]) <= MOST_NOT_RUN


def test_a_forgotten_extra_is_noticed(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the tests have and a plain install has not is hidden from a page that does not install it."""
    for installs, fails in (("pip install -c constraints.txt .", True), ("pip install '.[train]'", False)):
        lines = f"```console\n$ {installs}\n```\n\n```python\nimport sklearn.metrics\n```\n"
        monkeypatch.setattr("pages_for_tests.read", lambda name, lines=lines: lines if name == "x.md" else read(name))
        if fails:
            with pytest.raises(ModuleNotFoundError):
                page.run("x.md")
        else:
            page.run("x.md")


def test_the_first_screen_of_the_readme_says_what_shows_what_and_runs() -> None:
    """What it is by line 3, a picture, install by line 20, code by line 30."""
    lines = read("README.md").splitlines()
    assert "neural network" in "\n".join(lines[:3])
    assert any(line.startswith("![") for line in lines[:10])
    assert any("pip install" in line for line in lines[:20])
    assert "```python" in lines[:30]


def test_the_picture_of_the_readme_is_what_the_code_draws() -> None:
    """Else draw it again, and look at it: python examples/readme_picture.py docs/pictures/prediction.png."""
    drawn = np.asarray(runpy.run_path(str(ROOT / "examples" / "readme_picture.py"))["draw"](["coffee.png"]), np.float32)
    with Image.open(ROOT / "docs" / "pictures" / "prediction.png") as image:
        kept = np.asarray(image.convert("RGB"), np.float32)
    height, width, _ = drawn.shape  # it is the first column
    assert np.abs(kept[:height, :width] - drawn).mean() < 3


def test_the_pages_name_only_what_is_there() -> None:
    """Every dotted name of ours in code, and every file of ours, exists."""
    for page in READ:
        text = read(page)
        made = {f"src/{found}.py" for found in FILE.findall(text)}
        for file in re.findall(r"`((?:src/l2caf/|tests/|docs/)?[a-z_]+(?:/[a-z_]+)*/[a-z_]+\.py)`", text):
            assert any((ROOT / base / file).exists() for base in ("", "src/l2caf")) or file in made, f"{page}: {file}"
        for dotted in re.findall(r"\bl2caf(?:\.[A-Za-z_]+)+", prose(page)):
            assert named(dotted), f"{page}: {dotted}"


def test_commands_in_running_text_are_understood() -> None:
    for page in READ:
        for words in re.findall(r"`l2caf ([a-z][^`…]*)`", prose(page)):
            check_words(shlex.split(words), page)


# Words that a reader has to translate, and what they stand for.
PLAIN = {
    "nought": "zero",
    "bent": "non-linear",
    "unit circle": "unit sphere",
    r"feels?": "depends on",
    r"(?:told|tell|tells) apart": "significantly different; distinguish",
    r"hears|heard": "depends on, matters",
    "given again": "run the same command again to resume",
    "goes on where": "run the same command again to resume",
    r"(?:map|number|loss|row) a (?:sample|frame|picture|image)": "per",
}


@pytest.mark.parametrize("page", [*(page for page in READ if page not in WRITTEN_BY_MAKE), "CHANGELOG.md"])
def test_the_pages_are_in_plain_technical_english(page: str) -> None:
    for word, plain in PLAIN.items():
        found = re.search(rf"\b(?:{word})\b", read(page), re.IGNORECASE)
        assert found is None, f"{page}: '{found[0]}' is better said as '{plain}'"


def test_links_lead_somewhere() -> None:
    for page in READ:
        for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
            if "://" not in target:
                file, _, anchor = target.partition("#")
                path = (ROOT / page).parent / file if file else ROOT / page
                assert path.exists(), f"{page}: {target}"
                assert not anchor or anchor in anchors(path.read_text(encoding="utf-8")), f"{page}: {target}"


def anchors(text: str) -> set[str]:
    """The anchors that GitHub gives to headings."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    }


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
