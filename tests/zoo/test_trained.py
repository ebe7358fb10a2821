"""Trained networks on real input: the right layer by default, read rightly, and confirmed. `make zoo` judges it all."""

from __future__ import annotations

import pytest
import torch

import l2caf
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


@pytest.mark.dataset
def test_a_tone_is_found_where_occlusion_finds_it() -> None:
    """A tone in one half of the signal, noise in the other: the map, and what silence in each place changes."""
    if "CREPE" not in NAMES:
        pytest.skip("no trained networks here")
    network, _ = named("CREPE").build()
    times, generator = torch.arange(1024) / 16000, torch.Generator().manual_seed(0)
    for pitch, start in ((220.0, 0), (880.0, 512)):
        tone = torch.zeros(1024)
        tone[start : start + 512] = torch.sin(2 * torch.pi * pitch * times)[start : start + 512]
        signal = tone + 0.1 * torch.randn(1024, generator=generator)
        signal = ((signal - signal.mean()) / signal.std()).unsqueeze(0)
        heatmap = l2caf.explain(network, signal)
        silenced = signal.repeat(16, 1)
        for place in range(16):
            silenced[place, 64 * place : 64 * (place + 1)] = 0.0
        with torch.no_grad():
            change = (network(silenced) - network(signal)).square().sum(dim=1)
        half = slice(start, start + 512)
        assert float(change[start // 64 : start // 64 + 8].sum() / change.sum()) > 0.7
        assert float(heatmap.maps[0, half].sum() / heatmap.maps.sum()) > 0.55
        assert start <= int(heatmap.maps[0].argmax()) < start + 512
