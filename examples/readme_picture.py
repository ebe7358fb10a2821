"""Draw the picture at the top of the README: what kept the prediction in four photographs that are installed.

python examples/readme_picture.py docs/pictures/prediction.png
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw
from skimage import data

import l2caf
from l2caf.images import open_image, save_picture
from l2caf.rendering.grid import grid
from l2caf.rendering.marks import font
from l2caf.rendering.overlay import overlay

HEIGHT = 240
FILES = ("coffee.png", "motorcycle_left.png", "camera.png", "chelsea.png")  # of scikit-image


def draw(files: Sequence[str] = FILES) -> Image.Image:
    """A photograph in each column, and below it the map of its prediction."""
    model = l2caf.load("efficientnet_lite0").whole()
    prepared = [model.prepare(open_image(Path(data.__file__).parent / file)) for file in files]
    titles, maps = [], []
    for one in prepared:
        with model.run([one]) as recording:
            titles.append(str(model.predictions(recording.output)[0]))
            maps.append(l2caf.AttentionFilter(l2caf.Prediction()).on(recording.head).overlay(one.view))
    return grid([[one.view for one in prepared], maps], column_titles=titles, cell_height=HEIGHT)


def with_scale(sheet: Image.Image) -> Image.Image:
    """The sheet with what its colours mean below it: they fade where there is no heat, as they do above."""
    letters, strip = font(15), overlay(Image.new("RGB", (320, 14), "white"), np.linspace(0, 1, 320)[None])
    made = Image.new("RGB", (sheet.width, sheet.height + 40), "white")
    made.paste(sheet, (0, 0))
    draw = ImageDraw.Draw(made)
    middle, left = sheet.height + 15, sheet.width // 2 - 160
    draw.text((left - 10, middle), "does not matter", font=letters, fill="#333333", anchor="rm")
    made.paste(strip, (left, middle - 7))
    draw.text((left + 330, middle), "keeps the prediction most", font=letters, fill="#333333", anchor="lm")
    return made


if __name__ == "__main__":
    save_picture(with_scale(draw()), sys.argv[1])
