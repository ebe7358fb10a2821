"""Every kind of file that people hand over as a picture."""

from __future__ import annotations

import struct
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFile

from l2caf.errors import ImageError
from l2caf.images import image_files, open_image

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


def photograph(width: int = 64, height: int = 48) -> Image.Image:
    noise = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(noise)


def saved(image: Image.Image, path: Path, **options: object) -> Path:
    image.save(path, **options)
    return path


def one_clear_sentence(caught: pytest.ExceptionInfo[ImageError], path: Path) -> str:
    text = str(caught.value)
    assert str(path) in text
    assert "\n" not in text
    assert ";" in text, "the remedy follows the fault"
    assert text.endswith(".")
    return text


def test_rgb_comes_back_unchanged(tmp_path: Path) -> None:
    original = photograph()
    image = open_image(str(saved(original, tmp_path / "photo.png")))
    assert image.mode == "RGB"
    assert np.array_equal(image, original)


@pytest.mark.parametrize("size", [(1, 1), (10_000, 50), (50, 10_000)])
def test_odd_sizes(tmp_path: Path, size: tuple[int, int]) -> None:
    assert open_image(saved(Image.new("RGB", size, RED), tmp_path / "odd.png")).size == size


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tif", "bmp", "gif", "ppm", "tga", "jp2"])
def test_formats(tmp_path: Path, suffix: str) -> None:
    image = open_image(saved(Image.new("RGB", (16, 16), RED), tmp_path / f"red.{suffix}"))
    assert image.mode == "RGB"
    assert np.abs(np.asarray(image).astype(int) - RED).max() <= 4


def test_grey_and_black_and_white(tmp_path: Path) -> None:
    grey = open_image(saved(Image.new("L", (3, 2), 77), tmp_path / "grey.png"))
    assert grey.getpixel((1, 1)) == (77, 77, 77)
    assert open_image(saved(Image.new("1", (3, 2), 1), tmp_path / "one.png")).getpixel((0, 0)) == WHITE


@pytest.mark.parametrize(
    ("mode", "clear", "half"),
    [("RGBA", (255, 0, 0, 0), (255, 0, 0, 128)), ("LA", (0, 0), (0, 128))],
)
def test_transparency_lies_on_white(tmp_path: Path, mode: str, clear: tuple, half: tuple) -> None:
    image = Image.new(mode, (2, 1), clear)
    image.putpixel((1, 0), half)
    opened = open_image(saved(image, tmp_path / "glass.png"))
    assert opened.getpixel((0, 0)) == WHITE
    assert opened.getpixel((1, 0)) == ((255, 127, 127) if mode == "RGBA" else (127, 127, 127))


def test_palette_with_and_without_transparency(tmp_path: Path) -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([*RED, *BLUE])
    image.putpixel((1, 0), 1)
    opaque = open_image(saved(image, tmp_path / "palette.png"))
    assert [opaque.getpixel((x, 0)) for x in (0, 1)] == [RED, BLUE]
    glass = open_image(saved(image, tmp_path / "glass.png", transparency=b"\x00\xff"))
    assert [glass.getpixel((x, 0)) for x in (0, 1)] == [WHITE, BLUE]


def test_sixteen_bit_keeps_its_range(tmp_path: Path) -> None:
    ramp = np.array([[0, 257 * 100, 65535]], dtype=np.uint16)
    for name in ("deep.png", "deep.tif"):
        opened = open_image(saved(Image.fromarray(ramp), tmp_path / name))
        assert [opened.getpixel((x, 0))[0] for x in range(3)] == [0, 100, 255]


def test_thirty_two_bit_and_float(tmp_path: Path) -> None:
    whole = Image.fromarray(np.array([[0, 128, 255]], dtype=np.int32))
    unit = Image.fromarray(np.array([[0.0, 0.5, 1.0]], dtype=np.float32))
    for name, image in (("whole.tif", whole), ("unit.tif", unit)):
        opened = open_image(saved(image, tmp_path / name))
        assert [opened.getpixel((x, 0))[0] for x in range(3)] == [0, 128, 255]


def test_cmyk(tmp_path: Path) -> None:
    opened = open_image(saved(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), tmp_path / "print.jpg"))
    assert np.abs(np.asarray(opened).astype(int) - RED).max() <= 8


@pytest.mark.parametrize(("orientation", "corner"), [(1, (0, 0)), (3, (3, 2)), (6, (2, 0)), (8, (0, 3))])
def test_exif_turns_it_upright(tmp_path: Path, orientation: int, corner: tuple[int, int]) -> None:
    image = Image.new("RGB", (4, 3), BLUE)
    image.putpixel((0, 0), RED)
    exif = Image.Exif()
    exif[0x0112] = orientation
    opened = open_image(saved(image, tmp_path / "turned.png", exif=exif))
    assert opened.size == ((4, 3) if orientation in (1, 3) else (3, 4))
    assert opened.getpixel(corner) == RED
    assert opened.getexif().get(0x0112, 1) == 1, "nothing turns it a second time"


def test_damaged_exif_does_not_cost_the_picture(tmp_path: Path) -> None:
    path = saved(photograph(), tmp_path / "exif.jpg", exif=b"Exif\x00\x00" + b"\xff" * 40)
    assert open_image(path).size == (64, 48)


def test_an_animation_gives_its_first_frame(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (4, 4), colour) for colour in (RED, GREEN)]
    path = saved(frames[0], tmp_path / "film.gif", save_all=True, append_images=frames[1:])
    assert open_image(path).getpixel((0, 0)) == RED


@pytest.mark.parametrize("suffix", ["jpg", "png", "tif", "webp", "bmp"])
def test_truncated(tmp_path: Path, suffix: str) -> None:
    path = saved(photograph(), tmp_path / f"half.{suffix}")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ImageError) as caught:
        open_image(path)
    one_clear_sentence(caught, path)


def test_no_image(tmp_path: Path) -> None:
    path = tmp_path / "letter.jpg"
    path.write_text("Dear reader, this is no picture.")
    with pytest.raises(ImageError) as caught:
        open_image(path)
    assert "is not an image" in one_clear_sentence(caught, path)


def test_postscript_is_never_run(tmp_path: Path) -> None:
    path = tmp_path / "drawing.png"
    path.write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n")
    with pytest.raises(ImageError, match="is not an image"):
        open_image(path)


def test_empty_file_missing_file_and_folder(tmp_path: Path) -> None:
    empty = tmp_path / "empty.png"
    empty.touch()
    for path, fault in ((empty, "is empty"), (tmp_path / "gone.png", "does not exist"), (tmp_path, "folder")):
        with pytest.raises(ImageError) as caught:
            open_image(path)
        assert fault in one_clear_sentence(caught, path)


def bomb(path: Path, side: int) -> Path:
    """A PNG whose header promises side × side pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    parts = [chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(b"\0" * 64)), chunk(b"IEND", b"")]
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))
    return path


@pytest.mark.parametrize("side", [10_000, 60_000])
def test_decompression_bomb(tmp_path: Path, side: int) -> None:
    path = bomb(tmp_path / "bomb.png", side)
    with pytest.raises(ImageError) as caught:
        open_image(path)
    assert "bomb" in one_clear_sentence(caught, path)


def test_global_state_stays(tmp_path: Path) -> None:
    path = bomb(tmp_path / "bomb.png", 10_000)
    before = (Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES, list(warnings.filters))
    with pytest.raises(ImageError):
        open_image(path)
    open_image(saved(photograph(), tmp_path / "photo.png"))
    assert before == (Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES, list(warnings.filters))


def test_files_keep_their_order_and_folders_are_sorted(tmp_path: Path) -> None:
    album = tmp_path / "album"
    (album / "sub" / ".hidden").mkdir(parents=True)
    kept = ["a.PNG", "b.jpeg", "sub/c.webp"]
    for name in [*kept, ".d.png", "notes.txt", "sub/.hidden/e.png"]:
        (album / name).touch()
    last = tmp_path / "scan.dat"
    last.touch()
    assert image_files([last, album]) == [last, *(album / name for name in kept)]
    assert image_files(str(album)) == [album / name for name in kept]
    assert image_files([]) == []


def test_no_files(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    for path, fault in ((tmp_path, "holds no images"), (tmp_path / "gone", "does not exist")):
        with pytest.raises(ImageError) as caught:
            image_files([path])
        assert fault in one_clear_sentence(caught, path)
