"""Feature maps that were kept give the maps of the network that made them, whatever they are kept in."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_tensors
from scipy.optimize import minimize
from torch import nn

import l2caf
from l2caf.errors import ClassError, InputError
from l2caf.features.exact import filters_of
from l2caf.features.stored import blocks, stored

CHANNELS, OUTPUTS, GRID = 48, 40, (6, 7)  # more outputs and positions than are taken apart by eigenvalues
OBJECTIVES = {
    "output": l2caf.ClassOblivious(),
    "class": l2caf.ClassSpecific(),
    "prediction": l2caf.Prediction(),
}


def network() -> nn.Sequential:
    torch.manual_seed(0)
    layers = nn.Conv2d(3, CHANNELS, 4, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(CHANNELS, OUTPUTS)).eval()


@pytest.fixture(scope="module")
def made() -> tuple[nn.Sequential, torch.Tensor, np.ndarray, np.ndarray, np.ndarray]:
    net = network()
    images = torch.rand(7, 3, 24, 28, generator=torch.Generator().manual_seed(1))
    images[:, :, 8:16, 12:20] += 1
    with torch.no_grad():
        features = net[:2](images).numpy()
    return net, images, features, net[4].weight.detach().numpy(), net[4].bias.detach().numpy()


@pytest.mark.parametrize("about", OBJECTIVES)
def test_the_same_filter_as_the_network_itself_gives(made: Any, about: str) -> None:
    net, images, features, weight, bias = made
    expected = l2caf.explain(net, images, layer="1", objective=OBJECTIVES[about])
    assert set(expected.outcome) == {"exact"}
    by_arrays = l2caf.explain_features((weight, bias), features, objective=OBJECTIVES[about], block=3)
    by_module = l2caf.explain_features(net[2:], torch.from_numpy(features), objective=OBJECTIVES[about])
    without_torch = filters_of(features, weight, bias, about=about)  # type: ignore[arg-type]
    for found in (by_arrays.weights, by_module.weights, torch.from_numpy(without_torch.weights)):
        torch.testing.assert_close(found.double(), expected.weights.double(), atol=1e-5, rtol=0)
    assert by_arrays.outcome == expected.outcome == without_torch.outcome
    if about == "class":
        assert by_arrays.classes is not None
        assert by_arrays.classes.tolist() == without_torch.classes[:, None].tolist()  # type: ignore[index]


@pytest.mark.parametrize("outputs", [5, OUTPUTS])
def test_the_filter_is_the_minimum_that_scipy_finds(outputs: int) -> None:
    rng = np.random.default_rng(3)
    features, weight = rng.random((2, 10, 6, 6)) * rng.random((2, 1, 6, 6)), rng.normal(size=(outputs, 10))
    found = filters_of(features, weight, rng.normal(size=outputs)).weights.reshape(2, -1)
    np.testing.assert_allclose((found**2).sum(axis=1), 1, rtol=1e-6)
    for own, columns in zip(found, features.reshape(2, 10, -1), strict=True):
        jacobian = weight @ columns / columns.shape[1]
        target = jacobian.sum(axis=1)

        def loss(f: np.ndarray, jacobian: np.ndarray = jacobian, target: np.ndarray = target) -> float:
            unit = f / np.linalg.norm(f)
            return float(((jacobian @ unit - target) ** 2).sum())

        starts = [rng.normal(size=len(own)) for _ in range(5)]
        best = min(minimize(loss, start, method="L-BFGS-B").fun for start in starts)
        assert loss(own) <= best * (1 + 1e-6)


def write_npy(folder: Path, features: np.ndarray) -> Any:
    np.save(folder / "maps.npy", features)
    return folder / "maps.npy"


def write_npz(folder: Path, features: np.ndarray) -> Any:
    np.savez_compressed(folder / "maps.npz", maps=features)
    return str(folder / "maps.npz")


def write_safetensors(folder: Path, features: np.ndarray) -> Any:
    save_file({"other": np.zeros(3, np.float32), "maps": features}, folder / "maps.safetensors")
    return folder / "maps.safetensors"


def write_folder(folder: Path, features: np.ndarray) -> Any:
    np.save(folder / "a.npy", features[:3])
    np.savez(folder / "b.npz", maps=features[3:4])
    save_file({"maps": features[4:].copy()}, folder / "c.safetensors")
    return folder


def keep_list(folder: Path, features: np.ndarray) -> Any:
    return [features[:2], torch.from_numpy(features[2:])]


@pytest.mark.parametrize("keep", [write_npy, write_npz, write_safetensors, write_folder, keep_list])
def test_whatever_they_are_kept_in(made: Any, keep: Callable[..., Any], tmp_path: Path) -> None:
    *_, features, weight, bias = made
    halves = features.astype(np.float16)
    expected = filters_of(halves, weight, bias).weights
    kept = keep(tmp_path, halves)
    key = "maps" if keep is write_safetensors else None
    found = l2caf.explain_features((weight, bias), kept, key=key, block=2)
    np.testing.assert_allclose(found.weights.numpy(), expected, atol=1e-5)


def test_bfloat16_and_other_orders_of_axes(made: Any, tmp_path: Path) -> None:
    *_, features, weight, bias = made
    halves = torch.from_numpy(features).bfloat16()
    save_tensors({"maps": halves}, tmp_path / "maps.safetensors")
    (block,) = blocks(stored(tmp_path / "maps.safetensors"), size=99)
    np.testing.assert_array_equal(block, halves.float().numpy())
    expected = filters_of(features, weight, bias).weights
    last = l2caf.explain_features((weight, bias), np.moveaxis(features, 1, -1), channels=-1)
    np.testing.assert_allclose(last.weights.numpy(), expected, atol=1e-5)
    (tmp_path / "single").mkdir()
    for number, one in enumerate(features):
        np.save(tmp_path / "single" / f"{number}.npy", one)
    single = l2caf.explain_features((weight, bias), tmp_path / "single", channels=0, block=4)
    np.testing.assert_allclose(single.weights.numpy(), expected, atol=1e-5)


def test_signals_volumes_and_a_head_that_is_not_affine() -> None:
    rng = np.random.default_rng(0)
    for grid in ((9,), (4, 5, 6)):
        features = rng.random((2, 8, *grid))
        found = l2caf.explain_features((rng.normal(size=(4, 8)), None), features)
        assert found.weights.shape == (2, *grid)
        assert found.outcome == ["exact", "exact"]
    head = nn.Sequential(nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(8, 4), nn.Tanh()).eval()
    features = np.full((1, 8, 5, 5), 0.1, np.float32)
    features[0, :, 1, 3] = 3
    found = l2caf.explain_features(head, features, size=(50, 50))
    assert found.maps.shape == (1, 50, 50)
    assert int(found.weights.abs().argmax()) == 8


def test_labels_are_cut_with_the_blocks(made: Any) -> None:
    *_, features, weight, bias = made
    labels = [3, 1, 4, 1, 5, 9, 2]
    found = l2caf.explain_features((weight, bias), features, objective=l2caf.ClassSpecific(labels=labels), block=3)
    expected = filters_of(features, weight, bias, about="class", classes=labels)
    np.testing.assert_allclose(found.weights.numpy(), expected.weights, atol=1e-5)
    with pytest.raises(ClassError, match="labels names 2 classes for 7 maps"):
        l2caf.explain_features((weight, bias), features, objective=l2caf.ClassSpecific(labels=[1, 2]))


def test_maps_with_nan_and_maps_that_show_nothing_are_told(made: Any) -> None:
    *_, features, weight, bias = made
    spoilt = features.copy()
    spoilt[1, 0, 0, 0], spoilt[2] = np.nan, 1.0
    plain = filters_of(spoilt, weight, bias)
    assert plain.outcome[:3] == ["exact", "non_finite", "uniform"]
    assert not plain.weights[1].any()
    np.testing.assert_allclose(plain.weights[3:], filters_of(features, weight, bias).weights[3:], atol=1e-6)
    assert l2caf.explain_features((weight, bias), spoilt).outcome[:3] == ["exact", "non_finite", "uniform"]


def test_memory_stays_that_of_a_block(tmp_path: Path) -> None:
    file = np.lib.format.open_memmap(tmp_path / "maps.npy", "w+", np.float16, (1200, 64, 8, 8))
    file[:] = np.random.default_rng(0).random((64, 8, 8))
    del file
    weight = np.random.default_rng(1).normal(size=(10, 64))
    tracemalloc.start()
    try:
        for block in blocks(stored(tmp_path / "maps.npy"), size=20):
            filters_of(block, weight, about="class")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 12 * 20 * 64 * 64 * 2  # bytes: some copies of a block; all maps are sixty


def test_bad_features_are_refused_in_a_sentence(tmp_path: Path) -> None:
    weight = np.ones((3, 8))
    good = np.ones((2, 8, 4, 4))
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.npy").write_bytes(b"nothing")
    (tmp_path / "broken.safetensors").write_bytes(b"\x00" * 4)
    np.savez(tmp_path / "two.npz", a=good, b=good)
    np.save(tmp_path / "words.npy", np.array([["a"]]))
    for features, options, words in (
        (tmp_path / "none.npy", {}, "There is no file"),
        (tmp_path / "empty", {}, "holds no features"),
        (tmp_path / "broken.npy", {}, "cannot be read"),
        (tmp_path / "broken.safetensors", {}, "cannot be read"),
        (tmp_path / "two.npz", {}, "holds a, b: choose one with key="),
        (tmp_path / "two.npz", {"key": "c"}, "no 'c' among them"),
        (tmp_path / "words.npy", {}, "features are numbers"),
        ([], {}, "no features to explain"),
        (5, {}, "The features are a int"),
        (np.ones((2, 8)), {}, "has the shape"),
        (np.ones((0, 8, 4, 4)), {}, "has the shape"),
        (np.ones((2, 4, 4, 8)), {}, "have 4 channels, but W takes 8"),
        ([good, np.ones((2, 8, 5, 5))], {}, "of one shape at a time"),
        (good, {"channels": 2}, "channels is 2"),
        (good, {"block": 0}, "holds no map"),
        (good, {"size": (4, 4, 4)}, "give as many lengths"),
    ):
        with pytest.raises(InputError, match=words):
            l2caf.explain_features((weight, None), features, **options)
    for head, words in (
        (weight, "The head is a ndarray"),
        ((np.ones(3), None), "give \\(W, b\\)"),
        ((weight, np.ones(4)), "give \\(W, b\\)"),
        ((weight * np.nan, None), "NaN or infinity"),
    ):
        with pytest.raises(InputError, match=words):
            l2caf.explain_features(head, good)
    with pytest.raises(InputError, match="about is"):
        filters_of(good, weight, about="classes")  # type: ignore[arg-type]
    with pytest.raises(ClassError, match="out of range"):
        filters_of(good, weight, about="class", classes=3)
