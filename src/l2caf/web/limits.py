"""How large an upload may be, and the one place where an uploaded picture is opened: looked at before it is decoded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from ..clips import open_clip
from ..errors import ImageError, InputError
from ..images import open_image

MEGA = 1_000_000


@dataclass(frozen=True)
class Limits:
    """What one visitor may ask for.

    upload_mb    megabytes of one file
    megapixels   of one picture, and of one frame of a clip: a small file can unpack to a very large one
    frames       of a clip that are explained; a longer one is sampled more thinly
    files        uploaded pictures of one gallery
    seconds      of one search for a map: others wait for it
    """

    upload_mb: float = 50
    megapixels: float = 40
    frames: int = 600
    files: int = 200
    seconds: float = 60

    def __post_init__(self) -> None:
        for name in ("upload_mb", "megapixels"):
            if not 0 < getattr(self, name) < float("inf"):
                raise InputError(f"A limit of {getattr(self, name)} lets nothing in: give more than 0.", field=name)

    @property
    def upload_bytes(self) -> int:
        return int(self.upload_mb * MEGA)

    @property
    def words(self) -> str:
        """The limits of a picture, for whoever uploads one."""
        return f"at most {self.upload_mb:g} MB and {self.megapixels:g} megapixels"

    def open_image(self, path: Path) -> Image.Image:
        """An uploaded picture, upright RGB; one that is too large is refused by what its header says."""
        try:
            self.check_picture(path)
            return open_image(path)
        except ImageError as error:
            error.field = "image"
            raise

    def check_picture(self, path: Path) -> None:
        """Refuse a picture that is too large, by what its header says."""
        self._check_bytes(path)
        self._check_pixels(path)

    def check_clip(self, path: Path) -> int:
        """Refuse a clip whose frames are too large; else give the N of which every Nth frame keeps within the limit."""
        self._check_bytes(path)
        clip = open_clip(path)
        first = next(iter(clip)).picture
        if first.width * first.height > self.megapixels * MEGA:
            raise self._too_many(path, first.size)
        return max(1, -(-(clip.announced or 1) // self.frames))

    def _check_bytes(self, path: Path) -> None:
        if path.is_file() and path.stat().st_size > self.upload_bytes:
            raise ImageError(
                f"'{path.name}' has {path.stat().st_size / MEGA:.1f} MB, and {self.upload_mb:g} MB is the most here:"
                " scale it down.",
                field="image",
            )

    def _check_pixels(self, path: Path) -> None:
        try:
            with (
                path.open("rb") as file,
                Image.open(file) as header,
            ):  # some decoders leave a file open that they fail at
                size = header.size
        except Image.DecompressionBombError:
            raise self._too_many(path, None) from None
        except Exception:  # noqa: BLE001 - whatever is wrong with it, `open_image` says in a sentence
            return
        if size[0] * size[1] > self.megapixels * MEGA:
            raise self._too_many(path, size)

    def _too_many(self, path: Path, size: tuple[int, int] | None) -> ImageError:
        found = "too many pixels" if size is None else f"{size[0]}×{size[1]} pixels"
        return ImageError(
            f"'{path.name}' unpacks to {found}, and {self.megapixels:g} megapixels are the most here: scale it down.",
            field="image",
        )
