"""Batches come in order, bad files are named, and nothing is left behind."""

from __future__ import annotations

import threading
import time
import warnings
from pathlib import Path

import pytest
import torch
from PIL import Image

import made_datasets as made
from l2caf.datasets import Sample, loading
from l2caf.datasets.loading import batches
from l2caf.errors import InputError
from l2caf.preprocessing import Preprocessing, WholePreprocessing

VIEW = Preprocessing(input_size=(16, 16), resize_size=(20, 20))


@pytest.fixture
def samples(tmp_path: Path) -> list[Sample]:
    """Ten images, each of one grey that says its number; the fourth and the last cannot be read."""
    made_samples = []
    for number in range(10):
        path = tmp_path / f"{number}.png"
        Image.new("RGB", (30, 24), (number * 20,) * 3).save(path)
        made_samples.append(Sample(path, name=path.name, label=number, boxes=[[0, 0, 30, 24]]))
    (tmp_path / "3.png").write_bytes(b"no picture")
    (tmp_path / "9.png").unlink()
    return made_samples


def threads() -> int:
    return sum(thread.name.startswith("l2caf-loading") for thread in threading.enumerate())


@pytest.mark.parametrize("workers", [0, 1, 3, None])
@pytest.mark.parametrize("size", [1, 3, 4, 100])
def test_in_order_without_the_bad_ones(samples: list[Sample], size: int, workers: int | None) -> None:
    found = list(batches(samples, VIEW, size, workers=workers, pictures=True))
    assert [index for batch in found for index in batch.indices] == [0, 1, 2, 4, 5, 6, 7, 8]
    assert [label for batch in found for label in batch.labels] == [0, 1, 2, 4, 5, 6, 7, 8]
    assert [(bad.index, bad.name) for batch in found for bad in batch.bad] == [(3, "3.png"), (9, "9.png")]
    assert [len(batch) + len(batch.bad) for batch in found] == [min(size, 10 - start) for start in range(0, 10, size)]
    for batch in found:
        assert [one.shape for one in batch.each] == [(3, 16, 16)] * len(batch)
        assert len(batch.boxes) == len(batch.pictures) == len(batch.names) == len(batch)
        for index, array, picture in zip(batch.indices, batch.each, batch.pictures, strict=True):
            assert picture.getpixel((0, 0))[0] == index * 20
            assert torch.equal(torch.from_numpy(array), VIEW(Image.new("RGB", (30, 24), (index * 20,) * 3)))
    assert threads() == 0


def test_bad_ones_come_with_a_sentence(samples: list[Sample]) -> None:
    bad = [bad for batch in batches(samples, VIEW, 4) for bad in batch.bad]
    assert "is not an image" in bad[0].message
    assert "does not exist" in bad[1].message
    assert str(samples[9].path) in bad[1].message


def test_pictures_are_kept_only_if_asked_for(samples: list[Sample]) -> None:
    assert all(batch.pictures == [] for batch in batches(samples, VIEW, 4))


def test_a_box_outside_of_the_image_is_a_bad_sample(samples: list[Sample]) -> None:
    sample = Sample(samples[0].path, name="off", boxes=[[100, 100, 120, 120]])
    (batch,) = batches([sample], VIEW, 4)
    assert len(batch) == 0
    assert batch.each == ()
    assert batch.alike() == []
    assert "lies outside of" in batch.bad[0].message


def test_no_samples_no_batches() -> None:
    assert list(batches([], VIEW, 4)) == []


@pytest.mark.parametrize(("size", "workers"), [(0, 1), (4, -1)])
def test_sizes_are_checked_at_once(samples: list[Sample], size: int, workers: int) -> None:
    with pytest.raises(InputError):
        batches(samples, VIEW, size, workers=workers)


def test_closing_stops_the_threads(samples: list[Sample]) -> None:
    running = batches(samples * 50, VIEW, 2, workers=2)
    next(running)
    assert threads() > 0
    running.close()
    assert threads() == 0


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interrupt_of_the_consumer_stops_the_threads(samples: list[Sample], error: type) -> None:
    with pytest.raises(error):
        consume(samples, error)
    assert threads() == 0


def consume(samples: list[Sample], error: type) -> None:
    for batch in batches(samples * 50, VIEW, 2, workers=2):
        if 2 in batch.indices:
            raise error


def test_an_interrupt_while_waiting_stops_the_threads(samples: list[Sample], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    running = batches(samples, VIEW, 2, workers=2)
    next(running)
    monkeypatch.setattr(loading, "_batch", interrupt)
    with pytest.raises(KeyboardInterrupt):
        next(running)
    assert threads() == 0


def test_a_fault_of_ours_is_not_taken_for_a_bad_file(samples: list[Sample], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(loading, "open_sample", fail)
    with pytest.raises(ZeroDivisionError):
        list(batches(samples, VIEW, 2, workers=2))
    assert threads() == 0


def test_only_about_one_batch_is_read_ahead(samples: list[Sample], monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    plain = loading.open_sample
    monkeypatch.setattr(loading, "open_sample", lambda sample: (opened.append(sample), plain(sample))[1])
    running = batches(samples * 20, VIEW, 4, workers=2)
    next(running)
    while len(opened) <= 4:  # the threads read on by themselves, however busy the machine is
        time.sleep(0.01)
    time.sleep(0.2)  # time to read too much
    assert len(opened) <= 4 + 4 + 2
    running.close()


def test_filters_of_warnings_are_as_before(samples: list[Sample]) -> None:
    before = list(warnings.filters)
    list(batches(samples * 20, VIEW, 4, workers=4))
    assert list(warnings.filters) == before


def test_made_pictures_of_many_shapes(tmp_path: Path) -> None:
    shapes = [(40, 30), (1, 1), (500, 3), (3, 500)]
    made_samples = [
        Sample(made.picture(tmp_path / f"{number}.png", shape), name=str(number)) for number, shape in enumerate(shapes)
    ]
    (batch,) = batches(made_samples, VIEW, 8)
    assert batch.inputs.shape == (4, 3, 16, 16)
    assert batch.bad == ()


def test_inputs_of_several_sizes_come_in_parts_of_one(tmp_path: Path) -> None:
    sizes = [(64, 32), (128, 64), (32, 64), (64, 32)]
    made_samples = []
    for number, size in enumerate(sizes):
        path = tmp_path / f"{number}.png"
        Image.new("RGB", size).save(path)
        made_samples.append(Sample(path, name=path.name))
    (batch,) = batches(made_samples, WholePreprocessing(Preprocessing(input_size=(32, 32))), 8)
    parts = batch.alike()
    assert [part.names for part in parts] == [("0.png", "1.png"), ("2.png",), ("3.png",)]
    assert [part.inputs.shape for part in parts] == [(2, 3, 32, 64), (1, 3, 64, 32), (1, 3, 32, 64)]
