"""A picture shows the map that was asked for, or all of them, or is refused; and its numbers are float32 everywhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import l2caf
import networks_for_tests as nets
from l2caf.errors import FileError, InputError
from l2caf.heatmap import Heatmap
from networks_for_tests import pixels, seeded

PHOTOGRAPH = Image.new("RGB", (64, 64), (90, 90, 90))


def _several(classes: torch.Tensor | None = None) -> Heatmap:
    """Two samples of three maps, each hot in a corner of its own."""
    weights = torch.zeros(2, 3, 4, 4)
    weights[:, 0, 0, 0] = weights[:, 1, 0, 3] = weights[:, 2, 3, 0] = 1
    return Heatmap(weights, (64, 64), "layer", "method", classes=classes)


def test_a_picture_of_several_maps_shows_all_of_them(tmp_path: Path) -> None:
    heatmap = _several(torch.tensor([[5, 0, 7]] * 2))
    drawn = np.asarray(Image.open(heatmap.save(tmp_path / "all.png", PHOTOGRAPH, index=1, legend=False)).convert("RGB"))
    for which in range(3):
        one = np.asarray(heatmap.overlay(PHOTOGRAPH, 1, which=which))
        places = [
            column
            for column in range(drawn.shape[1] - 63)
            if np.array_equal(drawn[-64 - 14 : -14, column : column + 64], one)
        ]
        assert len(places) == 1, f"map {which} is drawn {len(places)} times"


def test_one_of_several_maps_is_drawn_where_it_is_chosen(tmp_path: Path) -> None:
    heatmap = _several()
    drawn = Image.open(heatmap.save(tmp_path / "one.png", PHOTOGRAPH, 0, which=2))
    assert np.array_equal(np.asarray(drawn), np.asarray(heatmap.overlay(PHOTOGRAPH, which=2)))


def test_to_lay_several_maps_over_one_photograph_is_refused() -> None:
    with pytest.raises(InputError, match="3 maps per sample: choose one with which=0 to which=2"):
        _several().overlay(PHOTOGRAPH)


@pytest.mark.parametrize("which", [5, 1, -2])
def test_a_map_that_is_not_there(which: int) -> None:
    single = l2caf.explain(seeded(nets.pooled), pixels())
    with pytest.raises(InputError, match=f"There is 1 map per sample, so which must be below that, not {which}"):
        single.overlay(PHOTOGRAPH, which=which)
    assert single.overlay(PHOTOGRAPH, which=0) == single.overlay(PHOTOGRAPH)
    with pytest.raises(InputError, match="There are 3 maps per sample"):
        _several().overlay(PHOTOGRAPH, which=9)


@pytest.mark.parametrize("name", ["where", "where.xyz", "where.npz"])
def test_a_name_that_ends_in_no_picture(tmp_path: Path, name: str) -> None:
    heatmap = l2caf.explain(seeded(nets.pooled), pixels())
    with pytest.raises(FileError, match=r"end it in \.png"):
        heatmap.save(tmp_path / name, [PHOTOGRAPH] * 2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_maps_that_are_read_under_autocast_are_float32_and_can_be_saved(tmp_path: Path, dtype: torch.dtype) -> None:
    network, pictures = seeded(nets.pooled), pixels()
    plain = l2caf.explain(network, pictures)
    inside = Heatmap(plain.weights, plain.size, plain.layer, plain.method)
    with torch.autocast("cpu", dtype=dtype):
        maps, signed = inside.maps, inside.signed
        computed = l2caf.explain(network, pictures)
        assert computed.maps.dtype == torch.float32
        computed.save(tmp_path / "computed.npy")
        computed.save(tmp_path / "computed.png", [PHOTOGRAPH] * 2)
    assert maps.dtype == signed.dtype == torch.float32
    assert torch.equal(maps, plain.maps)
    assert torch.equal(signed, plain.signed)
    assert np.load(tmp_path / "computed.npy").dtype == np.float32


def test_the_numbers_of_a_signed_map_keep_their_sign(tmp_path: Path) -> None:
    weights = torch.tensor([[[3.0, -1.0], [0.0, 2.0]]])
    heatmap = Heatmap(weights, (2, 2), "layer", "method", keeps_sign=True)
    plain, signed = (np.load(heatmap.save(tmp_path / f"{told}.npy", signed=told)) for told in (False, True))
    np.testing.assert_allclose(plain, [[[1, 0], [0, 2 / 3]]], rtol=1e-6)
    np.testing.assert_allclose(signed, [[[1, -1 / 3], [0, 2 / 3]]], rtol=1e-6)
