"""Scores by hand, box accuracy against its definition taken literally, intervals against SciPy."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from l2caf.errors import InputError
from l2caf.evaluation import intervals
from l2caf.evaluation.box_accuracy import (
    V2_NEEDED,
    box_accuracy,
    box_accuracy_difference,
    box_accuracy_interval,
    max_box_acc,
    max_box_acc_v2,
)
from l2caf.evaluation.intervals import Interval, interval_of, mean_interval, paired_difference, resampled_means
from l2caf.evaluation.metrics import (
    classified,
    foreground_histogram,
    foreground_ratio,
    localised,
    localised_by_prediction,
    located,
    pointed,
)
from l2caf.localization import overlap_of

PREDICTED = np.array([[4, 1, 2, 3, 0], [0, 4, 2, 3, 1], [9, 8, 7, 6, 5]])
LABELS = np.array([4, 1, 0])
# SciPy's name of the generator before and after 1.15.
SEED = "rng" if "rng" in inspect.signature(scipy.stats.bootstrap).parameters else "random_state"


class TestHits:
    def test_classification(self) -> None:
        assert classified(PREDICTED, LABELS).tolist() == [True, False, False]
        assert classified(PREDICTED, LABELS, top=5).tolist() == [True, True, False]

    def test_an_unknown_label_is_never_right(self) -> None:
        assert not classified(PREDICTED, [-1, -1, -1], top=5).any()

    def test_localisation_needs_class_and_box(self) -> None:
        ious = [0.5, 0.9, 0.9]
        assert located(ious).tolist() == [True, True, True]
        assert localised(PREDICTED, LABELS, ious).tolist() == [True, False, False]
        assert localised(PREDICTED, LABELS, ious, top=5).tolist() == [True, True, False]
        assert localised(PREDICTED, LABELS, [0.49, 0.9, 0.9], top=5).tolist() == [False, True, False]
        assert localised(PREDICTED, LABELS, [0.6, 0.8, 0.9], top=5, needed=0.7).tolist() == [
            False,
            True,
            False,
        ]

    def test_a_sweep_is_judged_threshold_by_threshold(self) -> None:
        ious = np.array([[0.6, 0.4], [0.7, 0.8], [1, 1]])
        assert localised(PREDICTED, LABELS, ious, top=5).tolist() == [
            [True, False],
            [True, True],
            [False, False],
        ]

    def test_a_map_for_each_prediction_comes_to_the_map_of_the_right_class(self) -> None:
        rng = np.random.default_rng(0)
        predicted = np.stack([rng.permutation(8)[:5] for _ in range(200)])
        labels = rng.integers(0, 8, 200)
        of_each_class = rng.random((200, 8, 3))
        each = np.take_along_axis(of_each_class, predicted[:, :, None], axis=1)
        of_label = of_each_class[np.arange(200), labels]
        for top in (1, 5):
            np.testing.assert_array_equal(
                localised_by_prediction(predicted, labels, each, top=top),
                localised(predicted, labels, of_label, top=top),
            )

    def test_faults_are_named(self) -> None:
        with pytest.raises(InputError, match="belong together"):
            classified(PREDICTED, [1, 2])
        with pytest.raises(InputError, match="top 6"):
            classified(PREDICTED, LABELS, top=6)
        with pytest.raises(InputError, match="3 images"):
            localised(PREDICTED, LABELS, [0.5, 0.5])
        with pytest.raises(InputError, match="top 5"):
            localised_by_prediction(PREDICTED, LABELS, np.ones((3, 4)), top=5)


class TestPointing:
    HEAT = np.zeros((40, 50))
    HEAT[20, 30] = 1

    @pytest.mark.parametrize(
        ("box", "tolerance", "hit"),
        [
            ([30, 20, 31, 21], 0, True),
            ([31, 20, 40, 30], 0, False),  # begins one pixel to the right
            ([20, 10, 30, 21], 0, False),  # ends just before
            ([45, 20, 50, 25], 15, True),
            ([46, 20, 50, 25], 15, False),
            ([0, 0, 16, 40], 15, True),  # its last pixel is 15 away
            ([0, 0, 15, 40], 15, False),
            ([39, 32, 45, 40], 15, True),  # 9 across and 12 down make 15
            ([40, 32, 45, 40], 15, False),
            ([30, 20, 30, 25], 15, False),  # an empty box
            ([30.5, 20.5, 31, 21], 0, True),  # the pixel's centre counts
            ([30.6, 20.5, 31, 21], 0, False),
        ],
    )
    def test_near_and_far(self, box: list[float], tolerance: float, hit: bool) -> None:
        assert pointed(self.HEAT, [box], tolerance=tolerance) is hit
        assert pointed(self.HEAT, [[0, 0, 1, 1], box], tolerance=tolerance) is hit

    def test_no_boxes_no_hit_and_no_map_no_game(self) -> None:
        assert not pointed(self.HEAT, [])
        for bad in (np.empty((0, 3)), np.full((2, 2), np.nan), np.ones(3)):
            with pytest.raises(InputError, match="pointing game"):
                pointed(bad, [[0, 0, 1, 1]])


class TestForeground:
    @given(
        truths=hnp.arrays(np.int64, st.tuples(st.integers(0, 6), st.just(4)), elements=st.integers(-3, 25)),
    )
    def test_against_painted_pixels(self, truths: np.ndarray) -> None:
        canvas = np.zeros((15, 20), bool)
        for x0, y0, x1, y1 in truths.clip(0):
            canvas[y0:y1, x0:x1] = True
        assert foreground_ratio(truths, width=20, height=15) == pytest.approx(canvas.mean())

    def test_histogram(self) -> None:
        shares, edges = foreground_histogram([0, 0.05, 0.1, 0.55, 1.0])
        assert shares.tolist() == [0.4, 0.2, 0, 0, 0, 0.2, 0, 0, 0, 0.2]
        np.testing.assert_allclose(edges, np.linspace(0, 1, 11))
        assert foreground_histogram([])[0].sum() == 0

    def test_an_image_without_area_is_refused(self) -> None:
        with pytest.raises(InputError, match="no area"):
            foreground_ratio([[0, 0, 1, 1]], width=0, height=5)


def slow_components(mask: np.ndarray) -> list[set[tuple[int, int]]]:
    """Flood each component from a seed, pixel by pixel."""
    left = {(int(y), int(x)) for y, x in np.argwhere(mask)}
    found = []
    while left:
        edge = [left.pop()]
        component = set(edge)
        while edge:
            y, x = edge.pop()
            near = {(y + dy, x + dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)} & left
            left -= near
            component |= near
            edge += near
        found.append(component)
    return found


def slow_iou(component: set[tuple[int, int]], truth: list[int]) -> float:
    """Count the pixels of the component's box and of the true box."""
    ys, xs = [y for y, _ in component], [x for _, x in component]
    box = {(y, x) for y in range(min(ys), max(ys) + 1) for x in range(min(xs), max(xs) + 1)}
    real = {(y, x) for y in range(truth[1], truth[3]) for x in range(truth[0], truth[2])}
    return len(box & real) / len(box | real)


def slow_box_acc(
    maps: list[np.ndarray], truths: list[list[list[int]]], *, threshold: float, needed: float, largest: bool
) -> float:
    hits = 0
    for heat, real in zip(maps, truths, strict=True):
        components = slow_components(heat >= threshold * heat.max())
        if largest:
            components = [max(components, key=lambda part: (len(part), [-at for at in min(part)]))]
        hits += any(slow_iou(part, truth) >= needed for part in components for truth in real)
    return hits / len(maps)


class TestBoxAccuracy:
    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(4))
    def test_against_the_definition_taken_literally(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        thresholds = np.linspace(0.1, 0.9, 7)
        maps, truths = [], []
        for _ in range(25):
            coarse = np.kron(rng.random((5, 6)), np.ones((3, 3)))
            maps.append(coarse + 0.2 * rng.random((15, 18)))
            corners = rng.integers(0, 9, (rng.integers(1, 4), 2))
            truths.append(np.concatenate([corners, corners + rng.integers(2, 9, corners.shape)], axis=1).tolist())
        sweeps = [overlap_of(heat, real, thresholds=thresholds) for heat, real in zip(maps, truths, strict=True)]

        def slow(needed: float, largest: bool) -> float:
            return max(
                slow_box_acc(maps, truths, threshold=threshold, needed=needed, largest=largest)
                for threshold in thresholds
            )

        v1 = max_box_acc([sweep.largest for sweep in sweeps]).value
        v2 = max_box_acc_v2([sweep.best for sweep in sweeps]).value
        assert v1 == pytest.approx(slow(0.5, largest=True), abs=1e-9)
        assert v2 == pytest.approx(np.mean([slow(needed, largest=False) for needed in V2_NEEDED]), abs=1e-9)
        assert v2 > 0

    def test_by_hand(self) -> None:
        ious = [[0.5, 0.2, 0.7], [0.4, 0.8, 0.75], [0.3, 0.6, 0.1], [0.9, 0.1, 0.0]]
        v1 = max_box_acc(ious)
        assert v1.value == 0.5
        assert v1.best == (0,)
        assert v1.curves.tolist() == [[0.5, 0.5, 0.5]]
        v2 = max_box_acc_v2(ious)
        assert v2.best == (0, 0, 2)
        assert v2.value == pytest.approx((1 + 0.5 + 0.5) / 3)
        assert box_accuracy(ious, needed=[0.7]).value == 0.5

    def test_faults_are_named(self) -> None:
        for bad in ([0.5], np.empty((0, 3)), np.empty((3, 0))):
            with pytest.raises(InputError, match=r"\(N, T\)"):
                max_box_acc(bad)
        with pytest.raises(InputError, match="demand"):
            box_accuracy([[0.5]], needed=[])
        with pytest.raises(InputError, match="paired"):
            box_accuracy_difference(np.ones((3, 2)), np.ones((4, 2)))


class TestIntervals:
    def test_of_a_mean_against_scipy(self) -> None:
        values = np.random.default_rng(1).exponential(size=300)
        ours = mean_interval(values, resamples=20_000)
        theirs = scipy.stats.bootstrap(
            (values,),
            np.mean,
            method="percentile",
            n_resamples=20_000,
            batch=1000,
            **{SEED: np.random.default_rng(2)},
        ).confidence_interval
        width = theirs.high - theirs.low
        assert ours.value == pytest.approx(values.mean())
        assert ours.low == pytest.approx(theirs.low, abs=0.03 * width)
        assert ours.high == pytest.approx(theirs.high, abs=0.03 * width)

    def test_of_a_mean_against_the_normal_law(self) -> None:
        values = np.random.default_rng(3).normal(5, 2, 4000)
        ours = mean_interval(values, resamples=10_000)
        half = 1.959964 * values.std() / np.sqrt(values.size)
        assert ours.low == pytest.approx(values.mean() - half, abs=0.05 * half)
        assert ours.high == pytest.approx(values.mean() + half, abs=0.05 * half)

    def test_holds_the_truth_as_often_as_it_says(self) -> None:
        rng = np.random.default_rng(4)
        found = [mean_interval(rng.random(200) < 0.6, resamples=400, seed=trial) for trial in range(300)]
        held = np.mean([interval.low <= 0.6 <= interval.high for interval in found])
        assert 0.9 < held < 0.99

    def test_of_a_paired_difference_against_scipy(self) -> None:
        rng = np.random.default_rng(5)
        hardness = rng.random(400)
        ours, theirs = (hardness + 0.1 * rng.random(400) < 0.6), (hardness + 0.1 * rng.random(400) < 0.5)
        found = paired_difference(ours, theirs, resamples=20_000)
        reference = scipy.stats.bootstrap(
            (ours.astype(float), theirs.astype(float)),
            lambda a, b, axis: a.mean(axis) - b.mean(axis),
            paired=True,
            vectorized=True,
            method="percentile",
            n_resamples=20_000,
            batch=1000,
            **{SEED: np.random.default_rng(6)},
        ).confidence_interval
        assert found.value == pytest.approx(ours.mean() - theirs.mean())
        # Shares of 400 images go in steps of 0.0025.
        assert found.low == pytest.approx(reference.low, abs=0.0026)
        assert found.high == pytest.approx(reference.high, abs=0.0026)
        assert found.excludes_zero
        apart = mean_interval(ours).high - mean_interval(ours).low
        assert found.high - found.low < apart

    def test_a_seed_gives_the_same_twice_and_another_seed_another(self) -> None:
        values = np.random.default_rng(7).random(50)
        assert mean_interval(values, seed=1) == mean_interval(values, seed=1)
        assert mean_interval(values, seed=1) != mean_interval(values, seed=2)

    def test_draws_in_many_parts_still_weigh_every_image_alike(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(intervals, "_DRAWS_AT_ONCE", 1000)
        means = resampled_means(np.eye(30), resamples=5000)
        assert means.shape == (5000, 30)
        np.testing.assert_allclose(means.sum(axis=1), 1)
        np.testing.assert_allclose(means.mean(axis=0), 1 / 30, rtol=0.1)

    def test_of_box_accuracy_against_drawing_and_choosing_anew(self) -> None:
        ious = np.random.default_rng(8).random((60, 5))
        rng = np.random.default_rng(9)
        for needed in ((0.5,), V2_NEEDED):
            scores = [box_accuracy(ious[rng.integers(0, 60, 60)], needed=needed).value for _ in range(4000)]
            found = box_accuracy_interval(ious, needed=needed, resamples=4000)
            assert found.value == pytest.approx(box_accuracy(ious, needed=needed).value)
            assert found.low == pytest.approx(np.quantile(scores, 0.025), abs=0.02)
            assert found.high == pytest.approx(np.quantile(scores, 0.975), abs=0.02)

    def test_difference_of_box_accuracies(self) -> None:
        ious = np.random.default_rng(10).random((80, 4))
        none = box_accuracy_difference(ious, ious)
        assert none == Interval(0, 0, 0)
        assert not none.excludes_zero
        assert box_accuracy_difference(ious, ious * 0.5).excludes_zero

    def test_faults_are_named(self) -> None:
        with pytest.raises(InputError, match="no images"):
            mean_interval([])
        with pytest.raises(InputError, match="NaN"):
            mean_interval([1, np.nan])
        with pytest.raises(InputError, match=r"\(N,\)"):
            mean_interval([[1, 2]])
        with pytest.raises(InputError, match="same images"):
            paired_difference([1, 2], [1])
        with pytest.raises(InputError, match="level"):
            mean_interval([1, 2], level=95)
        with pytest.raises(InputError, match="resamples"):
            interval_of(lambda means: means, [1, 2], resamples=0)

    def test_one_image_is_sure_of_itself(self) -> None:
        assert mean_interval([0.4]) == Interval(0.4, 0.4, 0.4)
        assert str(mean_interval([0.4])) == "0.400 [0.400, 0.400]"
