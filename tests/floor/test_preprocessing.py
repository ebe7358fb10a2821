"""Boxes follow their image: turned, scaled, squashed and cut."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from l2caf.datasets import Sample, open_sample
from l2caf.errors import DatasetError, InputError
from l2caf.preprocessing import OwnPreprocessing, Preprocessing, WholePreprocessing, viewed

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
    image = marked(size, box)
    seen = viewed(preprocessing, kind).prepare(image)
    assert seen.crop.to_input([box])[0] == pytest.approx(red_box(seen.view), abs=1.01)
    rows, columns = seen.crop.rows, seen.crop.columns
    visible = np.clip(box, [columns.start, rows.start] * 2, [columns.stop, rows.stop] * 2)
    assert seen.crop.to_image(seen.crop.to_input([box]))[0] == pytest.approx(visible, abs=1e-6 * max(size))


@pytest.mark.parametrize("kind", ["crop", "squash"])
def test_array_tensor_and_picture_are_one(kind: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (60, 90, 3), dtype=np.uint8)
    image = Image.fromarray(noise)
    prepare = viewed(Preprocessing(), kind)
    seen = prepare.prepare(image)
    assert seen.input.dtype == np.float32
    assert torch.equal(torch.from_numpy(seen.input), prepare(image))
    assert seen.view.tobytes() == prepare.view(image).tobytes()
    assert seen.crop.image_size == (60, 90)
    assert seen.crop.to_input([]).shape == (0, 4)
    assert (kind == "crop") == torch.equal(prepare(image), Preprocessing()(image))


def test_the_whole_image_is_the_whole_input_when_squashed() -> None:
    crop = viewed(Preprocessing(), "squash").crop(Image.new("RGB", (500, 375)))
    assert crop.to_input([[0, 0, 500, 375]]).tolist() == [[0, 0, 224, 224]]
    assert crop.to_image([[0, 0, 224, 224]]).tolist() == [[0, 0, 500, 375]]


def test_the_whole_photograph_keeps_its_proportions() -> None:
    image = Image.new("RGB", (640, 320))
    seen = WholePreprocessing(Preprocessing()).prepare(image)
    assert seen.input.shape == (3, 224, 448)
    assert seen.crop.to_image([[0, 0, 448, 224]]).tolist() == [[0, 0, 640, 320]]


def test_boxes_beside_the_crop_are_kept_as_empty_ones() -> None:
    crop = Preprocessing().crop(Image.new("RGB", (900, 300)))
    boxes = crop.to_input([[0, 0, 50, 50], [400, 100, 500, 200]])
    assert boxes.shape == (2, 4)
    assert boxes[0, 0] == boxes[0, 2]
    assert (boxes[1, 2:] > boxes[1, :2]).all()


def test_a_box_on_the_frame_around_a_small_image_comes_from_nowhere_on_it() -> None:
    crop = Preprocessing(input_size=(240, 240), resize_size=(192, 192)).crop(Image.new("RGB", (300, 300)))
    boxes = crop.to_image([[0, 0, 20, 240], [0, 0, 120, 240]])
    assert boxes[0, 0] == boxes[0, 2] == 0
    assert boxes[1].tolist() == [0, 0, 150, 300]


def test_unknown_views_and_preprocessings() -> None:
    with pytest.raises(InputError, match="no view 'zoom': take one of crop, whole, squash"):
        viewed(Preprocessing(), "zoom")
    with pytest.raises(InputError, match="a preprocessing function of one's own"):
        viewed(OwnPreprocessing(lambda image: torch.zeros(3, 8, 8)))
    with pytest.raises(InputError, match="give \\(n, 4\\)"):
        Preprocessing().crop(Image.new("RGB", (9, 9))).to_input([[1, 2, 3]])
