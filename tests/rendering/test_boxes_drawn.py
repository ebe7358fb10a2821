"""Boxes lie where they belong, whatever they are drawn on; and what people give for a drawing is taken or refused."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import l2caf
from l2caf.boxes import MapBoxes
from l2caf.errors import InputError, L2cafError
from l2caf.heatmap import Heatmap
from l2caf.preprocessing import Preprocessing
from l2caf.rendering.marks import RIM, draw_boxes

CROP = Preprocessing(input_size=(64, 64), resize_size=(72, 72), mean=(0, 0, 0), std=(1, 1, 1))
PHOTOGRAPH = Image.new("RGB", (311, 200), (90, 90, 90))
PLACE = (20, 30, 44, 50)  # in pixels of the input
RED = (255, 0, 0)


def heatmap(samples: int = 1, *, crops: bool = True, maps: int = 0) -> Heatmap:
    weights = torch.zeros(samples, *([maps] if maps else []), 64, 64)
    x0, y0, x1, y1 = PLACE
    weights[..., y0:y1, x0:x1] = 1
    known = (CROP.crop(PHOTOGRAPH),) * samples if crops else None
    return Heatmap(weights, (64, 64), "layer", "method", crops=known)


def marked(bare: Image.Image, boxed: Image.Image) -> list[int]:
    """The box around all that differs, without the outer rim."""
    rows, columns = np.nonzero(np.abs(np.asarray(boxed).astype(int) - np.asarray(bare).astype(int)).sum(axis=2))
    return [columns.min() + 1, rows.min() + 1, columns.max(), rows.max()]


ON_PHOTOGRAPH = CROP.crop(PHOTOGRAPH).to_image([PLACE])[0]


@pytest.mark.parametrize("on", ["input", "photograph"])
@pytest.mark.parametrize("part", [lambda boxes: boxes, lambda boxes: boxes[0], lambda boxes: [*boxes[0]]])
def test_boxes_of_a_map_land_where_the_map_is(on: Any, part: Any) -> None:
    one = heatmap()
    boxes = part(one.boxes(0.5, on=on))
    for picture in (PHOTOGRAPH, PHOTOGRAPH.resize((622, 400)), CROP.view(PHOTOGRAPH), CROP.sharp_view(PHOTOGRAPH)):
        drawn = one.overlay(picture, boxes=boxes)
        around = marked(one.overlay(picture), drawn)
        if picture.width == picture.height:
            expected = np.array(PLACE) * picture.width / 64
        else:
            expected = ON_PHOTOGRAPH * picture.width / 311
        assert np.abs(around - expected).max() <= 1.01


def test_boxes_land_where_the_preprocessing_tells_and_at_another_width() -> None:
    told, known = heatmap(crops=False), heatmap()
    boxes = told.boxes(0.5)
    around = marked(told.overlay(PHOTOGRAPH, preprocess=CROP), told.overlay(PHOTOGRAPH, preprocess=CROP, boxes=boxes))
    assert np.abs(around - ON_PHOTOGRAPH).max() <= 1.01
    for given in (known.boxes(0.5), ON_PHOTOGRAPH.tolist()):
        wide = marked(known.overlay(PHOTOGRAPH, width=622), known.overlay(PHOTOGRAPH, width=622, boxes=given))
        assert np.abs(wide - 2 * ON_PHOTOGRAPH).max() <= 1.01
    with pytest.raises(InputError, match="is not known: explain the photograph itself"):
        told.boxes(0.5, on="photograph")
    with pytest.raises(InputError, match="on is 'picture': take 'input', 'photograph' or 'scan'"):
        told.boxes(on="picture")  # type: ignore[arg-type]


def test_boxes_of_the_photograph_are_in_its_pixels() -> None:
    (found,), (at_two,) = heatmap().boxes(0.5, on="photograph"), heatmap().boxes([0.5, 0.9], on="photograph")
    assert np.allclose(found, [ON_PHOTOGRAPH])
    assert [one.tolist() for one in at_two] == [found.tolist()] * 2
    ((first, second),) = heatmap(maps=2).boxes(0.5, on="photograph")
    assert first.tolist() == second.tolist() == found.tolist()


def test_each_sample_and_map_gets_its_own_boxes(tmp_path: Path) -> None:
    two = heatmap(2)
    moved = [two.boxes(0.5)[0], np.zeros((0, 4))]
    drawn = Image.open(two.save(tmp_path / "two.png", [PHOTOGRAPH] * 2, boxes=moved, legend=False)).convert("RGB")
    bare = Image.open(two.save(tmp_path / "bare.png", [PHOTOGRAPH] * 2, legend=False)).convert("RGB")
    assert marked(bare, drawn)[3] < drawn.height // 2
    with pytest.raises(InputError, match="There are 2 samples and boxes for 1: give a list of one entry per sample"):
        two.save(tmp_path / "one.png", [PHOTOGRAPH] * 2, boxes=[two.boxes()[0]])
    maps = heatmap(maps=2)
    boxes = [[maps.boxes(0.5)[0][0], np.zeros((0, 4))]]
    assert maps.overlay(which=0, image=PHOTOGRAPH, boxes=boxes) != maps.overlay(which=0, image=PHOTOGRAPH)
    assert maps.overlay(which=1, image=PHOTOGRAPH, boxes=boxes) == maps.overlay(which=1, image=PHOTOGRAPH)


def test_boxes_say_what_they_are_measured_on_until_they_are_computed_with() -> None:
    (boxes,) = heatmap().boxes(0.5)
    again = pickle.loads(pickle.dumps(boxes))
    assert (again.on, boxes[0].on, boxes[:1].on, boxes.astype(float).on) == ("input",) * 4
    assert type(boxes + 1) is np.ndarray
    assert isinstance(boxes.max(), np.integer)
    assert MapBoxes.on_a(boxes + 1, "photograph").on == "photograph"


def test_a_figure_has_the_boxes_in_the_same_place() -> None:
    one = heatmap()
    (patch,) = one.plot(PHOTOGRAPH, boxes=one.boxes(0.5)).patches
    x, y = patch.get_xy()
    assert np.allclose([x, y, x + patch.get_width(), y + patch.get_height()], ON_PHOTOGRAPH)
    assert not patch.get_clip_on()


@pytest.mark.parametrize("corner", [(0, 0, 30, 40), (30, 20, 60, 40), (0, 0, 60, 40)])
def test_a_box_at_the_edge_has_its_rim_on_the_picture(corner: tuple[int, ...]) -> None:
    drawn = np.asarray(draw_boxes(Image.new("RGB", (60, 40), "white"), [corner]))
    x0, y0, x1, y1 = corner
    dark = tuple(int(RIM[place : place + 2], 16) for place in (1, 3, 5))
    middle, centre = (y0 + y1) // 2, (x0 + x1) // 2
    ends = [(middle, max(x0 - 1, 0)), (middle, min(x1, 59)), (max(y0 - 1, 0), centre), (min(y1, 39), centre)]
    assert all(tuple(drawn[place]) == dark for place in ends)


def test_settings_that_people_try_are_taken(tmp_path: Path) -> None:
    import matplotlib

    one = heatmap()
    plain = one.overlay(PHOTOGRAPH)
    assert one.overlay(PHOTOGRAPH, contours=0.5) == one.overlay(PHOTOGRAPH, contours=True) != plain
    assert one.overlay(PHOTOGRAPH, contours=None, box=None, boxes=None) == plain
    assert one.overlay(PHOTOGRAPH, box=np.float32(0.5)) == one.overlay(PHOTOGRAPH, box=0.5) != plain
    single = one.overlay(PHOTOGRAPH, boxes=(10, 10, 50, 50))
    assert (
        single
        == one.overlay(PHOTOGRAPH, boxes=[[10, 10, 50, 50]])
        == one.overlay(PHOTOGRAPH, boxes=torch.tensor([[10, 10, 50, 50]]))
    )
    for name in ("viridis", "turbo"):
        assert one.overlay(PHOTOGRAPH, cmap=matplotlib.colormaps[name]) == one.overlay(PHOTOGRAPH, cmap=name)
    PHOTOGRAPH.save(tmp_path / "photo.png")
    for path in (tmp_path / "photo.png", str(tmp_path / "photo.png")):
        assert one.overlay(path) == plain
        assert one.plot(path).images
    alone = Image.open(one.save(tmp_path / "alone.png", box=0.5))
    x0, y0, x1, y1 = PLACE
    assert alone.getpixel((x0, y0)) == alone.getpixel((x1 - 1, y1 - 1)) == (255, 255, 255)
    assert Image.open(one.save(tmp_path / "lines.png", contours=True)) != Image.open(one.save(tmp_path / "a.png"))


BAD: dict[str, tuple[Any, str]] = {
    "contours in words": (lambda one, _: one.overlay(PHOTOGRAPH, contours="yes"), "contours is 'yes': give True, or"),
    "contours of nothing": (lambda one, _: one.overlay(PHOTOGRAPH, contours=[None]), "contours is .*: give True, or"),
    "contours beyond": (lambda one, _: one.overlay(PHOTOGRAPH, contours=2), "choose levels between 0 and 1"),
    "a box in words": (lambda one, _: one.overlay(PHOTOGRAPH, box="yes"), "box is 'yes': give True, or the share"),
    "a box as box": (lambda one, _: one.plot(PHOTOGRAPH, box=(1, 2, 3, 4)), "your own go by boxes="),
    "a box beyond": (lambda one, _: one.overlay(PHOTOGRAPH, box=25), "from 0 to 1"),
    "boxes in words": (lambda one, _: one.overlay(PHOTOGRAPH, boxes="all"), "boxes is 'all': give x0, y0, x1, y1"),
    "boxes as a number": (lambda one, _: one.overlay(PHOTOGRAPH, boxes=3), "boxes is 3: give x0, y0, x1, y1"),
    "boxes of words": (lambda one, _: one.overlay(PHOTOGRAPH, boxes=[("a", "b", "c", "d")]), "is no box"),
    "boxes as a dict": (lambda one, _: one.overlay(PHOTOGRAPH, boxes={"x": 1}), "give x0, y0, x1, y1"),
    "three edges": (lambda one, _: one.overlay(PHOTOGRAPH, boxes=[1, 2, 3]), "is no box; give x0, y0, x1, y1"),
    "colours as a number": (lambda one, _: one.overlay(PHOTOGRAPH, cmap=3), "give a colour map of matplotlib, or its"),
    "colours as a list": (lambda one, _: one.overlay(PHOTOGRAPH, cmap=["red"]), "give a colour map of matplotlib"),
    "a legend in words": (lambda one, to: one.save(to, PHOTOGRAPH, legend="off"), "legend is 'off': give True or"),
    "a legend on axes": (lambda one, _: one.plot(PHOTOGRAPH, legend="off"), "legend is 'off': give True or False"),
    "no such photograph": (lambda one, _: one.overlay("nowhere.png"), "'nowhere.png' does not exist"),
    "no such photograph on axes": (lambda one, _: one.plot("nowhere.png"), "'nowhere.png' does not exist"),
    "a grid that is not there": (lambda one, _: one.grids(9), "There is 1 sample, so an index must be below"),
    "opacity of nothing": (lambda one, to: one.save(to, alpha=0.5), "alpha lets a picture show through"),
    "a misspelt setting": (lambda one, to: one.save(to, contour=True), "did you mean contours"),
}


@pytest.mark.parametrize("kind", BAD)
def test_settings_that_cannot_be_are_refused_in_one_sentence(kind: str, tmp_path: Path) -> None:
    call, words = BAD[kind]
    with pytest.raises(L2cafError, match=words) as caught:
        call(heatmap(), tmp_path / "where.png")
    assert str(caught.value).count("\n") == 0
    assert not [*tmp_path.iterdir()]


def test_the_photograph_of_a_loaded_model_needs_no_arithmetic() -> None:
    """What the documentation shows: boxes in the photograph's pixels, from a model that prepared it."""
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 8, 8), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    model = l2caf.Model("tiny", network.eval(), CROP)
    found = model.explain(PHOTOGRAPH)
    (boxes,) = found.boxes(0.25, on="photograph")
    assert (boxes[:, 0] >= found.crops[0].columns.start).all()  # type: ignore[index]
    assert (boxes[:, 2] <= 311).all()


def test_a_title_stands_above_a_picture_too(tmp_path: Path) -> None:
    one = heatmap()
    saved = [one.save(tmp_path / f"a{word}.png", PHOTOGRAPH, title=word) for word in ("", "words")]
    plain, titled = (Image.open(path).convert("RGB") for path in saved)
    assert plain.size == PHOTOGRAPH.size
    assert titled.height > PHOTOGRAPH.height
