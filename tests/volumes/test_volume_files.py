"""Scans from disk, and maps on their voxels: by what nibabel reads and writes."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from l2caf.errors import FileError, InputError
from l2caf.volumes import Volume, is_volume, read_volume, write_volume
from scans_for_tests import KINDS, affine_of, saved


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ending", [".nii", ".nii.gz"])
def test_values_and_affine_are_those_of_nibabel(kind: str, ending: str, tmp_path: Path) -> None:
    affine, shape = affine_of(kind)
    image = nib.Nifti1Image(np.random.default_rng(0).integers(-50, 900, shape).astype(np.int16), affine)
    image.header.set_slope_inter(0.5, -3)
    path = saved(image, tmp_path / f"scan{ending}")
    scan = read_volume(path)
    theirs = nib.load(path)
    np.testing.assert_array_equal(scan.values, theirs.get_fdata(dtype=np.float32))
    np.testing.assert_array_equal(scan.affine, theirs.affine)
    np.testing.assert_allclose(scan.spacing, theirs.header.get_zooms(), rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("codes", [("sform",), ("qform",), ("sform", "qform")])
def test_a_map_written_and_read_again_lies_on_the_scan(kind: str, codes: tuple[str, ...], tmp_path: Path) -> None:
    affine, shape = affine_of(kind)
    image = nib.Nifti1Image(np.zeros(shape, np.uint8), None)
    for code in codes:
        getattr(image, f"set_{code}")(affine, 3)
    for code in {"sform", "qform"} - set(codes):
        getattr(image, f"set_{code}")(None, 0)
    image.header.set_xyzt_units("mm")
    image.header["descrip"], image.header["db_name"] = b"a person's name", b"a number"
    image.header.extensions.append(nib.nifti1.Nifti1Extension("comment", b"a person's name"))
    path = saved(image, tmp_path / "scan.nii.gz")
    values = np.random.default_rng(1).random((2, *shape), np.float32)
    written = nib.load(write_volume(tmp_path / "map.nii.gz", values, like=read_volume(path)))
    scan = nib.load(path)
    np.testing.assert_array_equal(written.affine, scan.affine)
    for code in ("sform_code", "qform_code", "xyzt_units"):
        assert written.header[code] == scan.header[code]
    np.testing.assert_array_equal(written.header.get_zooms()[:3], scan.header.get_zooms())
    np.testing.assert_array_equal(np.moveaxis(written.get_fdata(dtype=np.float32), -1, 0), values)
    assert written.get_data_dtype() == np.float32
    assert b"person" not in gzip.decompress((tmp_path / "map.nii.gz").read_bytes())


def test_the_same_map_is_the_same_file(tmp_path: Path) -> None:
    like = Volume(np.zeros((4, 5, 6), np.float32), np.diag([1.0, 2, 3, 1]))
    one, other = (write_volume(tmp_path / name, np.ones((4, 5, 6)), like=like) for name in ("a.nii.gz", "b.nii.gz"))
    assert one.read_bytes() == other.read_bytes()
    np.testing.assert_allclose(nib.load(one).affine, like.affine)
    assert {path.name for path in tmp_path.iterdir()} == {"a.nii.gz", "b.nii.gz"}


def test_an_array_on_disk(tmp_path: Path) -> None:
    values = np.random.default_rng(0).random((5, 6, 7))
    np.save(tmp_path / "volume.npy", values[None])
    np.save(tmp_path / "signal.npy", values[0])
    assert is_volume(tmp_path / "volume.npy")
    assert not is_volume(tmp_path / "signal.npy")
    scan = read_volume(tmp_path / "volume.npy")
    assert scan.affine is None
    np.testing.assert_array_equal(scan.values, values.astype(np.float32))


def singular(shape: tuple[int, ...] = (5, 6, 7)) -> nib.Nifti1Image:
    image = nib.Nifti1Image(np.zeros(shape, np.uint8), np.eye(4))
    image.header["sform_code"], image.header["srow_z"] = 1, [0, 0, 0, 0]
    return nib.Nifti1Image(np.zeros(shape, np.uint8), None, image.header)


def with_nan() -> nib.Nifti1Image:
    values = np.zeros((5, 6, 7), np.float32)
    values[:, 0] = np.nan
    return nib.Nifti1Image(values, np.eye(4))


BAD = {
    "two axes": (lambda: nib.Nifti1Image(np.zeros((5, 6), np.uint8), np.eye(4)), "is a single slice (5×6)"),
    "one slice": (lambda: nib.Nifti1Image(np.zeros((5, 6, 1), np.uint8), np.eye(4)), "is a single slice (5×6×1)"),
    "several volumes": (lambda: nib.Nifti1Image(np.zeros((5, 6, 7, 3), np.uint8), np.eye(4)), "holds 3 volumes"),
    "colours": (
        lambda: nib.Nifti1Image(np.zeros((5, 6, 7), [("R", "u1"), ("G", "u1"), ("B", "u1")]), np.eye(4)),
        "give a volume of real numbers",
    ),
    "complex numbers": (lambda: nib.Nifti1Image(np.zeros((5, 6, 7), np.complex64), np.eye(4)), "of the kind complex64"),
    "NaN": (with_nan, "holds NaN or infinity in 16.7% of its voxels"),
    "a singular affine": (singular, "puts its voxels into no space"),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_is_no_volume_is_one_sentence(kind: str, tmp_path: Path) -> None:
    made, said = BAD[kind]
    path = saved(made(), tmp_path / "scan.nii.gz")
    with pytest.raises(InputError, match=re.escape(said)) as caught:
        read_volume(path)
    assert "\n" not in str(caught.value)


def test_a_volume_with_axes_of_one_behind_is_one_volume(tmp_path: Path) -> None:
    image = nib.Nifti1Image(np.ones((5, 6, 7, 1, 1), np.uint8), np.eye(4))
    assert read_volume(saved(image, tmp_path / "scan.nii")).shape == (5, 6, 7)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.99])
@pytest.mark.parametrize("ending", [".nii", ".nii.gz", ".npy"])
def test_a_file_that_was_cut_off(share: float, ending: str, tmp_path: Path) -> None:
    values = np.random.default_rng(0).random((20, 21, 22), np.float32)
    path = tmp_path / f"scan{ending}"
    if ending == ".npy":
        np.save(path, values)
    else:
        saved(nib.Nifti1Image(values, np.eye(4)), path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(InputError, match="cannot be read"):
        read_volume(path)


def test_other_files(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"")
    (tmp_path / "text.nii").write_text("no NIfTI at all" * 99)
    for name, said in (("none.nii.gz", "There is no file"), ("photo.jpg", "is no volume"), ("text.nii", "cannot be")):
        with pytest.raises(InputError, match=said):
            read_volume(tmp_path / name)


def test_what_cannot_be_written(tmp_path: Path) -> None:
    like = Volume(np.zeros((4, 5, 6), np.float32), np.eye(4))
    with pytest.raises(FileError, match=r"end it in \.nii or \.nii\.gz"):
        write_volume(tmp_path / "map.gz", like.values, like=like)
    with pytest.raises(InputError, match="give its own shape"):
        write_volume(tmp_path / "map.nii", np.zeros((4, 5, 7)), like=like)
    with pytest.raises(InputError, match="does not say where it lies"):
        write_volume(tmp_path / "map.nii", like.values, like=Volume(like.values))
    assert not list(tmp_path.iterdir())
