"""What must work where there is no torch: the floor, the tables, readers of data, runs of blocks, and tasks."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys

import l2caf

FLOOR = (
    "errors",
    "files",
    "progress",
    "table",
    "deadline",
    "boxes",
    "localization",
    "images",
    "clips",
    "crop",
    "preprocessing",
    "unit_sphere",
    "softmax_metric",
    "signals",
    "volumes",
)
ROOMS = ("features", "exported", "rendering", "datasets", "runs", "reports", "tasks")
LIGHT = (
    "solution",
    "heads.pooled",
    "methods.table",
    "networks.catalogue",
    "networks.class_names",
    "networks.source",
    "retrieval.embed",
    "evaluation.localization",
    "evaluation.retrieval",
    "training.recipe",
    "tasks.evaluate",
)


def modules(*rooms: str) -> list[str]:
    return [
        name
        for _, name, _ in pkgutil.walk_packages(l2caf.__path__, "l2caf.")
        if any(name == f"l2caf.{room}" or name.startswith(f"l2caf.{room}.") for room in rooms)
    ]


def without_torch(program: str) -> str:
    """What a program prints in a process where torch cannot be imported."""
    blocked = f"import sys; sys.modules['torch'] = None\n{program}"
    done = subprocess.run([sys.executable, "-c", blocked], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_these_import_without_torch() -> None:
    wanted = modules(*FLOOR, *ROOMS, *LIGHT)
    assert {f"l2caf.{name}" for name in (*FLOOR, *ROOMS, *LIGHT)} <= set(wanted)
    assert {"l2caf.rendering.overlay", "l2caf.datasets.cub", "l2caf.runs.rows", "l2caf.tasks.explain"} <= set(wanted)
    program = f"""
import importlib, json
failed = {{}}
for name in {wanted!r}:
    try:
        importlib.import_module(name)
    except ImportError as error:
        failed[name] = str(error)
print(json.dumps(failed))
"""
    assert json.loads(without_torch(program)) == {}


def test_a_photograph_is_prepared_located_and_drawn_without_torch(tmp_path: object) -> None:
    program = f"""
import numpy as np
from PIL import Image
from pathlib import Path
from l2caf.boxes import as_boxes
from l2caf.datasets.dataset import Sample
from l2caf.datasets.loading import batches
from l2caf.localization import boxes_of
from l2caf.preprocessing import Preprocessing
from l2caf.rendering.overlay import overlay

path = {str(tmp_path)!r} + "/one.png"
Image.new("RGB", (60, 40), "red").save(path)
sample = Sample(Path(path), name="one", boxes=as_boxes([[20, 10, 40, 30]]))
(batch,) = batches([sample], Preprocessing(), 4, pictures=True)
heat = np.zeros((224, 224), np.float32)
x0, y0, x1, y1 = batch.boxes[0][0].astype(int)
heat[y0:y1, x0:x1] = 1
drawn = overlay(batch.pictures[0], heat)
print(batch.inputs.shape, batch.inputs.dtype, drawn.size, boxes_of(heat)[0].tolist() == [x0, y0, x1, y1])
"""
    assert without_torch(program).strip() == "(1, 3, 224, 224) float32 (224, 224) True"


def test_features_on_disk_are_explained_without_torch(tmp_path: object) -> None:
    program = f"""
import numpy as np
from l2caf.features.exact import filters_of
from l2caf.features.stored import blocks, stored

features = np.random.default_rng(0).random((5, 40, 6, 6)).astype(np.float16)
features[:, :, 2, 3] += 2
path = {str(tmp_path)!r} + "/features.npy"
np.save(path, features)
weight = np.random.default_rng(1).random((50, 40))
found = [filters_of(block, weight).weights for block in blocks(stored(path), size=2)]
print([len(one) for one in found], {{int(one.argmax()) for block in found for one in block}})
"""
    assert without_torch(program).strip() == "[2, 2, 1] {15}"
