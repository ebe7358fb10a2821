"""Boxes follow their image: turned, scaled, squashed and cut."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from l2caf.datasets import Sample, open_sample
from l2caf.datasets.views import View
from l2caf.errors import DatasetError, InputError
from l2caf.preprocessing import OwnPreprocessing, Preprocessing

RED, BLACK = (255, 0, 0), (0, 0, 0)


def marked(size: tuple[int, int], box: tuple[int, int, int, int]) -> Image.Image:
    """Black, with the box in red."""
    image = Image.new("RGB", size, BLACK)
    image.paste(RED, box)
    return image


def red_box(image: Image.Image) -> list[int]:
    """The box around what is more red than not."""
    red = np.asarray(image)[:, :, 0] > 127
    rows, columns = np.flatnonzero(red.any(axis=1)), np.flatnonzero(red.any(axis=0))
    return [int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1]


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("shrunk", [False, True])
def test_boxes_on_stored_pixels_turn_with_the_image(tmp_path: Path, orientation: int, shrunk: bool) -> None:
    box = (6, 4, 20, 10)
    exif = Image.Exif()
    exif[0x0112] = orientation
    marked((40, 30), box).save(tmp_path / "turned.png", exif=exif)
    given = np.array([box]) * (2 if shrunk else 1)
    size = (80, 60) if shrunk else None
    image, boxes = open_sample(Sample(tmp_path / "turned.png", name="turned", boxes=given, size=size, stored=True))
    assert image.size == ((40, 30) if orientation < 5 else (30, 40))
    assert boxes.tolist() == [red_box(image)]


def test_boxes_on_the_upright_image_stay(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    marked((40, 30), (6, 4, 20, 10)).save(tmp_path / "turned.png", exif=exif)
    opened = open_sample(Sample(tmp_path / "turned.png", name="turned", boxes=np.array([[1, 2, 30, 40]])))
    assert opened.image.size == (30, 40)
    assert opened.boxes.tolist() == [[1, 2, 30, 40]]


def test_copies_of_another_shape_are_refused(tmp_path: Path) -> None:
    marked((40, 40), (0, 0, 9, 9)).save(tmp_path / "square.png")
    sample = Sample(tmp_path / "square.png", name="square", boxes=np.array([[0, 0, 9, 9]]), size=(500, 375))
    with pytest.raises(DatasetError, match="has 40×40 pixels, but its boxes were made for 500×375"):
        open_sample(sample)


def test_copies_scaled_to_whole_pixels_are_not(tmp_path: Path) -> None:
    marked((384, 288), (0, 0, 9, 9)).save(tmp_path / "copy.png")
    sample = Sample(tmp_path / "copy.png", name="copy", boxes=np.array([[111, 108, 442, 194]]), size=(500, 375))
    assert open_sample(sample).boxes == pytest.approx(np.array([[111, 108, 442, 194]]) * 0.768)


def test_what_hangs_over_is_cut_off(tmp_path: Path) -> None:
    marked((40, 30), (0, 0, 9, 9)).save(tmp_path / "a.png")
    sample = Sample(tmp_path / "a.png", name="a", boxes=np.array([[-3, 5, 41, 31]]))
    assert open_sample(sample).boxes.tolist() == [[0, 5, 40, 30]]


SHAPES = [(640, 480), (300, 500), (224, 224), (64, 48), (900, 60)]
PREPROCESSINGS = [
    Preprocessing(),
    Preprocessing(input_size=(96, 192), resize_size=(128, 208), interpolation="bicubic"),
    Preprocessing(fit="border", resize_size=(200, 200)),
    Preprocessing(fit="squash", resize_size=(256, 256)),
    Preprocessing(input_size=(240, 240), resize_size=(192, 192)),  # smaller than the input: a black frame
]


@pytest.mark.parametrize("preprocessing", PREPROCESSINGS)
@pytest.mark.parametrize("kind", ["crop", "squash"])
@pytest.mark.parametrize("size", SHAPES)
def test_the_mapped_box_lies_on_the_object(size: tuple[int, int], kind: str, preprocessing: Preprocessing) -> None:
    width, height = size
    box = (round(0.45 * width), round(0.2 * height), round(0.6 * width), round(0.8 * height))
    if kind == "crop" and width > 2 * height:
        box = (round(0.49 * width), box[1], round(0.51 * width), box[3])
    seen = View(kind, preprocessing)(marked(size, box), [box])
    assert seen.boxes[0] == pytest.approx(red_box(seen.picture), abs=1.01)


@pytest.mark.parametrize("kind", ["crop", "squash"])
def test_tensor_and_picture_are_those_of_the_preprocessing(kind: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (60, 90, 3), dtype=np.uint8)
    image = Image.fromarray(noise)
    view = View(kind, Preprocessing())
    seen = view(image)
    assert torch.equal(seen.tensor, view.preprocessing(image))
    assert seen.picture.tobytes() == view.preprocessing.view(image).tobytes()
    assert seen.boxes.shape == (0, 4)
    if kind == "crop":
        assert torch.equal(seen.tensor, Preprocessing()(image))


def test_the_whole_image_is_the_whole_input_when_squashed() -> None:
    view = View("squash", Preprocessing())
    assert view(Image.new("RGB", (500, 375)), [[0, 0, 500, 375]]).boxes.tolist() == [[0, 0, 224, 224]]
    assert view.input_size == (224, 224)


def test_boxes_beside_the_crop_are_kept_as_empty_ones() -> None:
    boxes = View("crop", Preprocessing())(Image.new("RGB", (900, 300)), [[0, 0, 50, 50], [400, 100, 500, 200]]).boxes
    assert boxes.shape == (2, 4)
    assert boxes[0, 0] == boxes[0, 2]
    assert (boxes[1, 2:] > boxes[1, :2]).all()


def test_unknown_views_and_preprocessings() -> None:
    with pytest.raises(InputError, match="no view 'zoom': take one of crop, squash"):
        View("zoom", Preprocessing())
    with pytest.raises(InputError, match="a preprocessing function of one's own"):
        View("crop", OwnPreprocessing(lambda image: torch.zeros(3, 8, 8)))
    with pytest.raises(InputError, match="give \\(n, 4\\)"):
        View("crop", Preprocessing())(Image.new("RGB", (9, 9)), [[1, 2, 3]])
