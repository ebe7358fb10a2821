"""`Model`: a photograph in, a run out, and what its answer means."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from l2caf.errors import InputError, NetworkError
from l2caf.networks.model import Model, device_named
from l2caf.preprocessing import Preprocessing, as_preprocess
from networks_for_tests import pooled, seeded

PREPARE = Preprocessing(input_size=(32, 32), resize_size=(36, 36))
PHOTOGRAPH = Image.effect_noise((90, 60), 60).convert("RGB")


@pytest.fixture
def model() -> Model:
    return Model("small", seeded(pooled), PREPARE, ("cat", "dog"))


def test_a_photograph_becomes_input_picture_and_place(model: Model) -> None:
    made = model.prepare(PHOTOGRAPH)
    assert torch.equal(torch.from_numpy(made.input), PREPARE(PHOTOGRAPH))
    assert made.view.size == (448, 448)  # sharper than what the network gets
    assert made.crop is not None
    assert made.crop.image_size == (60, 90)
    assert made.crop.rows.stop - made.crop.rows.start == pytest.approx(60 * 32 / 36, abs=2)


def test_the_whole_photograph_is_another_preparation(model: Model) -> None:
    whole = model.whole()
    made = whole.prepare(PHOTOGRAPH)
    assert made.input.shape == (3, 32, 64)
    assert made.crop is not None
    assert (made.crop.columns.start, made.crop.columns.stop) == (0, 90)
    assert whole.whole() is whole
    assert whole.identity != model.identity
    own = replace(model, preprocess=as_preprocess(lambda image: torch.zeros(3, 32, 32)))
    with pytest.raises(InputError, match="small prepares its pictures itself"):
        own.whole()


def test_one_run_serves_the_output_and_the_maps(model: Model) -> None:
    inputs = [model.prepare(PHOTOGRAPH).input, model.prepare(PHOTOGRAPH.rotate(180)).input]
    with model.run(inputs, layer="0") as recording, torch.no_grad():
        assert torch.allclose(recording.output, model.network(torch.from_numpy(np.stack(inputs))), atol=1e-6)
        assert recording.head.layer.name == "0"


def test_a_network_that_fails_is_named(model: Model) -> None:
    with pytest.raises(InputError, match="The inputs have 5 channels, but the network takes 3"):
        model.run(torch.zeros(1, 5, 8, 8))
    model.network[3] = nn.Unflatten(1, (7, 7))  # which 8 numbers are not
    with pytest.raises(NetworkError, match="small failed on an input of 1 × 3 × 32 × 32"):
        model.run(torch.zeros(1, 3, 32, 32))


def test_preprocessing_that_fails_is_named(model: Model) -> None:
    def broken(image: Image.Image) -> Tensor:
        raise KeyError("no such thing")

    with pytest.raises(InputError, match="small cannot prepare this picture"):
        replace(model, preprocess=as_preprocess(broken)).prepare(PHOTOGRAPH)


def test_predictions_are_for_scores_only(model: Model) -> None:
    scores = torch.tensor([[0.0, 2.0], [torch.nan, 1.0]])
    best, none = model.predictions(scores)
    assert (best.index, best.name) == (1, "dog")
    assert best.probability == pytest.approx(float(scores[0].softmax(0)[1]))
    assert none is None
    assert replace(model, embedding=True).predictions(scores) == [None, None]
    assert model.predictions(torch.zeros(2, 3, 4)) == [None, None]
    assert model.class_name(7) == "class 7"


def test_a_network_in_bfloat16_is_given_its_own_type(model: Model) -> None:
    half = replace(model, network=seeded(pooled).bfloat16())
    assert half.batch([half.prepare(PHOTOGRAPH).input]).dtype == torch.bfloat16
    own = as_preprocess(lambda image: PREPARE(image).bfloat16())
    assert own.prepare(PHOTOGRAPH).input.dtype == np.float32
    assert model.batch([model.prepare(PHOTOGRAPH).input]).dtype == torch.float32


def test_identity_is_of_weights_and_preparation(model: Model) -> None:
    same = Model("another name", seeded(pooled), PREPARE)
    assert same.identity == model.identity
    assert replace(model, preprocess=Preprocessing()).identity != model.identity
    assert replace(model, normalized=False).identity != model.identity
    with torch.no_grad():
        next(same.network.parameters()).mul_(1.01)
    assert replace(same).identity != model.identity


def test_an_embedding_is_what_the_last_layer_was_given() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.Linear(5, 2))
    inputs = torch.rand(3, 3, 2, 2)
    expected = network[:2](inputs)
    made = Model("small", network, PREPARE, ("cat", "dog")).as_embedding()
    assert (made.name, made.embedding, made.class_names) == ("small, pooled features", True, ())
    assert torch.equal(made.network(inputs), expected)
    assert made.as_embedding() is made


def test_devices_by_name() -> None:
    assert device_named("cpu") == "cpu"
    assert device_named("auto") in ("cpu", "cuda")
    with pytest.raises(InputError, match="no device 'abacus'") as caught:
        device_named("abacus")
    assert caught.value.field == "device"
