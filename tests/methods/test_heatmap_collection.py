"""A heatmap is a collection of its samples: indexed, compared, copied, pickled, boxed, saved and shown as a whole."""

from __future__ import annotations

import copy
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import l2caf
import networks_for_tests as nets
from l2caf.errors import InputError
from l2caf.heatmap import Heatmap
from l2caf.localization import boxes_of
from l2caf.preprocessing import Preprocessing
from l2caf.solution import Outcome
from methods_for_tests import METHODS
from networks_for_tests import pixels, seeded

METHODS_ASKED: dict[str, Any] = {
    "oblivious": l2caf.AttentionFilter(),
    "two classes": l2caf.AttentionFilter(l2caf.ClassSpecific(top=2)),
    "gradcam": l2caf.GradCAM(),
    "two cams": l2caf.CAM(top=2),
    "path": l2caf.AttentionFilter(solver=l2caf.GradientDescent(steps=4, keep_path=True)),
}


def heatmap_of(asked: str, batch: int = 3) -> Heatmap:
    heatmap: Heatmap = METHODS_ASKED[asked](seeded(nets.pooled), pixels(batch))
    return heatmap


@pytest.mark.parametrize("asked", METHODS_ASKED)
def test_samples_are_taken_out_with_all_that_is_known_of_them(asked: str) -> None:
    heatmap = heatmap_of(asked)
    assert len(heatmap) == 3
    for number, one in enumerate(heatmap):
        assert len(one) == 1
        assert torch.equal(one.weights, heatmap.weights[number : number + 1])
        assert torch.equal(one.maps, heatmap.maps[number : number + 1])
        assert torch.equal(one.signed, heatmap.signed[number : number + 1])
        assert one.outcome == [heatmap.outcome[number]]
        assert (one.layer, one.axes, one.size, one.method) == (
            heatmap.layer, heatmap.axes, heatmap.size, heatmap.method,
        )  # fmt: skip
        assert one.solution.filter.shape[0] == one.solution.loss.shape[0] == 1
        if heatmap.classes is not None:
            assert torch.equal(one.classes, heatmap.classes[number : number + 1])
        if heatmap.solution.path is not None:
            assert torch.equal(one.solution.path[:, 0], heatmap.solution.path[:, number])
    assert heatmap[1] == heatmap[-2] == heatmap[1:2] == heatmap[[1]] == heatmap[np.int64(1)]
    assert heatmap[:2] == heatmap[[0, 1]] == heatmap[torch.tensor([0, 1])]
    assert heatmap[:] == heatmap
    assert len(heatmap[3:]) == 0


def test_a_sample_knows_its_place_on_its_own_photograph() -> None:
    prepare = Preprocessing((32, 32), (32, 32))
    crops = tuple(prepare.crop(Image.new("RGB", size)) for size in ((40, 80), (90, 50)))
    heatmap = Heatmap(torch.rand(2, 4, 4), (32, 32), "layer", "method", crops=crops)
    assert heatmap[1].crops == crops[1:]
    assert torch.equal(heatmap[1].on_photograph(0), heatmap.on_photograph(1))


def test_samples_that_were_solved_apart_stay_apart() -> None:
    whole = heatmap_of("oblivious")
    parts = (whole[0].solution, whole[1].solution, whole[2].solution)
    solution = copy.copy(whole.solution)
    object.__setattr__(solution, "parts", parts)
    assert solution[1:].of_sample(0) == parts[1]


@pytest.mark.parametrize("asked", METHODS_ASKED)
def test_equal_copied_pickled(asked: str) -> None:
    heatmap, again = heatmap_of(asked), heatmap_of(asked)
    assert heatmap == again
    assert hash(heatmap) == hash(again)
    heatmap.maps  # noqa: B018 - a copy must not depend on what was looked at
    for other in (copy.deepcopy(heatmap), copy.copy(heatmap), pickle.loads(pickle.dumps(heatmap))):
        assert other == heatmap
        assert torch.equal(other.maps, heatmap.maps)
        assert other.outcome == heatmap.outcome
        assert all(isinstance(one, (Outcome, list)) for one in other.outcome)
    moved = copy.deepcopy(heatmap)
    moved.weights[0] += 1
    assert moved != heatmap
    assert heatmap != heatmap[:2]
    assert (heatmap == "a heatmap") is False
    file = io.BytesIO()
    torch.save(heatmap, file)
    file.seek(0)
    assert torch.load(file, weights_only=False) == heatmap


def test_a_pickled_sample_does_not_carry_its_batch() -> None:
    whole = Heatmap(torch.rand(64, 16, 16), (224, 224), "layer", "method")
    whole.maps  # noqa: B018
    one = Heatmap(whole.weights[:1], whole.size, whole.layer, whole.method)
    assert len(pickle.dumps(one)) < 8_000
    assert len(pickle.dumps(whole[0])) < 8_000


@pytest.mark.parametrize("asked", METHODS_ASKED)
def test_one_line_of_words(asked: str) -> None:
    line = repr(heatmap_of(asked))
    assert "\n" not in line
    assert len(line) < 120
    assert "3 samples of 32×32" in line
    mixed = Heatmap(torch.rand(2, 4, 4), (8, 8), "layer", "method")
    mixed.solution.outcome[0] = Outcome.UNMOVED  # type: ignore[call-overload]
    assert repr(mixed) == "Heatmap(2 samples of 8×8, layer 'layer', method, 1 unmoved, 1 formula)"


def test_numbers_as_an_array() -> None:
    heatmap = heatmap_of("oblivious")
    assert np.array_equal(heatmap.numpy(), heatmap.maps.numpy())
    assert heatmap.numpy().shape == (3, 32, 32)


# How the maps were found


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_solution(method: str) -> None:
    heatmap = METHODS[method](seeded(nets.pooled), pixels())
    solution = heatmap.solution
    assert heatmap.solved is solution
    assert solution.solver
    assert solution.reason
    assert solution.endpoint
    assert len(solution.outcome) == len(solution.loss) == len(solution.steps) == len(solution.evaluations) == 2
    assert all(isinstance(one, Outcome) for sample in range(2) for one in solution.outcomes(sample))
    if "CAM" in method:
        assert solution.is_formula
        assert solution.loss.isnan().all()
        assert not heatmap.weights.any() or solution.outcomes(0)[0] == "formula"


def test_a_formula_tells_what_is_wrong_with_a_sample() -> None:
    pictures = pixels(3)
    pictures[1] = float("nan")
    network = seeded(nets.pooled)
    assert l2caf.GradCAM()(network, pictures).outcome == ["formula", "non_finite", "formula"]
    assert l2caf.GradCAM(top=2)(network, pictures).outcome[1] == ["non_finite"] * 2
    assert l2caf.GradCAM(1)(seeded(nets.Unfelt), pixels()).outcome == ["unmoved"] * 2


# Boxes


def hot(*places: tuple[slice, slice]) -> torch.Tensor:
    weights = torch.zeros(8, 8)
    for number, place in enumerate(places):
        weights[place] = 1 - 0.4 * number
    return weights


def test_boxes_at_one_threshold_and_at_several() -> None:
    small, large = (slice(0, 1), slice(0, 2)), (slice(3, 7), slice(4, 8))
    heatmap = Heatmap(torch.stack([hot(small, large), torch.zeros(8, 8)]), (8, 8), "layer", "method")
    first, nothing = heatmap.boxes(0.5)
    assert first.tolist() == [[4, 3, 8, 7], [0, 0, 2, 1]]  # the largest first
    assert nothing.shape == (0, 4)
    at_two, of_none = heatmap.boxes([0.5, 0.9])
    assert [boxes.tolist() for boxes in at_two] == [first.tolist(), [[0, 0, 2, 1]]]
    assert [len(boxes) for boxes in of_none] == [0, 0]
    assert heatmap.boxes()[0].tolist() == heatmap.boxes(0.25)[0].tolist()


def test_boxes_of_several_maps() -> None:
    heatmap = heatmap_of("two classes")
    found = heatmap.boxes(0.4)
    assert [len(sample) for sample in found] == [2, 2, 2]
    for sample in range(3):
        for which in range(2):
            assert found[sample][which][0].tolist() == boxes_of(heatmap.maps[sample, which].numpy(), [0.4])[0].tolist()


# All in one picture


def photographs(count: int) -> list[Image.Image]:
    return [Image.new("RGB", (48, 48), (40 * number, 90, 90)) for number in range(count)]


def opened(path: Path) -> Image.Image:
    with Image.open(path) as picture:
        return picture.convert("RGB")


def places_of(drawn: Image.Image, part: Image.Image) -> int:
    """How often a picture lies in another."""
    whole, looked_for = np.asarray(drawn.convert("RGB")), np.asarray(part.convert("RGB"))
    windows = np.lib.stride_tricks.sliding_window_view(whole, looked_for.shape)
    return int((windows == looked_for).all(axis=(-3, -2, -1)).sum())


def test_a_picture_holds_every_sample_on_its_own_photograph(tmp_path: Path) -> None:
    heatmap, under = heatmap_of("two classes", 2), photographs(2)
    drawn = opened(heatmap.save(tmp_path / "all.png", under))
    for sample in range(2):
        for which in range(2):
            assert places_of(drawn, heatmap.overlay(under[sample], sample, which=which)) == 1
    one = opened(heatmap[1].save(tmp_path / "one.png", under[1]))
    assert places_of(one, heatmap.overlay(under[1], 1, which=0)) == 1
    assert one.width < drawn.width
    assert one.height < drawn.height


def test_the_photographs_have_to_be_those_of_the_samples(tmp_path: Path) -> None:
    heatmap = heatmap_of("oblivious")
    for given in (photographs(1)[0], photographs(2), photographs(4)):
        with pytest.raises(InputError, match=r"3 samples and .*: give a list of one per sample, or choose a sample"):
            heatmap.save(tmp_path / "wrong.png", given)
    heatmap.save(tmp_path / "right.png", photographs(1)[0], 1)
    assert [file.name for file in tmp_path.iterdir()] == ["right.png"]


def test_maps_alone_and_in_a_notebook(tmp_path: Path) -> None:
    heatmap = heatmap_of("oblivious")
    alone = opened(heatmap[0].save(tmp_path / "alone.png"))
    assert alone.size == (32, 32)
    shown = heatmap._repr_png_()
    assert shown is not None
    assert np.array_equal(
        np.asarray(Image.open(io.BytesIO(shown))), np.asarray(opened(heatmap.save(tmp_path / "all.png")))
    )
    assert Heatmap(torch.rand(1, 4, 4, 4), (8, 8, 8), "layer", "method")._repr_png_() is None


def test_a_setting_of_drawings_that_there_is_not() -> None:
    heatmap = heatmap_of("oblivious")
    with pytest.raises(InputError, match="no setting 'contour': did you mean contours") as caught:
        heatmap.overlay(photographs(1)[0], contour=True)
    assert caught.value.field == "contour"
