"""A map lies on the photograph where the network saw what it is about: a square is planted, and must be found there."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import l2caf
from l2caf.drawings import title_of
from l2caf.errors import InputError
from l2caf.heatmap import Heatmap
from l2caf.localization import boxes_of
from l2caf.networks.model import Model
from l2caf.preprocessing import OwnPreprocessing, Preprocess, Preprocessing, WholePreprocessing, crop_of

CROP = Preprocessing(input_size=(64, 64), resize_size=(72, 72), mean=(0, 0, 0), std=(1, 1, 1))
VIEWS: dict[str, Preprocess] = {
    "crop": CROP,
    "squash": CROP.squashed(),
    "whole": WholePreprocessing(CROP),
    "border": replace(CROP, resize_size=(64, 64), fit="border"),
    "oblong crop": replace(CROP, input_size=(48, 64), resize_size=(60, 72)),
}
SHAPES = [(128, 128), (311, 200), (200, 311), (400, 97), (53, 41), (1200, 900)]  # width, height


@lru_cache
def _brightness() -> torch.nn.Module:
    """A network whose only class is brightness, with a map as fine as its input."""
    conv, linear = torch.nn.Conv2d(3, 1, 1, bias=False), torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(conv.weight, 1 / 3)
    torch.nn.init.ones_(linear.weight)
    return torch.nn.Sequential(conv, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), linear).eval()


def _model(view: str) -> Model:
    return Model("brightness", _brightness(), VIEWS[view])


def _explained(view: str, photograph: Image.Image | Path) -> Heatmap:
    return _model(view).explain(photograph, objective=l2caf.ClassSpecific(), layer="0")


def _planted(size: tuple[int, int]) -> tuple[Image.Image, tuple[int, int, int, int]]:
    """A black photograph with a white oblong off its centre, inside of what every view shows."""
    width, height = size
    short = min(size)
    x0, y0 = width // 2 + short // 12, height // 2 - short // 4
    box = (x0, y0, x0 + short // 6, y0 + short // 5)
    photograph = Image.new("RGB", size)
    photograph.paste("white", box)
    return photograph, box


def _pixel(view: str, photograph: Image.Image) -> np.ndarray:
    """How large a pixel of the input is on the photograph, for each edge of a box; at least one pixel."""
    crop = crop_of(VIEWS[view], photograph)
    across, down = (window.size / (window.stop - window.start) for window in (crop.columns, crop.rows))
    return np.array([max(1, 1 / across), max(1, 1 / down)] * 2)


def _check(view: str, given: Image.Image | Path, photograph: Image.Image, box: tuple[int, int, int, int]) -> None:
    heatmap = _explained(view, given)
    near = 1.01 * _pixel(view, photograph)  # the square's own edge falls into a pixel of the input
    # the numbers on the photograph
    whole = heatmap.on_photograph(0).numpy()
    assert whole.shape == photograph.size[::-1]
    y, x = np.unravel_index(whole.argmax(), whole.shape)
    assert box[0] <= x < box[2], (x, box)
    assert box[1] <= y < box[3], (y, box)
    assert (np.abs(boxes_of(whole, [0.5])[0] - box) <= near).all(), (boxes_of(whole, [0.5])[0], box, near)
    # a box of the network's own view, brought to the photograph
    assert heatmap.crops is not None
    seen = heatmap.crops[0].to_image(boxes_of(heatmap.maps[0].numpy(), [0.5]))[0]
    assert (np.abs(seen - box) <= near).all(), (seen, box, near)
    # the picture itself: drawn on black, so that all light is heat
    black = Image.new("RGB", photograph.size)
    drawn = np.asarray(heatmap.overlay(black, cmap="gray", alpha=1)).astype(int)
    seen_part = heatmap.crops[0]
    (top, bottom), (left, right) = seen_part.rows.pixels, seen_part.columns.pixels
    light = np.zeros(drawn.shape[:2])
    light[top:bottom, left:right] = drawn[top:bottom, left:right, 0]
    assert (np.abs(boxes_of(light, [0.5])[0] - box) <= near).all(), (boxes_of(light, [0.5])[0], box, near)


@pytest.mark.parametrize("size", SHAPES)
@pytest.mark.parametrize("view", VIEWS)
def test_a_planted_square_is_found_on_the_photograph(view: str, size: tuple[int, int]) -> None:
    photograph, box = _planted(size)
    _check(view, photograph, photograph, box)


TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,  # stored a quarter turn anticlockwise, to be turned clockwise
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("view", ["crop", "squash", "whole"])
def test_a_planted_square_is_found_on_a_turned_photograph(view: str, orientation: int, tmp_path: Path) -> None:
    photograph, box = _planted((311, 200))
    stored = photograph.transpose(TURNS[orientation]) if orientation > 1 else photograph
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored.save(tmp_path / "turned.png", exif=exif)
    _check(view, tmp_path / "turned.png", photograph, box)


@pytest.mark.parametrize("kind", ["16 bit", "transparent"])
def test_a_planted_square_is_found_on_an_unusual_file(kind: str, tmp_path: Path) -> None:
    photograph, box = _planted((311, 200))
    if kind == "16 bit":
        Image.fromarray(np.asarray(photograph)[:, :, 0].astype(np.uint16) * 257).save(tmp_path / "odd.png")
    else:  # a hole where the square is, which is white behind black
        opaque = Image.new("L", photograph.size, 255)
        opaque.paste(0, box)
        black = Image.new("RGB", photograph.size)
        black.putalpha(opaque)
        black.save(tmp_path / "odd.png")
    _check("crop", tmp_path / "odd.png", photograph, box)


def test_the_map_of_a_crop_is_not_stretched_over_the_whole_photograph(tmp_path: Path) -> None:
    """The fault itself: three lines of the README on a photograph that is wider than the crop."""
    photograph, box = _planted((311, 200))
    drawn = np.asarray(Image.open(_explained("crop", photograph).save(tmp_path / "where.png"))).astype(int)
    changed = np.abs(drawn - np.asarray(photograph)).sum(axis=2)
    x0, y0, x1, y1 = box
    assert changed[y0 + 3 : y1 - 3, x0 + 3 : x1 - 3].min() > 100  # white under heat
    seen = crop_of(CROP, photograph)
    (left, right), (top, bottom) = seen.columns.pixels, seen.rows.pixels
    changed[y0 - 4 : y1 + 4, x0 - 4 : x1 + 4] = 0
    assert changed[top:bottom, left:right].max() == 0


def test_what_the_network_did_not_see_is_pale() -> None:
    photograph = Image.new("RGB", (300, 100))
    photograph.paste("white", (140, 40, 160, 60))
    drawn = np.asarray(_explained("crop", photograph).overlay())
    left, right = crop_of(CROP, photograph).columns.pixels
    assert (drawn[50, : left - 1] > 80).all()
    assert (drawn[50, right + 1 :] > 80).all()
    assert (drawn[10, left + 12 : right - 12] == 0).all()


def _of_tensors() -> Heatmap:
    photograph, _ = _planted((311, 200))
    return l2caf.explain(_brightness(), CROP(photograph)[None], objective=l2caf.ClassSpecific(), layer="0")


def test_a_tensor_does_not_tell_where_it_lies_so_the_whole_photograph_is_refused(tmp_path: Path) -> None:
    photograph, _ = _planted((311, 200))
    with pytest.raises(InputError, match=r"311×200 .* 64×64, so which part .* is not known: add preprocess="):
        _of_tensors().save(tmp_path / "where.png", photograph)
    assert not (tmp_path / "where.png").exists()


def test_the_preprocessing_tells_where_a_tensor_lies() -> None:
    photograph, _ = _planted((311, 200))
    told = _of_tensors().overlay(photograph, preprocess=CROP)
    assert np.array_equal(np.asarray(told), np.asarray(_explained("crop", photograph).overlay()))


def test_a_compose_of_torchvision_tells_where_a_tensor_lies() -> None:
    transforms = pytest.importorskip("torchvision.transforms", exc_type=(ImportError, RuntimeError))
    compose = transforms.Compose([transforms.Resize(72), transforms.CenterCrop(64), transforms.ToTensor()])
    photograph, _ = _planted((311, 200))
    told = _of_tensors().overlay(photograph, preprocess=compose)
    assert np.array_equal(np.asarray(told), np.asarray(_of_tensors().overlay(photograph, preprocess=CROP)))


def test_a_function_of_ones_own_tells_nothing() -> None:
    photograph, _ = _planted((311, 200))
    own = OwnPreprocessing(CROP.__call__)
    with pytest.raises(InputError, match="cannot be told from a preprocessing function of one's own"):
        _of_tensors().overlay(photograph, preprocess=own)


def test_the_view_of_the_network_is_drawn_on_as_it_is() -> None:
    photograph, _ = _planted((311, 200))
    view = CROP.view(photograph)
    assert np.array_equal(
        np.asarray(_of_tensors().overlay(view)), np.asarray(_explained("crop", photograph).overlay(view))
    )
    assert _of_tensors().overlay(CROP.sharp_view(photograph)).size == (448, 448)


def test_a_smaller_copy_of_the_photograph_is_drawn_on_at_its_scale() -> None:
    photograph, box = _planted((1200, 900))
    black = Image.new("RGB", (400, 300))
    heatmap = _explained("squash", photograph)
    light = np.asarray(heatmap.overlay(black, cmap="gray", alpha=1))[:, :, 0]
    assert (np.abs(boxes_of(light, [0.5])[0] - np.array(box) / 3) <= [400 / 64, 300 / 64] * 2).all()


def test_another_photograph_is_refused() -> None:
    photograph, _ = _planted((311, 200))
    with pytest.raises(InputError, match=r"500×200, but the map belongs to a photograph of 311×200.*give that"):
        _explained("crop", photograph).overlay(Image.new("RGB", (500, 200)))


def test_photographs_of_several_shapes_are_explained_in_one_batch() -> None:
    photographs = [_planted(size) for size in ((311, 200), (200, 311))]
    heatmap = _model("crop").explain(
        [photograph for photograph, _ in photographs], objective=l2caf.ClassSpecific(), layer="0"
    )
    for index, (photograph, box) in enumerate(photographs):
        whole = heatmap.on_photograph(index).numpy()
        assert whole.shape == photograph.size[::-1]
        y, x = np.unravel_index(whole.argmax(), whole.shape)
        assert box[0] <= x < box[2]
        assert box[1] <= y < box[3]
        assert heatmap.overlay(index=index).size == photograph.size
    with pytest.raises(InputError, match="2 different sizes, which fit into no batch: explain them one by one"):
        _model("whole").explain([photograph for photograph, _ in photographs], layer="0")


def test_no_photograph_is_no_batch() -> None:
    with pytest.raises(InputError, match="give at least one"):
        _model("crop").explain([])


@pytest.mark.parametrize("view", ["crop", "squash"])
def test_the_box_of_a_map_is_drawn_around_the_square(view: str) -> None:
    photograph, box = _planted((311, 200))
    heatmap = _explained(view, photograph)
    bare = np.asarray(heatmap.overlay()).astype(int)
    boxed = np.asarray(heatmap.overlay(box=0.5)).astype(int)
    rows, columns = np.nonzero(np.abs(boxed - bare).sum(axis=2))
    around = np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])
    assert (np.abs(around - box) <= 1.01 * _pixel(view, photograph) + 1.5).all()  # and the rim


def test_classes_are_called_by_their_names() -> None:
    """A heatmap of a model knows them; one of a bare network has their numbers alone."""
    model = replace(_model("crop"), class_names=("dark",))
    photograph = Image.new("RGB", (60, 40))
    photograph.paste("white", (10, 10, 30, 30))
    (heatmap,) = model.explain([photograph], objective=l2caf.ClassSpecific(classes=[0]), layer="0")
    assert heatmap.class_names == ("dark",)
    assert title_of(heatmap, 0, 0) == "dark"
    assert title_of(replace(heatmap, class_names=()), 0, 0) == "class 0"
