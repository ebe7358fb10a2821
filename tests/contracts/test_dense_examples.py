"""The worked examples of image-like outputs: short, quick, in the docs with a picture, and right about the place."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch

import l2caf

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "dense"
LAYERS = {"autoencoder": "3", "generator": "first", "instance_norm": "2", "unet": "bottom", "vae": "encoder"}
STEP = 8  # pixels beneath a position of each of these layers


def drawn(name: str, out: Path, monkeypatch: pytest.MonkeyPatch) -> l2caf.Heatmap:
    monkeypatch.syspath_prepend(FOLDER)
    with torch.random.fork_rng():
        heatmap: l2caf.Heatmap = importlib.import_module(name).main(str(out))
    return heatmap


@pytest.mark.parametrize("name", LAYERS)
def test_an_example_points_at_its_region(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heatmap = drawn(name, tmp_path / "made.png", monkeypatch)
    assert heatmap.layer == LAYERS[name]  # of those that name no layer, the bottleneck
    assert (tmp_path / "made.png").stat().st_size > 0
    y, x = divmod(int(heatmap.maps[0].argmax()), 64)
    assert heatmap.region is not None
    near = heatmap.region.mask[0, max(0, y - STEP) : y + STEP + 1, max(0, x - STEP) : x + STEP + 1]
    assert near.any()


def test_every_example_is_short_and_shown() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == set(LAYERS)
    page = (ROOT / "docs" / "dense.md").read_text(encoding="utf-8")
    for name in LAYERS:
        assert len((FOLDER / f"{name}.py").read_text(encoding="utf-8").splitlines()) < 60
        picture = f"pictures/dense-{name.replace('_', '-')}.png"
        assert f"]({picture})" in page
        assert (ROOT / "docs" / picture).is_file()
