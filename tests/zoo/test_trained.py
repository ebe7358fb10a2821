"""Trained networks on real input: the right layer by default, read rightly, and confirmed. `make zoo` judges it all."""

from __future__ import annotations

import pytest

from l2caf.recording.inputs import Arguments
from l2caf.recording.layers import find_layer
from l2caf.recording.positions import Verdict
from zoo.networks import NETWORKS, named

NAMES = {network.name for network in NETWORKS}


# The others (ResNet-50, I3D, a head of 128³) take a minute each.
@pytest.mark.dataset
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["embedded EfficientNet-Lite0", "MobileNetV2", "CREPE"])
def test_the_right_layer_is_taken_and_confirmed(name: str) -> None:
    if name not in NAMES:
        pytest.skip("no trained networks here")
    network = named(name)
    built, inputs = network.build()
    layer = find_layer(built, Arguments.of(inputs), None)
    assert layer.verdict is Verdict.CONFIRMED
    assert layer.reaches
    readings = [reading for reading in network.right if reading.is_of(layer.name, None, ("0",))]
    assert [tuple(cells for cells in reading.grid if cells > 1) for reading in readings] == [layer.layout.shape]
