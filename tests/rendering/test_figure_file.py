"""A figure of several samples is an even grid with one legend, whatever shapes the photographs have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from l2caf.drawings import cells_of
from l2caf.heatmap import Heatmap
from l2caf.preprocessing import Preprocessing
from l2caf.rendering import figure_file

PHOTOGRAPHS = [Image.new("RGB", size, (90, 90, 90)) for size in ((300, 200), (200, 300), (200, 200))]


CROP = Preprocessing(input_size=(64, 64), resize_size=(72, 72))


def heatmap() -> Heatmap:
    weights = torch.rand(3, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    crops = tuple(CROP.crop(one) for one in PHOTOGRAPHS)
    return Heatmap(weights, (64, 64), "layer", "method", crops=crops)


def drawn(*, legend: bool = True) -> Any:
    cells = cells_of(heatmap(), PHOTOGRAPHS, None, None, signed=False)
    return figure_file._drawn(cells, 200, legend, "", "", {})


def test_the_gaps_are_even() -> None:
    figure = drawn(legend=False)
    places = np.array([axes.get_position().bounds for axes in figure.axes]).reshape(3, 3, 4)
    left, bottom, width, height = np.moveaxis(places, -1, 0)
    middle = (left + width / 2) * figure.get_figwidth()
    down = (bottom[:-1] - bottom[1:] - height[1:]) * figure.get_figheight()
    assert np.ptp(middle, axis=0).max() < 1e-6  # columns are straight
    assert np.ptp(np.diff(middle)) < 1e-6  # and equally far apart
    assert np.ptp(height) < 1e-6
    assert np.ptp(down) < 1e-6
    widest = (left[0, 1:] - left[0, :-1] - width[0, :-1]) * figure.get_figwidth()
    assert np.allclose(widest, figure_file.GAP)


def test_there_is_one_legend(tmp_path: Path) -> None:
    assert len(drawn().axes) == 9 + 1
    text = heatmap().save(tmp_path / "nine.svg", PHOTOGRAPHS).read_text()
    assert text.count("maximum of the map") == 1
    assert heatmap().save(tmp_path / "none.svg", PHOTOGRAPHS, legend=False).read_text().count("maximum of the map") == 0


@pytest.mark.parametrize("title", ["", "a title that is much too long for a figure of this width " * 4])
def test_titles_stay_inside(title: str) -> None:
    cells = cells_of(heatmap(), None, 0, None, signed=False)
    figure = figure_file._drawn(cells, 200, True, title, title, {})
    figure.draw_without_rendering()
    for text in figure.texts:
        box = text.get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.width
        assert box.y0 >= 0
        assert box.y1 <= figure.bbox.height
