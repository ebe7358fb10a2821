"""`l2caf explain --region … --channel …` on a segmentation network."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from commands_for_tests import Run

NETS = """
import torch
from torch import nn

def unet():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 6, 16, stride=16), nn.ReLU(), nn.ConvTranspose2d(6, 4, 16, stride=16), nn.Tanh(),
                         nn.Conv2d(4, 3, 1))

def scores():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 16, stride=16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
"""


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    path = tmp_path / "photo.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (224, 224, 3), np.uint8)).save(path)
    return path


@pytest.mark.parametrize(
    "asked", [("--region", "40,60,90,120", "--channel", "1"), ("--region", "40,60,90,120"), ("--channel", "1")]
)
def test_a_region_is_explained_and_drawn(run: Run, photo: Path, tmp_path: Path, asked: tuple[str, ...]) -> None:
    code, out, err = run("explain", photo, "--network", "nets.py:unet", *asked, "--out", "made.png", "--json")
    assert code == 0, err
    assert "row of class scores" not in err
    (one,) = json.loads(out)["images"]
    assert one["maps"][0]["outcome"] == "first_order"
    with Image.open(tmp_path / "made.png") as sheet:
        assert sheet.width > 3 * 224  # the photograph, the region on the output, the map


def test_a_mask_comes_from_a_file(run: Run, photo: Path, tmp_path: Path) -> None:
    mask = np.zeros((224, 224), np.uint8)
    mask[60:120, 40:90] = 255
    Image.fromarray(mask).save(tmp_path / "mask.png")
    np.save(tmp_path / "mask.npy", mask)
    found = []
    for region in ("40,60,90,120", "mask.png", "mask.npy"):
        code, _, err = run(
            "explain", photo, "--network", "nets.py:unet", "--region", region, "--npy", "--out", "m", "--json"
        )
        assert code == 0, err
        (path,) = (tmp_path / "m").glob("*.npy")
        found.append(np.load(path))
        path.unlink()
    np.testing.assert_allclose(found[1], found[0], atol=1e-6)
    np.testing.assert_allclose(found[2], found[0], atol=1e-6)


@pytest.mark.parametrize(
    ("network", "asked", "words"),
    [
        ("unet", ("--region", "40,60,90,320"), "lies outside of the output"),
        ("unet", ("--region", "40,60,40,90"), "--region: "),
        ("unet", ("--region", "40,60,40,90"), "is empty"),
        ("unet", ("--region", "40,60,90,120", "--channel", "7"), "--channel: Channel 7 is out of range"),
        ("unet", ("--region", "40,60,90"), "--region: '40,60,90' is no region"),
        ("unet", ("--region", "none.png"), "--region: 'none.png' is no region"),
        ("unet", ("--region", "nets.py"), "--region: The mask 'nets.py' cannot be read"),
        ("unet", ("--region", "40,60,90,120", "--class", "1"), "give one or the other"),
        ("scores", ("--region", "40,60,90,120"), "--region: The output has shape (1, 4), which has no such region"),
        ("scores", ("--channel", "1"), "which has no such region"),
    ],
)
def test_a_wrong_region_is_one_sentence(
    run: Run, photo: Path, network: str, asked: tuple[str, ...], words: str
) -> None:
    code, _, err = run("explain", photo, "--network", f"nets.py:{network}", *asked)
    assert code == 2
    (error,) = [line for line in err.splitlines() if line.startswith("error:")]
    assert words in error
