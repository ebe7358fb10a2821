"""The real datasets, where they are on disk: counts, and boxes inside of the images."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from l2caf import datasets
from l2caf.datasets.loading import batches
from l2caf.preprocessing import Preprocessing, viewed

HOME = Path(os.environ.get("L2CAF_DATA", Path(__file__).parents[3] / "shared" / "data"))
FOLDERS = {"imagenet": "imagenet-val", "cub": "cub-36", "cars": "cars-24"}

pytestmark = [
    pytest.mark.dataset,
    pytest.mark.skipif(not all((HOME / name).is_dir() for name in FOLDERS.values()), reason="no datasets here"),
]


def read(kind: str, **options: str) -> datasets.Dataset:
    return datasets.read(kind, HOME / FOLDERS[kind], **options)


def test_counts() -> None:
    assert len(read("imagenet")) == 1000
    assert sum(len(sample.boxes) for sample in read("imagenet").samples) == 1626
    assert len(read("cub")) == 2110
    assert len(read("cars")) == 1978


@pytest.mark.parametrize(("kind", "classes"), [("cub", 18), ("cars", 12)])
def test_halves_and_splits_share_no_image_and_lose_none(kind: str, classes: int) -> None:
    everything = {sample.name for sample in read(kind).samples}
    for option, parts in (("half", ("first", "second")), ("split", ("train", "test"))):
        one, other = (read(kind, **{option: part}).samples for part in parts)
        assert {sample.name for sample in one} | {sample.name for sample in other} == everything
        assert len(one) + len(other) == len(everything)
    for part in ("first", "second"):
        assert len({sample.label for sample in read(kind, half=part).samples}) == classes


def test_manifest_says_the_same_as_the_lists() -> None:
    lists = read("imagenet").samples
    rows = datasets.read("manifest", HOME / "imagenet-val", inclusive=True).samples
    assert [sample.name for sample in lists] == [sample.name for sample in rows]
    assert all(np.array_equal(one.boxes, other.boxes) for one, other in zip(lists, rows, strict=True))


@pytest.mark.parametrize("kind", FOLDERS)
@pytest.mark.parametrize("view", ["crop", "squash"])
def test_boxes_lie_inside(kind: str, view: str) -> None:
    dataset = read(kind).limit(120)
    for sample in dataset.samples:
        image, boxes = datasets.open_sample(sample)
        assert (boxes[:, :2] >= 0).all()
        assert (boxes[:, 2:] <= image.size).all()
        # Nothing was cut off beyond rounding: the boxes were made for these images.
        assert boxes == pytest.approx(sample.boxes, abs=1)
    for batch in batches(dataset.samples, viewed(Preprocessing(), view), 16, workers=1):
        assert batch.bad == ()
        for boxes in batch.boxes:
            assert boxes.min() >= 0
            assert boxes.max() <= 224
            assert (boxes[:, 2:] >= boxes[:, :2]).all()
            if view == "squash":
                assert (boxes[:, 2:] > boxes[:, :2]).all()
