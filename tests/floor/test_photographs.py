"""A photograph that Pillow opened is prepared as the command line prepares its file: upright, 8 bits, on white."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from l2caf.errors import ImageError
from l2caf.heatmap import Heatmap
from l2caf.images import as_photograph, open_image
from l2caf.networks.model import Model
from l2caf.preprocessing import OwnPreprocessing, Preprocess, Preprocessing, WholePreprocessing, as_preprocess
from l2caf.rendering.overlay import overlay

WIDTH, HEIGHT = 60, 40


def _pixels() -> np.ndarray:
    """No two corners alike, so that a picture that is turned or mirrored shows it."""
    across, down = np.meshgrid(np.linspace(0, 255, WIDTH), np.linspace(0, 255, HEIGHT))
    return np.stack([across, down, (across + 255 - down) / 2], axis=2).round().astype(np.uint8)


def _written(path: Path, kind: str) -> Path:
    colours, grey = Image.fromarray(_pixels()), Image.fromarray(_pixels()[:, :, 0])
    alpha = Image.fromarray(_pixels()[:, :, 1])
    if kind.startswith("EXIF"):
        exif = Image.Exif()
        exif[0x0112] = int(kind.split()[1])
        colours.save(path.with_suffix(".jpg"), exif=exif, quality=95)
        return path.with_suffix(".jpg")
    if kind == "16 bit":
        Image.fromarray(np.asarray(grey).astype(np.uint16) * 257).save(path)
    elif kind == "RGBA":
        colours.putalpha(alpha)
        colours.save(path)
    elif kind == "LA":
        Image.merge("LA", (grey, alpha)).save(path)
    elif kind == "P":
        colours.quantize(64).save(path)
    elif kind == "P, transparent":
        colours.quantize(64).save(path, transparency=5)
    elif kind == "CMYK":
        path = path.with_suffix(".tif")
        colours.convert("CMYK").save(path)
    elif kind == "grey":
        grey.save(path)
    else:
        colours.save(path)
    return path


KINDS = [
    *(f"EXIF {turn}" for turn in range(1, 9)),
    "16 bit",
    "RGBA",
    "LA",
    "P",
    "P, transparent",
    "CMYK",
    "grey",
    "RGB",
]
OWN = as_preprocess(lambda image: torch.from_numpy(np.asarray(image, np.float32).transpose(2, 0, 1).copy()))
PREPARATIONS: dict[str, Preprocess] = {
    "crop": Preprocessing((16, 16), (24, 24)),
    "squash": Preprocessing((16, 16), (16, 16), fit="squash"),
    "border": Preprocessing((16, 16), (16, 16), fit="border"),
    "whole": WholePreprocessing(Preprocessing((32, 32), (32, 32))),
    "own": OWN,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", PREPARATIONS)
def test_the_library_prepares_a_photograph_as_the_command_line_does(tmp_path: Path, kind: str, way: str) -> None:
    file, prepare = _written(tmp_path / "photo.png", kind), PREPARATIONS[way]
    read = open_image(file)
    with Image.open(file) as opened:
        assert torch.equal(prepare(opened), prepare(read))
        ours, theirs = prepare.prepare(opened), prepare.prepare(read)
        assert np.array_equal(ours.input, theirs.input)
        assert ours.crop == theirs.crop
        assert np.array_equal(np.asarray(ours.view), np.asarray(theirs.view))
        assert np.array_equal(np.asarray(prepare.view(opened)), np.asarray(prepare.view(read)))
        assert np.array_equal(np.asarray(prepare.sharp_view(opened)), np.asarray(prepare.sharp_view(read)))
        assert np.array_equal(np.asarray(as_photograph(opened)), np.asarray(read))
        model = Model("own", torch.nn.Identity(), prepare)
        assert np.array_equal(model.prepare(opened).input, model.prepare(read).input)
        assert np.array_equal(np.asarray(model.view(opened)), np.asarray(model.view(read)))


@pytest.mark.parametrize("kind", KINDS)
def test_heat_is_drawn_on_the_upright_photograph(tmp_path: Path, kind: str) -> None:
    file = _written(tmp_path / "photo.png", kind)
    heat = torch.zeros(1, 4, 4)
    heat[0, 0, 0] = 1
    with Image.open(file) as opened:
        size = open_image(file).size[::-1]
        drawn = Heatmap(heat, size, "layer", "method").overlay(opened)
        assert np.array_equal(np.asarray(drawn), np.asarray(overlay(open_image(file), heat[0].numpy())))


def test_a_photograph_that_is_ready_is_not_copied() -> None:
    ready = Image.fromarray(_pixels())
    assert as_photograph(ready) is ready


def test_a_path_is_opened_and_anything_else_gets_its_sentence(tmp_path: Path) -> None:
    file = _written(tmp_path / "photo.png", "RGBA")
    prepare = Preprocessing((16, 16), (24, 24))
    assert torch.equal(prepare(str(file)), prepare(open_image(file)))  # type: ignore[arg-type]
    with pytest.raises(ImageError, match=r"is a ndarray; give a PIL image"):
        prepare(_pixels())  # type: ignore[arg-type]
    with pytest.raises(ImageError, match="no pixels"):
        prepare(Image.new("RGB", (0, 3)))


def test_the_users_function_is_given_an_upright_rgb_photograph(tmp_path: Path) -> None:
    seen: list[tuple[str, tuple[int, int]]] = []

    def function(image: Image.Image) -> torch.Tensor:
        seen.append((image.mode, image.size))
        return torch.zeros(3, 4, 4)

    with Image.open(_written(tmp_path / "photo.png", "EXIF 6")) as opened:
        OwnPreprocessing(function)(opened)
    assert seen == [("RGB", (HEIGHT, WIDTH))]
