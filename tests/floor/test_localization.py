"""Boxes and components against OpenCV, IoU against counted pixels."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from skimage import data

from l2caf import localization
from l2caf.boxes import best_iou, iou
from l2caf.errors import InputError
from l2caf.localization import all_boxes_of, boxes_of, components_of, overlap_of

SWEEP = tuple(np.linspace(0.05, 0.95, 10))


def upsampled(count: int, *, grid: int, size: tuple[int, int], seed: int) -> np.ndarray:
    """What a network's heatmaps look like: a small grid of numbers, enlarged smoothly."""
    numbers = torch.rand(count, 1, grid, grid, generator=torch.Generator().manual_seed(seed)) ** 2
    return torch.nn.functional.interpolate(numbers, size, mode="bilinear")[:, 0].numpy()


def all_kinds_of_maps() -> list[np.ndarray]:
    """A thousand: smooth, noisy, coarse (many ties), and cut from photographs."""
    rng = np.random.default_rng(0)
    maps = [
        *upsampled(250, grid=7, size=(112, 112), seed=1),
        *upsampled(150, grid=14, size=(96, 130), seed=2),
    ]
    maps += [rng.random((height, width)) for height, width in rng.integers(1, 60, (300, 2))]
    maps += [rng.integers(0, 5, (height, width)) for height, width in rng.integers(1, 40, (200, 2))]
    photograph = data.camera().astype(np.float32)
    maps += [photograph[top : top + 96, left : left + 128] for top, left in rng.integers(0, 380, (100, 2))]
    return maps


def opencv_components(heat: np.ndarray, threshold: float) -> np.ndarray:
    """OpenCV's x, y, width, height, area of all components, in order of their first pixels."""
    heat = heat if heat.dtype.kind == "f" else heat.astype(np.float64)
    mask = (heat >= heat.dtype.type(threshold) * heat.max()).astype(np.uint8) * (heat.max() > 0)
    _, labels, stats, _ = cv2.connectedComponentsWithStats(mask.astype(np.uint8), connectivity=8)
    numbers, first_pixels = np.unique(labels, return_index=True)
    foreground = [numbers[k] for k in np.argsort(first_pixels) if mask.flat[first_pixels[k]]]
    return stats[foreground]


def opencv_boxes(stats: np.ndarray) -> np.ndarray:
    return np.concatenate([stats[:, :2], stats[:, :2] + stats[:, 2:4]], axis=1)


class TestAgainstOpenCV:
    @pytest.mark.slow
    def test_a_thousand_maps(self) -> None:
        maps = all_kinds_of_maps()
        assert len(maps) == 1000
        for heat in maps:
            found = components_of(heat, SWEEP)
            largest = found.largest()
            for level, boxes in enumerate(found.split()):
                stats = opencv_components(heat, SWEEP[level])
                np.testing.assert_array_equal(boxes, opencv_boxes(stats))
                np.testing.assert_array_equal(found.areas[found.masks == level], stats[:, 4])
                expected = opencv_boxes(stats)[stats[:, 4].argmax()] if len(stats) else np.zeros(4)
                np.testing.assert_array_equal(largest[level], expected)

    def test_a_fine_sweep_over_more_masks_than_are_labelled_together(self, monkeypatch: pytest.MonkeyPatch) -> None:
        heat = upsampled(1, grid=7, size=(60, 60), seed=3)[0]
        fine = np.arange(0, 1, 0.01)
        expected = boxes_of(heat, fine)
        monkeypatch.setattr(localization, "_PIXELS_AT_ONCE", 20_000)
        np.testing.assert_array_equal(boxes_of(heat, fine), expected)
        stats = opencv_components(heat, fine[77])
        np.testing.assert_array_equal(expected[77], opencv_boxes(stats)[stats[:, 4].argmax()])


class TestMaps:
    def test_a_stack_gives_what_the_maps_give_one_by_one(self) -> None:
        maps = upsampled(6, grid=7, size=(50, 40), seed=4).reshape(2, 3, 50, 40)
        maps[0, 1] = 0
        stacked = boxes_of(maps, SWEEP)
        assert stacked.shape == (2, 3, 10, 4)
        for at in np.ndindex(2, 3):
            np.testing.assert_array_equal(stacked[at], boxes_of(maps[at], SWEEP))

    def test_diagonal_neighbours_are_one_component(self) -> None:
        assert boxes_of(np.eye(4), [0.5]).tolist() == [[0, 0, 4, 4]]

    def test_rows_do_not_wrap_round_and_maps_do_not_touch(self) -> None:
        heat = np.zeros((3, 4))
        heat[0, 3] = heat[1, 0] = 1
        assert [boxes.tolist() for boxes in all_boxes_of(heat, [0.5])] == [[[3, 0, 4, 1], [0, 1, 1, 2]]]
        assert boxes_of(np.ones((2, 3, 4)), [0.2, 1]).tolist() == [[[0, 0, 4, 3]] * 2] * 2

    def test_of_equal_components_the_first_by_rows_is_taken(self) -> None:
        heat = np.zeros((5, 5))
        heat[1, 3:] = 1
        heat[3:, 0] = 1
        assert boxes_of(heat, [0.5]).tolist() == [[3, 1, 5, 2]]

    @pytest.mark.parametrize("heat", [np.zeros((3, 4)), -np.ones((3, 4)), np.empty((0, 0)), np.empty((0, 5))])
    def test_nothing_positive_gives_the_empty_box(self, heat: np.ndarray) -> None:
        assert boxes_of(heat, [0, 0.2, 1]).tolist() == [[0, 0, 0, 0]] * 3
        assert [len(boxes) for boxes in all_boxes_of(heat, [0, 0.2, 1])] == [0, 0, 0]
        assert overlap_of(heat, [[0, 0, 2, 2]], thresholds=[0.2]).best.tolist() == [0]

    @pytest.mark.parametrize("value", [1e-30, 1, 7e30])
    def test_a_constant_map_gives_the_whole_image(self, value: float) -> None:
        assert boxes_of(np.full((3, 4), value), [0, 0.2, 1]).tolist() == [[0, 0, 4, 3]] * 3

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_what_is_no_number_is_refused(self, bad: float) -> None:
        with pytest.raises(InputError, match="NaN or infinite"):
            boxes_of([[0, bad]])

    def test_other_faults_are_named(self) -> None:
        with pytest.raises(InputError, match="height and width"):
            boxes_of([1, 2])
        for thresholds in ([1.5], [-0.1], [np.nan], 0.2):
            with pytest.raises(InputError, match="between 0 and 1"):
                boxes_of([[1]], thresholds)
        with pytest.raises(InputError, match="Several maps"):
            all_boxes_of(np.ones((2, 3, 3)))
        with pytest.raises(InputError, match="x0, y0, x1, y1"):
            iou([1, 2, 3], [1, 2, 3, 4])

    def test_no_thresholds_no_boxes(self) -> None:
        assert boxes_of(np.ones((3, 3)), []).shape == (0, 4)
        assert all_boxes_of(np.ones((3, 3)), []) == []

    def test_the_map_is_left_as_it_was(self) -> None:
        heat = upsampled(1, grid=3, size=(9, 9), seed=5)[0]
        before = heat.copy()
        heat.setflags(write=False)
        boxes_of(heat, SWEEP)
        np.testing.assert_array_equal(heat, before)


MAPS = hnp.arrays(
    st.sampled_from([np.float32, np.float64]),
    hnp.array_shapes(min_dims=2, max_dims=2, max_side=12),
    elements=st.floats(-1, 1, width=32),
)


class TestProperties:
    @given(heat=MAPS, threshold=st.floats(0, 1, width=16))
    @settings(deadline=None)
    def test_boxes_hold_their_components_tightly(self, heat: np.ndarray, threshold: float) -> None:
        found = components_of(heat, [threshold])
        mask = (heat >= threshold * heat.max()) & (heat.max() > 0)
        assert found.areas.sum() == mask.sum()
        covered = np.zeros_like(mask)
        for (x0, y0, x1, y1), area in zip(found.boxes, found.areas, strict=True):
            part = mask[y0:y1, x0:x1]
            assert part.sum() >= area
            assert part[0].any()
            assert part[-1].any()
            assert part[:, 0].any()
            assert part[:, -1].any()
            covered[y0:y1, x0:x1] = True
        assert not (mask & ~covered).any()

    @given(heat=MAPS)
    @settings(deadline=None)
    def test_a_higher_threshold_never_has_more(self, heat: np.ndarray) -> None:
        found = components_of(heat, SWEEP)
        areas = np.bincount(found.masks, found.areas, len(SWEEP))
        assert (np.diff(areas) <= 0).all()
        greatest = found.greatest(found.areas)
        assert (np.diff(greatest) <= 0).all()


def boxes(limit: int = 12) -> st.SearchStrategy[list[int]]:
    number = st.integers(-2, limit)
    return st.lists(number, min_size=4, max_size=4)


def pixels_of(box: list[int]) -> np.ndarray:
    x0, y0, x1, y1 = (edge + 2 for edge in box)
    canvas = np.zeros((16, 16), bool)
    canvas[y0:y1, x0:x1] = True
    return canvas


class TestIou:
    @given(a=boxes(), b=boxes())
    def test_against_counted_pixels(self, a: list[int], b: list[int]) -> None:
        shared = (pixels_of(a) & pixels_of(b)).sum()
        covered = (pixels_of(a) | pixels_of(b)).sum()
        assert iou(a, b) == (shared / covered if covered else 0)

    @given(
        a=st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=4),
        b=st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=4),
    )
    def test_symmetric_and_between_0_and_1(self, a: list[float], b: list[float]) -> None:
        assert iou(a, b) == iou(b, a)
        assert 0 <= iou(a, b) <= 1

    @given(x=st.floats(-1e3, 1e3), y=st.floats(-1e3, 1e3), w=st.floats(1, 1e3), h=st.floats(1, 1e3))
    def test_of_equal_boxes_is_1(self, x: float, y: float, w: float, h: float) -> None:
        assert iou([x, y, x + w, y + h], [x, y, x + w, y + h]) == 1

    def test_broadcasts(self) -> None:
        rng = np.random.default_rng(6)
        a, b = np.sort(rng.random((3, 1, 2, 2)), axis=2), np.sort(rng.random((5, 2, 2)), axis=1)
        table = iou(a.reshape(3, 1, 4), b.reshape(5, 4))
        assert table.shape == (3, 5)
        assert table[2, 3] == iou(a[2].reshape(4), b[3].reshape(4))

    def test_the_best_of_several_and_of_none(self) -> None:
        truths = [[0, 0, 2, 2], [0, 0, 2, 4]]
        assert best_iou([0, 0, 2, 3], truths) == 0.75
        assert best_iou([[0, 0, 2, 2], [5, 5, 6, 6]], truths).tolist() == [1, 0]
        for none in ([], np.empty((0, 4))):
            assert best_iou([[0, 0, 2, 2]], none).tolist() == [0]


class TestOverlap:
    def test_largest_and_best_apart(self) -> None:
        heat = np.zeros((6, 8))
        heat[0:3, 0:3] = 1
        heat[5, 6:8] = 1
        overlap = overlap_of(heat, [[6, 5, 8, 6]], thresholds=[0.2])
        assert overlap.largest.tolist() == [0]
        assert overlap.best.tolist() == [1]

    def test_against_the_steps_taken_one_by_one(self) -> None:
        maps = upsampled(20, grid=7, size=(64, 64), seed=7)
        truths = np.array([[3, 4, 30, 40], [20, 20, 60, 50.5]])
        overlap = overlap_of(maps, truths, thresholds=SWEEP)
        for at, heat in enumerate(maps):
            for level, found in enumerate(all_boxes_of(heat, SWEEP)):
                assert overlap.best[at, level] == iou(found[:, None], truths).max()
                assert overlap.largest[at, level] == iou(boxes_of(heat, SWEEP)[level], truths).max()
