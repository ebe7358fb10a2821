"""Where a network's input lies in a scan: known places of the world come back, whatever way the scan is stored."""

from __future__ import annotations

from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch
from torch import nn

import l2caf
from l2caf.errors import InputError
from l2caf.rendering.scene import Scene
from l2caf.volumes import Volume, VolumeCrop, VolumePreprocessing, read_volume
from l2caf.volumes.turn import Turn
from scans_for_tests import CENTRE, KINDS, affine_of, saved, scan_of

# Not in the middle, and another distance from it along each axis: right of it, behind it and far below it.
BLOCK = CENTRE + np.array([9.0, -13.0, -18.0])
PREPARED = {
    "as it is": VolumePreprocessing(multiple=4),
    "resized": VolumePreprocessing(size=32, quantiles=(0.005, 0.995), mean=0.0, std=1.0),
    "in millimetres, cut": VolumePreprocessing(spacing=2.0, cut=(24, 28, 32), window=(0, 500)),
    "padded": VolumePreprocessing(spacing=2.0, cut=40),
    "top first": VolumePreprocessing(orientation="SPL", size=(24, 28, 32)),
    "as stored": VolumePreprocessing(orientation=None, multiple=8),
}


def network() -> nn.Module:
    """It sees what is bright, in cubes of 4, and nothing else."""
    first = nn.Conv3d(1, 1, 4, stride=4)
    nn.init.ones_(first.weight)
    nn.init.zeros_(first.bias)
    return nn.Sequential(Brightest(), first, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(1, 2))


class Brightest(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        low, high = (one.reshape(-1, 1, 1, 1, 1) for one in (x.flatten(1).amin(dim=1), x.flatten(1).amax(dim=1)))
        return (x - low - 0.7 * (high - low)).clamp_min(0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", PREPARED)
def test_a_planted_block_comes_back_at_its_place_of_the_world(kind: str, how: str, tmp_path: Path) -> None:
    path = saved(scan_of(kind, BLOCK), tmp_path / "scan.nii.gz")
    model = l2caf.Model("mine", network(), PREPARED[how])
    heatmap = model.explain(path)
    written = nib.load(heatmap.save(tmp_path / "map.nii.gz"))
    assert written.shape == nib.load(path).shape
    np.testing.assert_array_equal(written.affine, nib.load(path).affine)
    values = written.get_fdata()
    np.testing.assert_array_equal(values.astype(np.float32), heatmap.on_scan().numpy())
    hot = np.argwhere(values > 0.7 * values.max())
    world = (hot @ written.affine[:3, :3].T + written.affine[:3, 3]).mean(axis=0)
    # The middle of what is hot, to half of a cell of the layer.
    made = model.prepare_volume(path).crop
    step = np.abs(np.array(made.world((4, 4, 4))) - made.world((0, 0, 0)))
    assert (np.abs(world - BLOCK) <= np.maximum(step, 4) * 0.6 + 1.5).all(), (world, BLOCK, step)
    boxes = heatmap.boxes(0.5, on="scan")[0]
    middle = np.append((boxes[0, :3] + boxes[0, 3:] - 1) / 2, 1)
    assert (np.abs((written.affine @ middle)[:3] - BLOCK) <= np.maximum(step, 4) * 0.6 + 1.5).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", PREPARED)
def test_world_coordinates_go_in_and_come_back(kind: str, how: str) -> None:
    """A volume whose values are a coordinate of the world: interpolation keeps it, wherever it is shown."""
    affine, shape = affine_of(kind)
    direction = np.array([0.3, -0.8, 0.52])
    world = np.moveaxis(np.indices(shape), 0, -1) @ affine[:3, :3].T + affine[:3, 3]
    scan = Volume((world @ direction).astype(np.float32), affine)
    plain = VolumePreprocessing(
        orientation=PREPARED[how].orientation, size=PREPARED[how].size, spacing=PREPARED[how].spacing,
        cut=PREPARED[how].cut, multiple=PREPARED[how].multiple,
    )  # fmt: skip
    made = plain.prepared(scan)
    crop = made.crop
    places = np.moveaxis(np.indices(crop.size), 0, -1).reshape(-1, 3)
    places = places[np.random.default_rng(0).permutation(len(places))[:200]]
    inside = 0
    for place in places.tolist():
        if all(one.offset + 2 <= at < one.offset + one.size - 2 for at, one in zip(place, crop.windows, strict=True)):
            inside += 1
            assert made.input[0][tuple(place)] == pytest.approx(direction @ crop.world(tuple(place)), abs=2e-3)
            voxel = crop.voxel(tuple(place))
            near = (affine @ [*voxel, 1])[:3] - crop.world(tuple(place))
            assert (np.abs(np.linalg.inv(affine[:3, :3]) @ near) <= 0.501).all()
    assert inside > 60
    # And back: the coordinates of the input's voxels, laid on the scan.
    edges = [np.array([crop.world(tuple(int(n) for n in at)) for at in np.eye(3, dtype=int)]) - crop.world((0, 0, 0))]
    heat = (np.moveaxis(np.indices(crop.size), 0, -1) @ edges[0] + crop.world((0, 0, 0))) @ direction
    laid = crop.lay(heat.astype(np.float32))
    shown = crop.turn.back(_shown(crop))
    assert shown.mean() > 0.2
    np.testing.assert_allclose(laid[shown], scan.values[shown], atol=2e-3)
    assert not laid[crop.turn.back(_shown(crop, margin=-0.5)) == 0].any()


def _shown(crop: VolumeCrop, margin: float = 2.0) -> np.ndarray:
    """Where the voxels of the turned scan lie within the input, and well within it."""
    turned = crop.turn.there(crop.scan.values).shape
    inside = np.ones(turned, bool)
    for axis, window in enumerate(crop.windows):
        scale = (window.stop - window.start) / window.size
        middles = np.arange(turned[axis]) + 0.5
        at = (middles >= window.start + margin * scale) & (middles < window.stop - margin * scale)
        inside &= at.reshape([-1 if other == axis else 1 for other in range(3)])
    return inside


@pytest.mark.parametrize("kind", KINDS)
def test_the_canonical_form_is_that_of_nibabel(kind: str) -> None:
    image = scan_of(kind, BLOCK)
    made = VolumePreprocessing().prepared(image)
    np.testing.assert_array_equal(made.input[0], nib.as_closest_canonical(image).get_fdata(dtype=np.float32))


def test_resizing_is_that_of_torch() -> None:
    image = scan_of("LIA", BLOCK)
    turned = torch.from_numpy(nib.as_closest_canonical(image).get_fdata(dtype=np.float32))[None, None]
    theirs = nn.functional.interpolate(turned, size=(20, 50, 33), mode="trilinear", align_corners=False)[0]
    ours = VolumePreprocessing(size=(20, 50, 33))(image)
    torch.testing.assert_close(ours, theirs, atol=1e-3, rtol=0)


def test_values_are_clipped_scaled_and_given_to_a_function() -> None:
    image = scan_of("RAS", BLOCK)
    values = nib.as_closest_canonical(image).get_fdata()
    made = VolumePreprocessing(quantiles=(0.1, 0.9), mean=0.449, std=0.226)(image)
    assert made.mean().item() == pytest.approx(0.449, abs=1e-4)
    assert made.std().item() == pytest.approx(0.226, abs=1e-4)
    windowed = VolumePreprocessing(window=(90, 110))(image)[0].numpy()
    np.testing.assert_allclose(windowed, (values.clip(90, 110) - 90) / 20, atol=1e-5)
    both = VolumePreprocessing(window=(90, 110), values=lambda one: torch.stack([torch.from_numpy(one)] * 2))(image)
    assert both.shape == (2, *values.shape)
    np.testing.assert_array_equal(both[1].numpy(), windowed)


@pytest.mark.parametrize("kind", KINDS)
def test_boxes_and_masks_on_the_scan_lie_on_the_input(kind: str) -> None:
    image = scan_of(kind, BLOCK)
    crop = VolumePreprocessing(size=32).prepared(image).crop
    lit = np.argwhere(image.get_fdata() > 300)
    box = [*lit.min(axis=0).tolist(), *(lit.max(axis=0) + 1).tolist()]
    by_box, by_mask = crop.on_input(tuple(box)), crop.on_input(image.get_fdata() > 300)
    np.testing.assert_array_equal(by_box if KINDS[kind][2] == 0 else by_box & by_mask, by_mask)
    middle = np.argwhere(by_mask).mean(axis=0)
    world = np.array(crop.world((0, 0, 0)))
    world = world + sum(
        at * (np.array(crop.world(tuple(one))) - crop.world((0, 0, 0)))
        for at, one in zip(middle, np.eye(3, dtype=int).tolist(), strict=True)
    )
    assert np.abs(world - BLOCK).max() < 2.5
    np.testing.assert_allclose(crop.to_scan(crop.to_input([box])), [box], atol=1e-6)
    z0, y0, x0 = np.argwhere(by_box).min(axis=0)
    np.testing.assert_allclose(crop.to_input([box])[0, :3], [x0, y0, z0], atol=1.01)


def test_regions_that_are_none() -> None:
    image = scan_of("LAS", BLOCK)
    crop = VolumePreprocessing(cut=20).prepared(image).crop
    mask = np.ones((64, 64, 64), np.uint8)
    moved = image.affine.copy()
    moved[0, 3] += 5
    elsewhere = nib.Nifti1Image(mask, moved)
    for where, said in (
        (np.zeros((64, 64, 64)), "is empty"),
        ((0, 0, 0, 4, 4, 4), "where the network is shown nothing"),
        (np.ones((64, 64, 63)), "has the shape 64×64×63"),
        (elsewhere, "lies elsewhere in the world"),
        ((5, 5, 5, 5, 9, 9), "is empty"),
        ((5, 5, 5, 9, 9, 65), "reaches beyond"),
    ):
        with pytest.raises(InputError, match=said):
            crop.on_input(where)
    assert crop.on_input(nib.Nifti1Image(mask, image.affine)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_letters_stand_at_their_sides(kind: str, tmp_path: Path) -> None:
    """The block lies right of the middle, behind it and below it: so it is drawn towards R, P and I."""
    scan = read_volume(saved(scan_of(kind, BLOCK), tmp_path / "scan.nii.gz"))
    scene = Scene.of_scan(VolumePreprocessing(size=32).prepared(scan).crop, window=(0, 400))
    places = np.argwhere(scene.grey > 0.9).mean(axis=0)
    assert [axis.name for axis in scene.axes] == ["axial", "coronal", "sagittal"]
    for axis, place, side in zip(scene.axes, places, "IPR", strict=True):
        assert sorted(axis.letters) in (["I", "S"], ["A", "P"], ["L", "R"])
        assert axis.letters[int(place > axis.length / 2)] == side
        # The number of a plane is that of the file, along the axis of the file that it names.
        stored = np.argwhere(scan.values > 300)[:, "ijk".index(axis.stored)]
        assert axis.number(int(place)) == pytest.approx(stored.mean(), abs=1)
    assert [axis.letters for axis in scene.axes] == [("S", "I"), ("A", "P"), ("L", "R")]


def test_turns_are_undone() -> None:
    values = np.random.default_rng(0).random((3, 4, 5))
    for kind in KINDS:
        turn = Turn.of(affine_of(kind)[0], "SPL")
        np.testing.assert_array_equal(turn.back(turn.there(values)), values)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"orientation": "RAX"}, "names no three sides"),
        ({"orientation": "RLS"}, "names no three sides"),
        ({"size": 0}, "one whole number above 0"),
        ({"size": (3, 4)}, "one whole number above 0"),
        ({"size": 3, "spacing": 1.0}, "Both size and spacing"),
        ({"quantiles": (0.9, 0.1)}, "the lower first"),
        ({"quantiles": (1, 99)}, "two shares"),
        ({"window": (1, 2), "quantiles": (0, 1)}, "Both quantiles and window"),
        ({"mean": 0.5}, "mean and std go together"),
        ({"multiple": 0}, "give a whole number above 0"),
    ],
)
def test_settings_that_there_are_not(settings: dict, said: str) -> None:
    with pytest.raises(InputError, match=said):
        VolumePreprocessing(**settings)


def test_a_function_for_values_that_fails_or_changes_the_shape() -> None:
    image = scan_of("RAS", BLOCK)
    with pytest.raises(InputError, match="failed"):
        VolumePreprocessing(values=lambda one: one.nothing)(image)
    with pytest.raises(InputError, match="keep the shape"):
        VolumePreprocessing(values=lambda one: one[::2])(image)
