"""The worked example of volumes: short, quick, in the docs with its picture, and right about the place."""

from __future__ import annotations

import importlib
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch
from PIL import Image

ROOT = Path(__file__).parents[2]


def test_the_lesion_is_found_at_its_place_of_the_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples" / "volumes")
    example = importlib.import_module("lesion")
    with torch.random.fork_rng():
        heatmap = example.main(str(tmp_path / "made.png"))
    assert set(heatmap.outcome) == {"exact"}
    scan, made = nib.load(tmp_path / "made.nii.gz"), nib.load(tmp_path / "made-map.nii.gz")
    np.testing.assert_array_equal(made.affine, scan.affine)
    values = made.get_fdata()
    hot = np.argwhere(values > 0.8 * values.max()).mean(axis=0)
    assert np.linalg.norm((made.affine @ [*hot, 1])[:3] - example.PLACE.numpy()) < 15  # the radius of the lesion
    kept = ROOT / "docs" / "pictures" / "volume-lesion.png"
    with Image.open(kept) as image, Image.open(tmp_path / "made.png") as drawn:
        assert image.size == drawn.size
        assert np.abs(np.asarray(image, float) - np.asarray(drawn, float)).mean() < 12


def test_the_example_is_short_and_shown() -> None:
    page = (ROOT / "docs" / "volumes.md").read_text(encoding="utf-8")
    (example,) = (ROOT / "examples" / "volumes").glob("*.py")
    assert len(example.read_text(encoding="utf-8").splitlines()) < 60
    for name in (f"../examples/volumes/{example.name}", "pictures/volume-lesion.png", "pictures/volume-head.png"):
        assert f"]({name})" in page
        assert (ROOT / "docs" / name).is_file()
