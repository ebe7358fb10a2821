"""Trained networks, exported: their maps on a hundred photographs, in both precisions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import l2caf
from l2caf.networks.model import Model
from l2caf.sample_photographs import sample_path

DATA = Path("/work/shared/data")
PHOTOGRAPHS = DATA / "imagenet-val" / "val"
ROOT = Path(__file__).parents[2]
here = pytest.mark.skipif(not PHOTOGRAPHS.is_dir(), reason="the photographs are not here")


def test_the_embedded_network_says_in_a_file_what_it_says_in_torch(tmp_path: Path) -> None:
    made = l2caf.export("tf_efficientnet_lite0", tmp_path / "model.onnx")
    assert (made.card.grid, made.card.layer, len(made.card.class_names)) == ((7, 7), "bn2", 1000)
    for found in made.check.maps.values():
        assert found.error < 1e-4
        assert found.not_converged == 0
    answer = made.load().explain(sample_path("cat"))
    (prediction,) = answer.predictions()
    assert prediction is not None
    assert "cat" in prediction.name
    assert answer.outcomes == [["exact"]]


def mobilenet() -> Model:
    weights = DATA / "weights" / "mobilenet-v2-imagenet-fp16.safetensors"
    return l2caf.load("torchvision:mobilenet_v2", weights=weights)


def resnet() -> Model:
    weights = DATA / "weights" / "resnet50-keras-v1-fp16.safetensors"
    return l2caf.load(f"{ROOT / 'examples' / 'resnet50_v1.py'}:build", weights=weights)


@here
@pytest.mark.dataset
@pytest.mark.endurance
@pytest.mark.parametrize(
    "load", [l2caf.load, mobilenet, resnet], ids=["EfficientNet-Lite0", "MobileNetV2", "ResNet-50"]
)
def test_maps_of_a_hundred_photographs(load: Callable[[], Model], tmp_path: Path) -> None:
    check = l2caf.export(load(), tmp_path / "model.onnx", photographs=PHOTOGRAPHS).check
    assert (check.photographs, check.same_best) == (100, 1.0)
    for found in check.maps.values():
        assert found.error < 1e-4
        assert found.maps in (100, 500)
        assert found.not_converged == 0


@here
@pytest.mark.dataset
@pytest.mark.endurance
def test_int8_on_photographs_that_it_was_not_made_with(tmp_path: Path) -> None:
    check = l2caf.export(l2caf.load(), tmp_path / "int8.onnx", photographs=PHOTOGRAPHS, precision="int8").check
    assert check.same_best is not None
    assert check.same_best >= 0.85
    for found in check.maps.values():
        assert found.correlation >= 0.95
        assert found.least_correlation >= 0.8
