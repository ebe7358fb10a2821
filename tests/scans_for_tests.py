"""Scans of any orientation, with a bright block at a place of the world that is known."""

from __future__ import annotations

from pathlib import Path

import nibabel as nib
import numpy as np
from scipy.spatial.transform import Rotation

# Orientation, millimetres between voxels along i, j and k, and degrees that the scanner's box is turned by.
KINDS = {
    "RAS": ("RAS", (1.0, 1.0, 1.0), 0.0),
    "LAS": ("LAS", (1.0, 1.0, 1.0), 0.0),
    "LIA": ("LIA", (1.5, 1.0, 2.0), 0.0),
    "PSL, thick slices": ("PSL", (1.0, 4.0, 0.8), 0.0),
    "RPI, oblique": ("RPI", (1.0, 1.2, 3.0), 24.0),
    "SAL, oblique": ("SAL", (2.0, 1.0, 1.1), -17.0),
}
EXTENT = 64.0  # millimetres of each side, about
CENTRE = np.array([11.0, -23.0, 35.0])  # of the world, where the middle of every scan lies


def affine_of(kind: str) -> tuple[np.ndarray, tuple[int, int, int]]:
    """An affine and a shape, such that the scan covers the same part of the world in whatever way."""
    codes, spacing, degrees = KINDS[kind]
    directions = nib.orientations.inv_ornt_aff(
        nib.orientations.ornt_transform(
            nib.orientations.axcodes2ornt(tuple("RAS")), nib.orientations.axcodes2ornt(tuple(codes))
        ),
        (1, 1, 1),
    )[:3, :3]
    turned = Rotation.from_euler("xyz", [degrees, degrees / 2, -degrees / 3], degrees=True).as_matrix()
    shape = tuple(round(EXTENT / step) for step in spacing)
    affine = np.eye(4)
    affine[:3, :3] = turned @ directions * spacing
    affine[:3, 3] = CENTRE - affine[:3, :3] @ ((np.array(shape) - 1) / 2)
    return affine, shape  # type: ignore[return-value]


def scan_of(kind: str, block: np.ndarray, *, side: float = 8.0, seed: int = 0) -> nib.Nifti1Image:
    """Faint noise, and a bright cube of so many millimetres around a point of the world."""
    affine, shape = affine_of(kind)
    values = np.random.default_rng(seed).normal(100, 5, shape)
    world = np.moveaxis(np.indices(shape), 0, -1) @ affine[:3, :3].T + affine[:3, 3]
    values[(np.abs(world - block) <= side / 2).all(axis=-1)] = 400
    return nib.Nifti1Image(values.astype(np.int16), affine)


def saved(image: nib.Nifti1Image, path: Path) -> Path:
    nib.save(image, path)
    return path
