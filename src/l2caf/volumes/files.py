"""Volumes in files: NIfTI, with the affine that says where the voxels lie in the world, and `.npy`."""

from __future__ import annotations

import gzip
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ExtraError, FileError, InputError, first_line
from ..files import write_whole

NIFTI = (".nii", ".nii.gz")
ENDINGS = (*NIFTI, ".npy")
FLATTEST = 1e-6  # of the volume of a voxel, as a share of what its edges could span: less is a plane

Values = npt.NDArray[np.float32]
Affine = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Volume:
    """A scan: `values` (i, j, k) as they are stored, with the file's slope and intercept.

    affine  4x4, from voxels (i, j, k) to millimetres; None where nobody said, as of an .npy
    header  that of the file, for the maps that are written beside it
    """

    values: Values
    affine: Affine | None = None
    name: str = "the volume"
    header: Any = field(default=None, repr=False)

    @property
    def shape(self) -> tuple[int, int, int]:
        i, j, k = self.values.shape
        return i, j, k

    @property
    def spacing(self) -> tuple[float, float, float]:
        """How far apart the voxels are along i, j and k, in millimetres; 1 where nobody said."""
        if self.affine is None:
            return 1.0, 1.0, 1.0
        i, j, k = np.linalg.norm(self.affine[:3, :3], axis=0).tolist()
        return i, j, k

    @property
    def is_placed(self) -> bool:
        """Whether the file says where it lies; else nibabel centres it, with i from right to left."""
        return self.affine is not None and (self.header is None or _is_coded(self.header))


def ending_of(path: Path) -> str:
    """The ending of a file, .nii.gz as one.

    >>> ending_of(Path("head.T1.nii.gz")), ending_of(Path("map.NII"))
    ('.nii.gz', '.nii')
    """
    name = path.name.lower()
    return ".nii.gz" if name.endswith(".nii.gz") else path.suffix.lower()


def is_volume(path: Path) -> bool:
    """Whether a file holds a volume: a NIfTI, or an .npy of three axes or more.

    >>> is_volume(Path("head.nii.gz")), is_volume(Path("photo.jpg"))
    (True, False)
    """
    if ending_of(path) != ".npy":
        return ending_of(path) in NIFTI
    try:
        return np.load(path, mmap_mode="r").ndim > 2
    except (OSError, ValueError):
        return False


def read_volume(path: str | Path) -> Volume:
    """Read a NIfTI (.nii, .nii.gz), or an .npy of three axes."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"There is no file '{path}': give the path of a .nii, .nii.gz or .npy volume.")
    if ending_of(path) not in ENDINGS:
        raise InputError(f"'{path}' is no volume: give a file that ends in {', '.join(ENDINGS)}.")
    return _npy(path) if ending_of(path) == ".npy" else _nifti(path)


def as_volume(given: Any) -> Volume:
    """A volume however it is given: a path, an image of nibabel, an array (i, j, k), or a volume."""
    if isinstance(given, Volume):
        return given
    if isinstance(given, str | Path):
        return read_volume(given)
    if hasattr(given, "get_fdata"):
        name = given.get_filename() if hasattr(given, "get_filename") else None
        return _of_image(given, Path(name).name if name else "the image")
    if hasattr(given, "detach"):
        given = given.detach().cpu().float().numpy()
    if not hasattr(given, "shape"):
        raise InputError(f"A volume is wanted, not a {type(given).__name__}: give the path of a .nii.gz, or an array.")
    return Volume(_checked(np.asarray(given), "The array"), name="the array")


def write_volume(path: str | Path, values: npt.ArrayLike, *, like: Volume) -> Path:
    """Write values on the grid of a scan, (i, j, k) or one such for each of several, (n, i, j, k), as a NIfTI.

    It has the affine of the scan and all else that its header says of space, so that it lies on it voxel by voxel.
    """
    path, nib = Path(path), _nibabel()
    if ending_of(path) not in NIFTI:
        raise FileError(f"'{path}' is no name of a NIfTI: end it in {' or '.join(NIFTI)}.")
    if like.affine is None:
        raise InputError(
            f"{like.name} does not say where it lies in the world, which a NIfTI needs: save an .npy, or give the scan"
            " as a NIfTI."
        )
    array = np.asarray(values, np.float32)
    if array.ndim not in (3, 4) or array.shape[-3:] != like.shape:
        raise InputError(f"Values of shape {array.shape} do not lie on {like.name}, {like.shape}: give its own shape.")
    data = np.ascontiguousarray(array if array.ndim == 3 else np.moveaxis(array, 0, -1))
    header = _header_for(data, like.header)
    kind = nib.Nifti2Image if isinstance(header, nib.Nifti2Header) else nib.Nifti1Image
    stored = kind(data, like.affine, header).to_bytes()
    with write_whole(path) as temporary:
        # Without the hour the same map is the same file.
        temporary.write_bytes(gzip.compress(stored, 6, mtime=0) if ending_of(path) == ".nii.gz" else stored)
    return path


def _header_for(data: Values, header: Any) -> Any:
    """The header of a scan for a map on it: what says something of space, and nothing of the person or the values."""
    if header is None:
        return None
    made = header.copy()
    made.extensions.clear()
    made.set_data_dtype(np.float32)
    made.set_slope_inter(1, 0)
    made.set_intent("none")
    made["cal_min"], made["cal_max"] = float(data.min()), float(data.max())
    made["descrip"], made["aux_file"], made["db_name"], made["data_type"] = b"l2caf", b"", b"", b""
    return made


def _npy(path: Path) -> Volume:
    try:
        values = np.load(path)
    except Exception as error:  # damaged files fail in any way
        raise InputError(f"'{path}' cannot be read ({first_line(error)}): write it again with numpy.save.") from error
    return Volume(_checked(values, f"'{path}'"), name=path.name)


def _nifti(path: Path) -> Volume:
    nib = _nibabel()
    try:
        image = nib.load(path)
        return _of_image(image, path.name, f"'{path}'")
    except (InputError, ExtraError):
        raise
    except Exception as error:  # damaged files fail in any way
        raise InputError(
            f"'{path}' cannot be read as a NIfTI ({first_line(error)}): it may be cut off; fetch or write it again."
        ) from error


def _of_image(image: Any, name: str, said: str = "") -> Volume:
    said = said or name
    affine = None if image.affine is None else np.array(image.affine, np.float64)
    _check_affine(affine, said)
    header = image.header if isinstance(image.header, _nibabel().Nifti1Header) else None
    shape = tuple(image.shape)
    while len(shape) > 3 and shape[-1] == 1:
        shape = shape[:-1]
    if np.dtype(image.get_data_dtype()).kind not in "biuf" or len(shape) != 3:
        raise InputError(_no_volume(said, np.dtype(image.get_data_dtype()), shape, last=True))
    values = image.get_fdata(dtype=np.float32, caching="unchanged").reshape(shape)
    return Volume(_checked(values, said), affine, name, header)


def _checked(values: npt.NDArray[Any], said: str) -> Values:
    while values.ndim > 3 and values.shape[0] == 1:
        values = values[0]
    if values.dtype.kind not in "biuf" or values.ndim != 3 or values.size == 0 or min(values.shape) < 2:
        raise InputError(_no_volume(said, values.dtype, values.shape, last=False))
    floats = np.ascontiguousarray(values, np.float32)
    finite = np.isfinite(floats)
    if not finite.all():
        share = 1 - float(finite.mean())
        raise InputError(
            f"{said} holds NaN or infinity in {f'{share:.1%}' if share >= 0.001 else 'some'} of its voxels: put numbers"
            " there, such as numpy.nan_to_num(values)."
        )
    return floats


def _no_volume(said: str, kind: np.dtype[Any], shape: tuple[int, ...], *, last: bool) -> str:
    """Why something is no volume, and what to do."""
    size = "×".join(map(str, shape))
    if kind.kind not in "biuf":
        return f"{said} holds values of the kind {kind}: give a volume of real numbers, one for each voxel."
    if 0 in shape or len(shape) == 0:
        return f"{said} is empty ({size}): give a volume with voxels."
    if len(shape) < 3 or min(shape) < 2:
        return f"{said} is a single slice ({size}): give a volume of three axes, or the slice as a picture."
    one, count = (".slicer[..., 0] of nibabel", shape[-1]) if last else ("[0]", shape[0])
    return f"{said} holds {count} volumes ({size}), and one is explained at a time: give one of them, such as {one}."


def _check_affine(affine: Affine | None, said: str) -> None:
    if affine is None:
        return
    edges = affine[:3, :3] if affine.shape == (4, 4) else np.zeros((3, 3))
    with np.errstate(all="ignore"):
        spanned = float(np.prod(np.linalg.norm(edges, axis=0)))
        is_space = np.isfinite(affine).all() and spanned > 0 and abs(np.linalg.det(edges)) > FLATTEST * spanned
    if not is_space:
        raise InputError(
            f"{said} has an affine that puts its voxels into no space (singular, or not finite): correct it, for"
            " instance by nibabel's set_sform, or give the values as .npy."
        )


def _is_coded(header: Any) -> bool:
    """Whether the file itself says where it lies, in one of NIfTI's two ways."""
    return any(name in header and int(header[name]) > 0 for name in ("sform_code", "qform_code"))


def _nibabel() -> Any:
    try:
        import nibabel
    except ImportError as error:
        raise ExtraError("NIfTI files need nibabel: pip install nibabel.") from error
    return nibabel
