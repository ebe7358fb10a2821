"""A real brain network asked about one box of the mask that it predicts of a real head, where they are on disk."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import l2caf
from l2caf.volumes import VolumePreprocessing

HOME = Path(os.environ.get("L2CAF_DATA", Path(__file__).parents[3] / "shared" / "data"))
HEAD, WEIGHTS = HOME / "volumes" / "head-t1.nii.gz", HOME / "weights" / "deepbet-linknet3d-bbox-fp16.safetensors"
CELL = 32  # voxels of the input beneath one position of the bottleneck

pytestmark = [
    pytest.mark.dataset,
    pytest.mark.slow,
    pytest.mark.skipif(not (HEAD.is_file() and WEIGHTS.is_file()), reason="no head here"),
]


def brain_network() -> nn.Module:
    spec = importlib.util.spec_from_file_location("linknet3d", HOME / "weights" / "architectures" / "linknet3d.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    network: nn.Module = module.LinkNet3d()
    network.load_state_dict({name: value.float() for name, value in load_file(WEIGHTS).items()})
    return network.eval()


def count(module: nn.Module, runs: dict[str, int], name: str) -> None:
    """Count the samples that a module is run on, in whatever way it is called."""

    class Counted(type(module)):  # type: ignore[misc]
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            runs[name] += len(x)
            return super().forward(x)

    module.__class__ = Counted


def test_the_peak_lies_in_the_box_or_next_to_it(tmp_path: Path) -> None:
    network = brain_network()
    runs = {"whole": 0, "head": 0}
    count(network.init[0], runs, "whole")
    count(network.conv[0], runs, "head")
    model = l2caf.Model(
        "brain", network, VolumePreprocessing(size=128, quantiles=(0.005, 0.995), mean=0.449, std=0.226)
    )
    made = model.prepare_volume(HEAD)
    with torch.no_grad():
        mask = network(model.batch([made.input]))[0, 1] > 0.5
    assert 150_000 < int(mask.sum()) < 250_000  # of 128³, a brain
    for box, inside in (((128, 128, 64, 192, 192, 128), True), ((64, 128, 128, 128, 192, 192), False)):
        where = torch.from_numpy(made.crop.on_input(box))
        for objective in (l2caf.Region(where), l2caf.Region(where, channel=1, predicted=True)):
            runs.update(whole=0, head=0)
            heatmap = model.explain(HEAD, objective=objective)
            assert runs["whole"] > 0
            assert runs["head"] - runs["whole"] <= 60, runs
            (x0, y0, z0, x1, y1, z1), peak = made.crop.to_input([box])[0], int(heatmap.maps[0].argmax())
            places = zip(np.unravel_index(peak, heatmap.size), (z0, y0, x0), (z1, y1, x1), strict=True)
            away = [max(first - at, at - (last - 1), 0) for at, first, last in places]
            assert max(away) <= CELL
            assert not inside or objective.channel is not None or max(away) == 0
    heatmap.save(tmp_path / "map.nii.gz")
    scan, written = nib.load(HEAD), nib.load(tmp_path / "map.nii.gz")
    np.testing.assert_array_equal(written.affine, scan.affine)
    assert written.shape == scan.shape
