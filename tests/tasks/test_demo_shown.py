"""What the demonstration shows first convinces: the hottest place of every map lies on the object."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from l2caf.networks.model import Model
from l2caf.tasks.demo import SHOWN
from l2caf.tasks.network_choice import NetworkChoice
from l2caf.tasks.photographs import explain_image
from l2caf.tasks.question import Question
from l2caf.tasks.samples import sample

# Where the objects are, as shares of width and height, drawn by hand: x0, y0, x1, y1.
OBJECTS = {
    "cup": (0.28, 0.03, 0.74, 0.98),
    "motorcycle": (0.17, 0.25, 0.93, 0.88),
    "photographer": (0.40, 0.20, 0.85, 1.00),  # the tripod, which the network sees
    "cat": (0.00, 0.00, 0.90, 1.00),
    "rocket": (0.45, 0.25, 0.54, 0.95),
}


@lru_cache
def _model() -> Model:
    return NetworkChoice(device="cpu").load().whole()


@pytest.mark.parametrize("name", SHOWN)
def test_the_hottest_place_lies_on_the_object(name: str) -> None:
    model = _model()
    (one,) = explain_image(model, sample(name), Question().settled(model).as_method(model)).maps
    y, x = np.unravel_index(one.heat.argmax(), one.heat.shape)
    x0, y0, x1, y1 = OBJECTS[name]
    assert x0 <= (x + 0.5) / one.heat.shape[1] <= x1
    assert y0 <= (y + 0.5) / one.heat.shape[0] <= y1
