"""A model of one's own: whatever prepares its photographs will do, and what can be read of it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import l2caf
from l2caf.errors import InputError
from l2caf.preprocessing import OwnPreprocessing, Preprocessing

NETWORK = nn.Sequential(nn.Conv2d(3, 4, 8, 8), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
PHOTOGRAPH = Image.fromarray(np.random.default_rng(0).integers(0, 256, (60, 90, 3), np.uint8))


def test_a_compose_is_read() -> None:
    transforms = pytest.importorskip("torchvision.transforms", exc_type=(ImportError, RuntimeError))
    compose = transforms.Compose([transforms.Resize(40), transforms.CenterCrop(32), transforms.ToTensor()])
    model = l2caf.Model("mine", NETWORK, compose)
    assert isinstance(model.preprocess, Preprocessing)
    heatmap = model.explain(PHOTOGRAPH)
    assert heatmap.crops is not None
    assert heatmap.overlay().size == PHOTOGRAPH.size
    assert model.whole().explain(PHOTOGRAPH).boxes(on="photograph")


def test_a_function_prepares_as_it_is() -> None:
    def prepare(image: Image.Image) -> torch.Tensor:
        return torch.from_numpy(np.asarray(image.resize((32, 32)), np.float32).transpose(2, 0, 1) / 255)

    model = l2caf.Model("mine", NETWORK, prepare)  # type: ignore[arg-type]
    assert isinstance(model.preprocess, OwnPreprocessing)
    assert model.explain(PHOTOGRAPH).maps.shape == (1, 32, 32)


@pytest.mark.parametrize("parts", [(NETWORK, None), (NETWORK, (224, 224)), ("resnet50", Preprocessing())])
def test_what_is_no_model_is_refused(parts: tuple[Any, Any]) -> None:
    with pytest.raises(InputError, match=r"give Model\(name, network, preprocess\)"):
        l2caf.Model("mine", *parts)
