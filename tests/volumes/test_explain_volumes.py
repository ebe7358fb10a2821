"""From a scan to a picture and a map on it with one command; what goes wrong is one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from PIL import Image

import l2caf
from l2caf.cli.app import run
from l2caf.networks.from_user import UserNetwork
from scans_for_tests import CENTRE, saved, scan_of

NETS = """
import torch
from torch import nn
from l2caf.volumes import VolumePreprocessing

class Brightest(nn.Module):
    def forward(self, x):
        low, high = (one.reshape(-1, 1, 1, 1, 1) for one in (x.flatten(1).amin(dim=1), x.flatten(1).amax(dim=1)))
        return (x - low - 0.7 * (high - low)).clamp_min(0) / (high - low)

def cells():
    torch.manual_seed(0)
    first = nn.Conv3d(1, 2, 4, stride=4)
    nn.init.ones_(first.weight)
    nn.init.zeros_(first.bias)
    return nn.Sequential(Brightest(), first)

def alone():
    return nn.Sequential(cells(), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(2, 3))

def build():
    return alone(), VolumePreprocessing(size=32)

def one_logit():
    return nn.Sequential(cells(), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(2, 1)), VolumePreprocessing(size=32)

def dense():
    return nn.Sequential(cells(), nn.Upsample(scale_factor=4), nn.Conv3d(2, 2, 1)), VolumePreprocessing(size=32)

def photographs():
    return nn.Sequential(nn.Conv2d(3, 2, 4)), lambda image: torch.zeros(3, 8, 8)
"""
BLOCK = CENTRE + np.array([9.0, -13.0, -18.0])
KIND = "RPI, oblique"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "nets.py").write_text(NETS)
    saved(scan_of(KIND, BLOCK), tmp_path / "head.nii.gz")
    np.save(tmp_path / "volume.npy", scan_of(KIND, BLOCK).get_fdata())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def hottest(path: Path) -> np.ndarray:
    image = nib.load(path)
    values = image.get_fdata()
    at = np.argwhere(values >= 0.8 * values.max()).mean(axis=0)
    return (image.affine @ [*at, 1])[:3]


@pytest.mark.parametrize(
    ("build", "asked"),
    [
        ("build", []),
        ("build", ["--class", "1"]),
        ("build", ["--method", "gradcam"]),
        ("one_logit", []),
        ("one_logit", ["--signed"]),
        ("alone", []),
        ("dense", []),
    ],
)
def test_one_command_from_scan_to_picture_and_map(
    folder: Path, build: str, asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["explain", "head.nii.gz", "-n", f"nets.py:{build}", *asked, "--nifti", "--npy", "--json", "-o", "maps"]
    assert run(words) == 0
    document = json.loads(capsys.readouterr().out)
    (found,) = document["images"]
    picture, nifti = map(Path, found["pictures"])
    assert picture.name.startswith("head-l2caf" if "gradcam" not in asked else "head-gradcam")
    assert ("turned so that their axes" in document["assumed"].get("preprocessing", "")) == (build == "alone")
    with Image.open(picture) as image:
        assert image.width > 900
        assert (np.ptp(np.asarray(image.convert("RGB")).astype(int), axis=2) > 100).sum() > 300
    scan, made = nib.load("head.nii.gz"), nib.load(nifti)
    np.testing.assert_array_equal(made.affine, scan.affine)
    assert made.shape == scan.shape
    if "--signed" not in asked and "1" not in asked:  # a class that nothing speaks for has an empty map
        assert np.abs(hottest(nifti) - BLOCK).max() < 8
    assert np.load(found["npy"]).ndim == 3


def test_a_region_is_named_in_voxels_of_the_scan_or_by_a_mask(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scan = nib.load("head.nii.gz")
    lit = scan.get_fdata() > 300
    nib.save(nib.Nifti1Image(lit.astype(np.uint8), scan.affine), "mask.nii.gz")
    np.save("mask.npy", lit)
    corners = [*np.argwhere(lit).min(axis=0).tolist(), *(np.argwhere(lit).max(axis=0) + 1).tolist()]
    for region in (",".join(map(str, corners)), "mask.nii.gz", "mask.npy"):
        words = ["explain", "head.nii.gz", "-n", "nets.py:dense", "--region", region, "--channel", "0", "--json"]
        assert run([*words, "--out", "map.nii.gz"]) == 0
        (found,) = json.loads(capsys.readouterr().out)["images"]
        assert found["maps"][0]["outcome"] == "exact"
        values = np.abs(nib.load("map.nii.gz").get_fdata())
        peak = np.argwhere(values == values.max()).mean(axis=0)
        assert np.abs((scan.affine @ [*peak, 1])[:3] - BLOCK).max() < 8, region
    assert run(["explain", "head.nii.gz", "-n", "nets.py:dense", "--region", "mask.npy", "--out", "asked.png"]) == 0
    with Image.open("asked.png") as image:
        assert image.height > 700  # a row for what was asked about, a row for the map
    document = capsys.readouterr()
    assert "output" not in document.err


def test_planes_montages_scrolls_figures_and_arrays(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["explain", "head.nii.gz", "-n", "nets.py:build"]
    for words in (
        ["--slice", "coronal:20", "--box", "--out", "one.jpg"],
        ["--slice", "k:3", "--bare", "--out", "k.png"],
        ["--montage", "sagittal", "--contours", "--out", "many.png"],
        ["--montage", "axial", "--top", "2", "--out", "two.png"],
        ["--top", "2", "--bare", "--out", "bare.png"],
        ["--top", "2", "--out", "both.nii.gz"],
        ["--out", "scroll.gif"],
        ["--slice", "sagittal", "--out", "across.gif"],
        ["--out", "figure.pdf"],
    ):
        assert run([*base, *words]) == 0, words
        assert Path(words[-1]).stat().st_size > 0
    assert nib.load("both.nii.gz").shape == (*nib.load("head.nii.gz").shape, 2)
    with Image.open("scroll.gif") as film, Image.open("across.gif") as other:
        assert film.n_frames == nib.load("head.nii.gz").shape[2]
        assert other.n_frames == nib.load("head.nii.gz").shape[0]
    assert run(["explain", "volume.npy", "-n", "nets.py:build", "--spacing", "1,1.2,3", "--slice", "z:4"]) == 0


def test_a_folder_stands_for_its_scans(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one.nii", "two.nii.gz", ".hidden.nii.gz"):
        (folder / "scans").mkdir(exist_ok=True)
        saved(scan_of("LAS", BLOCK), folder / "scans" / name)
    assert run(["explain", "scans", "-n", "nets.py:build", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["images"]
    assert [Path(one["file"]).name for one in found] == ["one.nii", "two.nii.gz"]
    assert [Path(one["pictures"][0]).name for one in found] == ["one-l2caf.png", "two-l2caf.png"]


def test_what_goes_wrong_is_one_sentence(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nib.save(nib.Nifti1Image(np.zeros((9, 9, 9, 4), np.uint8), np.eye(4)), "four.nii.gz")
    nib.save(nib.Nifti1Image(np.zeros((9, 9), np.uint8), np.eye(4)), "flat.nii.gz")
    nib.save(nib.Nifti1Image(np.full((9, 9, 9), np.nan, np.float32), np.eye(4)), "nan.nii.gz")
    nib.save(nib.Nifti1Image(np.zeros((9, 9, 9), np.uint8), np.eye(4)), "empty.nii.gz")
    (folder / "cut.nii.gz").write_bytes((folder / "head.nii.gz").read_bytes()[:3000])
    (folder / "photo.jpg").write_bytes(b"")
    region = ["--region", "empty.nii.gz"]
    for words, network, expected in (
        (["four.nii.gz"], "build", "holds 4 volumes"),
        (["flat.nii.gz"], "build", "is a single slice"),
        (["nan.nii.gz"], "build", "holds NaN or infinity in 100.0% of its voxels"),
        (["cut.nii.gz"], "build", "cannot be read as a NIfTI"),
        (["none.nii.gz"], "build", "There is no file"),
        (["head.nii.gz", "photo.jpg"], "build", "Volumes are given together with other files"),
        (["head.nii.gz"], "photographs", "prepares photographs, and 'head.nii.gz' is a volume"),
        (["empty.nii.gz", *region], "dense", "is empty, or lies where"),
        (["head.nii.gz", *region], "dense", "has the shape 9×9×9"),
        (["head.nii.gz", "--region", "0,0,0,500,5,5"], "dense", "reaches beyond head.nii.gz"),
        (["head.nii.gz", "--region", "1,1,5,5"], "dense", "box of a volume"),
        (["head.nii.gz", "--region", "1,1,1,5,5,5"], "build", "has no such region"),
        (["head.nii.gz", "--slice", "coronal"], "build", "give its name and its number"),
        (["head.nii.gz", "--slice", "oblique:3"], "build", "names no plane"),
        (["head.nii.gz", "--slice", "axial:900"], "build", "There are"),
        (["head.nii.gz", "--montage", "oblique"], "build", "names no planes"),
        (["head.nii.gz", "--montage", "axial", "--slice", "axial:3"], "build", "give the one or the other"),
        (["head.nii.gz", "--spacing", "1,2"], "build", "not three lengths"),
        (["head.nii.gz", "--spacing", "1,2,3"], "build", "says itself how far apart"),
        (["volume.npy", "--out", "map.nii.gz"], "build", "does not say where it lies"),
        (["head.nii.gz", "volume.npy", "--out", "one.png"], "build", "names one picture"),
        (["head.nii.gz", "--class", "9"], "build", "Class 9 is out of range"),
        (["head.nii.gz", "--top", "2", "--out", "x.gif"], "build", "shows one map"),
    ):
        assert run(["explain", *words, "--network", f"nets.py:{network}"]) == 2, words
        told = " ".join(capsys.readouterr().err.split())
        assert expected in told, (words, told)
        assert "Traceback" not in told
    assert run(["explain", "head.nii.gz", "nan.nii.gz", "--network", "nets.py:build"]) == 1
    assert run(["explain", "photo.jpg", "--network", "nets.py:build"]) == 2


def test_a_scan_that_does_not_say_how_it_lies_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = scan_of("RAS", BLOCK)
    image.set_sform(None, 0)
    image.set_qform(None, 0)
    nib.save(nib.Nifti1Image(image.get_fdata(dtype=np.float32), None, image.header), "loose.nii.gz")
    assert run(["explain", "loose.nii.gz", "-n", "nets.py:build", "--json", "--nifti"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert "does not say how it lies" in document["assumed"]["affine"]


def test_a_model_takes_paths_arrays_images_and_lists(folder: Path) -> None:
    model = UserNetwork().load("nets.py:build")
    by_path = model.explain("head.nii.gz")
    by_image = model.explain(nib.load("head.nii.gz"))
    assert by_path == by_image
    both = model.explain(["head.nii.gz", nib.load("head.nii.gz")])
    assert len(both) == 2
    assert both[1].scans is not None
    np.testing.assert_allclose(both.on_scan(1).numpy(), by_path.on_scan().numpy(), atol=1e-5)
    both.save("both.png")
    assert model.explain(np.load("volume.npy")).scans is not None
    with pytest.raises(l2caf.L2cafError, match="choose it with index="):
        both.save("both.nii.gz")
    with pytest.raises(l2caf.L2cafError, match="takes volumes, and a photograph is given"):
        model.prepare(Image.new("RGB", (30, 30)))


def test_tensors_of_ones_own_and_the_scan_that_they_were_made_from(folder: Path) -> None:
    model = UserNetwork().load("nets.py:build")
    inputs = model.preprocess("head.nii.gz")[None]  # type: ignore[arg-type]
    heatmap = l2caf.explain(model.network, inputs)
    heatmap.save("map.nii.gz", "head.nii.gz", preprocess=model.preprocess)
    assert np.abs(hottest(folder / "map.nii.gz") - BLOCK).max() < 8
    theirs = model.explain("head.nii.gz")
    np.testing.assert_allclose(nib.load("map.nii.gz").get_fdata(dtype=np.float32), theirs.on_scan().numpy(), atol=1e-5)
    heatmap.save("planes.png", nib.load("head.nii.gz"), preprocess=model.preprocess)
    theirs.save("theirs.png")
    with Image.open("planes.png") as one, Image.open("theirs.png") as other:
        assert np.abs(np.asarray(one, int) - np.asarray(other, int)).max() <= 2
    with pytest.raises(l2caf.L2cafError, match="add preprocess="):
        heatmap.save("planes.png", "head.nii.gz")
    with pytest.raises(l2caf.L2cafError, match="has other voxels than"):
        theirs.save("planes.png", scan_of("LAS", BLOCK))
