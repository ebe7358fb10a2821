"""Pictures from disk or from Pillow: whatever they hold, an upright RGB image or one clear sentence."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from .errors import FileError, ImageError, InputError
from .files import write_whole

SUFFIXES = frozenset(
    ".avif .bmp .gif .jfif .jp2 .jpe .jpeg .jpg .mpo .pbm .pgm .png .pnm .ppm .tga .tif .tiff .webp".split()
)
"""What counts as a picture inside a folder; a file that is named outright may have any suffix."""
WRITTEN = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")
"""The endings of pictures that are written."""
# Named, because Pillow also knows formats that run another program (EPS) or hold no pixels (HDF5, GRIB).
_FORMATS = ["AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "MPO", "PNG", "PPM", "TGA", "TIFF", "WEBP"]
_ORIENTATION = 0x0112


def open_image(path: str | os.PathLike[str]) -> Image.Image:
    """Read a picture as RGB, turned upright by its EXIF tag, transparency laid on white.

    Grey, palette, 16-bit, float and CMYK files are converted; of an animation the first frame is taken.
    Anything that cannot be read raises `ImageError`.
    """
    path = Path(path)
    _check_file(path)
    # Warnings are left alone: to set their filters aside does so for all threads, and several read pictures.
    try:
        return _decode(path)
    except ImageError:
        raise
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise _bomb(path) from error
    except PermissionError as error:
        raise ImageError(f"'{path}' may not be read; grant read permission.") from error
    except UnidentifiedImageError as error:
        raise ImageError(f"'{path}' is not an image that can be read; give a {_known()} file.") from error
    except Exception as error:  # a decoder that is fed rubbish may raise anything
        raise ImageError(f"'{path}' is truncated or damaged ({_reason(error)}); save or download it again.") from error


def as_photograph(image: Any) -> Image.Image:
    """A picture that was opened already, as `open_image` would give it: upright RGB, transparency on white.

    A path is opened. What `open_image` gave comes back as it is.

    >>> as_photograph(Image.new("LA", (2, 1), (0, 0))).getpixel((0, 0))
    (255, 255, 255)
    """
    if isinstance(image, str | os.PathLike):
        return open_image(image)
    if not isinstance(image, Image.Image):
        raise ImageError(
            f"The photograph is a {type(image).__name__}; give a PIL image, such as PIL.Image.fromarray makes of an"
            " array, or a path."
        )
    if 0 in image.size:
        raise ImageError(f"The photograph has no pixels ({image.width}×{image.height}); give another image.")
    return _rgb(_upright(image))


def image_files(paths: Iterable[str | os.PathLike[str]] | str | os.PathLike[str]) -> list[Path]:
    """List the pictures that the paths stand for, in the order given.

    A file stays as it is; a folder becomes the pictures in it and below, sorted, hidden ones left out.
    """
    if isinstance(paths, str | os.PathLike):
        paths = [paths]
    files: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            files += _files_below(path)
        elif path.exists():
            files.append(path)
        else:
            raise ImageError(f"'{path}' does not exist; check the path.")
    return files


def _check_file(path: Path) -> None:
    if path.is_dir():
        raise ImageError(f"'{path}' is a folder, not an image; give a file in it.")
    if not path.exists():
        raise ImageError(f"'{path}' does not exist; check the path.")
    if not path.is_file():  # a pipe or a device would be read without end
        raise ImageError(f"'{path}' is not a regular file; save the image to disk first.")
    if path.stat().st_size == 0:
        raise ImageError(f"'{path}' is empty (0 bytes); save or download it again.")


def _decode(path: Path) -> Image.Image:
    Image.init()
    with Image.open(path, formats=[name for name in _FORMATS if name in Image.OPEN]) as image:
        if 0 in image.size:
            raise ImageError(f"'{path}' has no pixels ({image.width}×{image.height}); give another image.")
        if Image.MAX_IMAGE_PIXELS is not None and image.width * image.height > Image.MAX_IMAGE_PIXELS:
            raise _bomb(path)
        image.load()
        photograph = _rgb(_upright(image))
        return photograph.copy() if photograph is image else photograph  # the file is closed now


def _bomb(path: Path) -> ImageError:
    return ImageError(
        f"'{path}' unpacks to more than {Image.MAX_IMAGE_PIXELS:,} pixels and may be a decompression bomb; "
        "scale it down, or raise PIL.Image.MAX_IMAGE_PIXELS if you trust it."
    )


def _upright(image: Image.Image) -> Image.Image:
    try:
        # Pillow would copy a picture that is upright already.
        return image if image.getexif().get(_ORIENTATION, 1) == 1 else ImageOps.exif_transpose(image)
    except Exception:  # noqa: BLE001 - a damaged EXIF block says nothing against the pixels
        return image


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith(("I", "F")):
        return Image.fromarray(_eight_bit(np.asarray(image))).convert("RGB")
    if image.has_transparency_data:
        coloured = image.convert("RGBA")
        white = Image.new("RGBA", coloured.size, "white")
        return Image.alpha_composite(white, coloured).convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")


def _eight_bit(pixels: np.ndarray) -> np.ndarray:
    """Bring 16-bit, 32-bit or float grey values to 0..255; Pillow itself would cut them off at 255."""
    if pixels.dtype.kind == "f":
        values = np.nan_to_num(pixels.astype(np.float64), nan=0.0, posinf=255.0, neginf=0.0)
        white = 1.0 if values.max() <= 1.0 else 255.0
    else:
        values = pixels.astype(np.float64)
        deep = pixels.dtype.itemsize == 2 or values.max() > 255
        white = max(65535.0, values.max()) if deep else 255.0
    return (values * (255.0 / white)).clip(0, 255).round().astype(np.uint8)


def _files_below(folder: Path) -> list[Path]:
    def refuse(error: OSError) -> None:
        raise ImageError(f"'{error.filename}' may not be read; grant read permission.") from error

    found: list[Path] = []
    for where, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [
            Path(where, name) for name in names if not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES
        ]
    if not found:
        raise ImageError(f"'{folder}' holds no images; give a folder with {_known()} files.")
    return sorted(found)


def _known() -> str:
    return "JPEG, PNG, WebP, TIFF, BMP or GIF"


def _reason(error: Exception) -> str:
    return str(error).strip().rstrip(".").splitlines()[0] if str(error).strip() else type(error).__name__


def save_picture(picture: Image.Image, path: str | os.PathLike[str], *, dpi: float | None = None) -> Path:
    """Save a picture in the format that the suffix names, whole or not at all; `dpi` says how large it is in print."""
    path = Path(path)
    if path.suffix.lower() not in WRITTEN:
        raise FileError(f"'{path}' names no picture format; end it in {', '.join(WRITTEN[:-1])} or {WRITTEN[-1]}.")
    if dpi is not None and (isinstance(dpi, bool) or not isinstance(dpi, int | float) or not 10 <= dpi <= 4800):
        raise InputError(f"The dpi is {dpi!r}; give pixels per inch, such as 300.", field="dpi")
    with write_whole(path) as temporary:
        # Flat colours and thin lines suffer at Pillow's default of 75; other formats ignore the number.
        options: dict[str, Any] = {} if dpi is None else {"dpi": (dpi, dpi)}
        picture.save(temporary, quality=92, **options)
    return path
