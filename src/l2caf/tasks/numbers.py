"""Arrays that grow row by row into one .npz file, however long they become: the rows wait on disk."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from ..files import write_whole


class Rows:
    """Rows of one shape, to become one array (rows, *shape)."""

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self._kind: tuple[tuple[int, ...], np.dtype[Any]] | None = None
        self.count = 0

    def add(self, row: npt.NDArray[Any]) -> None:
        if self._kind not in (None, (row.shape, row.dtype)):
            raise InputError("The maps of a clip have different sizes: bring its frames to one size.")
        self._kind = (row.shape, row.dtype)
        self._file.write(np.ascontiguousarray(row).tobytes())
        self.count += 1

    def copy_to(self, file: IO[bytes]) -> None:
        """Write them in the format of a .npy file."""
        shape, kind = self._kind or ((), np.dtype(np.float32))
        header = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": (self.count, *shape)}
        np.lib.format.write_array_header_1_0(file, header)
        self._file.seek(0)
        shutil.copyfileobj(self._file, file)

    def close(self) -> None:
        self._file.close()


def save_npz(path: Path, arrays: Mapping[str, npt.ArrayLike | Rows]) -> Path:
    """Write arrays under their names, as numpy.savez does, whole or not at all."""
    with write_whole(path) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                if isinstance(array, Rows):
                    array.copy_to(file)
                else:
                    np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)
    return path
