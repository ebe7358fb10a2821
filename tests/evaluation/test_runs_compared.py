"""Evaluating what people bring: a Compose, names for labels, several outputs; methods that join; two runs compared."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import squares
from l2caf.cli.app import run
from l2caf.errors import InputError
from l2caf.evaluation.difference import MeasuredRun, compared
from l2caf.evaluation.intervals import paired_difference
from l2caf.evaluation.measurements import THRESHOLD, THRESHOLDS
from l2caf.evaluation.retrieval import Neighbourhood
from l2caf.localization import boxes_of
from l2caf.networks.imports import import_torchvision
from l2caf.preprocessing import OwnPreprocessing, Preprocessing
from l2caf.retrieval.embed import ImageVector
from l2caf.runs.rows import ROWS
from l2caf.transforms import readable

import_torchvision()
transforms = importlib.import_module("torchvision.transforms")
v2 = importlib.import_module("torchvision.transforms.v2")
models = importlib.import_module("torchvision.models")
timm_data = importlib.import_module("timm.data")

COUNT = 12
MORE = """

from torchvision import transforms
COMPOSE = transforms.Compose([transforms.Resize((64, 64)), transforms.ToTensor()])
ODD = transforms.Compose([transforms.Resize((64, 64)), transforms.RandomHorizontalFlip(0.0), transforms.ToTensor()])

def composed():
    return Bright(), COMPOSE

def odd():
    return Bright(), ODD

class Several(Bright):
    def forward(self, x):
        pooled = self.mean(self.pool(x)).flatten(1)
        return {"scores": self.scores(pooled), "features": pooled * 2}

def several():
    return Several(), COMPOSE
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = squares.folder(tmp_path_factory.mktemp("made"), count=COUNT)
    builder = root / "bright.py"
    builder.write_text(builder.read_text() + MORE)
    table = (root / "boxes.csv").read_text()
    for number, name in enumerate(("red", "green", "blue")):
        table = table.replace(f".png,{number},", f".png,{name},")
    (root / "named.csv").write_text(table)
    unboxed = ["file,label", *(",".join(line.split(",")[:2]) for line in table.splitlines()[1:])]
    (root / "unboxed.csv").write_text("\n".join(unboxed) + "\n")
    return root


def evaluated(made: Path, out: Path, *more: str, table: str = "boxes.csv", network: str = "build") -> Any:
    given = ["evaluate", "manifest", str(made / table), "--network", f"{made / 'bright.py'}:{network}", "--batch", "4"]
    assert run([*given, "--out", str(out), *more]) == 0
    return json.loads((out / "results.json").read_text())


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [row for line in (folder / ROWS).read_text().splitlines() if "block" not in (row := json.loads(line))]


def test_a_compose_is_measured_as_the_same_preprocessing(made: Path, tmp_path: Path) -> None:
    more = ("--classes", "labels", "-m", "l2caf")
    ours, theirs = (evaluated(made, tmp_path / name, *more, network=name) for name in ("build", "composed"))
    assert ours["methods"] == theirs["methods"]
    assert ours["methods"]["l2caf"]["loc_top1"]["value"] == 100


@pytest.mark.parametrize(
    "make",
    [
        lambda: transforms.Compose(
            [
                transforms.Resize(256),
                transforms.CenterCrop(224),
                transforms.ToTensor(),
                transforms.Normalize([0.5, 0.4, 0.3], [0.2, 0.3, 0.4]),
            ]
        ),
        lambda: v2.Compose(
            [
                v2.Resize((96, 128), interpolation=v2.InterpolationMode.BICUBIC),
                v2.PILToTensor(),
                v2.ToDtype(torch.float32, scale=True),
            ]
        ),
        lambda: models.ResNet50_Weights.IMAGENET1K_V2.transforms(),
        lambda: timm_data.create_transform(input_size=(3, 224, 224), crop_pct=0.95, is_training=False),
        lambda: transforms.Compose(
            [transforms.Compose([transforms.Resize(72), transforms.CenterCrop(64)]), transforms.ToTensor()]
        ),
    ],
)
def test_resize_crop_and_normalize_are_read_off(make: Any) -> None:
    function = make()
    read = readable(function)
    assert isinstance(read, Preprocessing)
    rng = np.random.default_rng(1)
    photograph = Image.fromarray(rng.integers(0, 256, (40, 60, 3), np.uint8)).resize((500, 333))
    std = np.array(read.std)[:, None, None]
    assert np.abs((read.prepare(photograph).input - function(photograph).numpy()) * std).max() < 3 / 255


@pytest.mark.parametrize(
    "steps",
    [
        [transforms.Resize(64), transforms.ToTensor()],
        [transforms.Resize((64, 64)), transforms.Grayscale(3), transforms.ToTensor()],
        [transforms.CenterCrop(64), transforms.ToTensor()],
        [transforms.Resize((64, 64)), transforms.ToTensor(), transforms.Resize((32, 32))],
    ],
)
def test_what_cannot_be_read_stays_the_function_it_is(steps: list[Any]) -> None:
    assert isinstance(readable(transforms.Compose(steps)), OwnPreprocessing)


def test_what_looks_readable_and_does_something_else_is_not_believed() -> None:
    class Resize(transforms.Resize):
        def forward(self, img: Image.Image) -> Image.Image:
            return super().forward(img.rotate(180))

    assert isinstance(readable(transforms.Compose([Resize((64, 64)), transforms.ToTensor()])), OwnPreprocessing)


def test_where_no_box_is_asked_for_none_has_to_follow(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    retrieval = ("--protocol", "retrieval", "--embedding")
    found = evaluated(made, tmp_path / "out", *retrieval, table="unboxed.csv", network="odd")
    assert found["retrieval"]["r1"]["value"] == 100
    given = ["evaluate", "manifest", str(made / "boxes.csv"), "--network", f"{made / 'bright.py'}:odd"]
    assert run([*given, "--out", str(tmp_path / "refused")]) == 2
    assert "Boxes cannot be mapped" in capsys.readouterr().err


def test_names_for_labels_are_collected(made: Path, tmp_path: Path) -> None:
    retrieval = ("--protocol", "retrieval", "--embedding")
    numbers = evaluated(made, tmp_path / "numbers", *retrieval)
    names = evaluated(made, tmp_path / "names", *retrieval, table="named.csv")
    assert names["classes"] == 3
    assert names["retrieval"] == numbers["retrieval"]


def test_the_output_and_the_distance_can_be_chosen(made: Path, tmp_path: Path) -> None:
    given = ("--protocol", "retrieval", "--embedding", "--output", "features")
    by_cosine = evaluated(made, tmp_path / "cosine", *given, network="several")
    evaluated(made, tmp_path / "euclidean", *given, "--distance", "euclidean", network="several")
    assert by_cosine["retrieval"]["r1"]["value"] == 100
    assert len(next(row for row in rows_of(tmp_path / "cosine") if "embedding" in row)["embedding"]) == 3
    abouts = [json.loads((tmp_path / name / "run.json").read_text()) for name in ("cosine", "euclidean")]
    assert [about["normalized"] for about in abouts] == ["True", "False"]
    scores = evaluated(made, tmp_path / "scores", "--output", "scores", "--classes", "labels", network="several")
    assert scores["classification"]["top1"]["value"] == 100


def test_rows_have_boxes(made: Path, tmp_path: Path) -> None:
    evaluated(made, tmp_path / "out", "--classes", "labels", "-m", "l2caf")
    for row in rows_of(tmp_path / "out"):
        assert len(row["boxes"]) == len(THRESHOLDS)
        (truth,) = row["truth"]
        x0, y0, x1, y1 = row["boxes"][THRESHOLDS.index(THRESHOLD)]
        inside = max(0, min(x1, truth[2]) - max(x0, truth[0])) * max(0, min(y1, truth[3]) - max(y0, truth[1]))
        union = (x1 - x0) * (y1 - y0) + 24 * 24 - inside
        assert inside / union == pytest.approx(row["iou"][THRESHOLDS.index(THRESHOLD)])
    assert boxes_of(np.ones((2, 2)), [THRESHOLD]).tolist() == [[0, 0, 2, 2]]


@pytest.mark.parametrize("protocol", [("--classes", "labels"), ("--protocol", "retrieval", "--embedding")])
def test_a_method_that_joins_a_run_is_measured_alone(made: Path, tmp_path: Path, protocol: tuple[str, ...]) -> None:
    out, whole = tmp_path / "out", tmp_path / "whole"
    evaluated(made, out, *protocol, "-m", "l2caf")
    before = (out / ROWS).stat().st_mtime_ns
    both = ("-m", "l2caf", "-m", "gradcam")
    grown = evaluated(made, out, *protocol, *both)
    assert (out / ROWS).stat().st_mtime_ns == before
    (added,) = out.glob("added-*")
    assert {row.get("method", "gradcam") for row in rows_of(added)} == {"gradcam"}
    at_once = evaluated(made, whole, *protocol, *both)
    assert grown == at_once
    again = evaluated(made, out, *protocol, "-m", "gradcam")  # is there, so nothing is measured
    assert list(again["methods"]) == ["gradcam"]
    assert (added / ROWS).stat().st_mtime_ns > before
    assert len(list(out.glob("added-*"))) == 1


def test_two_runs_are_compared_image_by_image(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluated(made, tmp_path / "all", "--classes", "labels", "-m", "l2caf", "-m", "cam")
    moved = [(made / "boxes.csv").read_text().splitlines()[0]]
    for number, line in enumerate((made / "boxes.csv").read_text().splitlines()[1:]):
        file, label, *edges = line.split(",")
        moved.append(",".join([file, label, *(edges if number % 2 else ["0", "0", "4", "4"])]))
    (made / "moved.csv").write_text("\n".join(moved[:-2]) + "\n")  # two images less, half of the boxes elsewhere
    evaluated(made, tmp_path / "moved", "--classes", "labels", "-m", "l2caf", table="moved.csv")
    capsys.readouterr()
    assert run(["difference", str(tmp_path / "all"), str(tmp_path / "moved"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["images"], found["left_out"]) == (COUNT - 2, 2)
    by_measure = {one["measure"]: one for one in found["differences"]}
    assert {one["method"] for one in found["differences"]} == {"l2caf"}  # the other run has no CAM
    hits = [number % 2 for number in range(COUNT - 2)]
    expected = paired_difference(np.ones(COUNT - 2), hits).in_percent()
    assert by_measure["gt_known"]["difference"] == expected.as_dict()
    assert by_measure["gt_known"]["significant"]
    assert (by_measure["gt_known"]["first"], by_measure["gt_known"]["second"]) == (100, 50)
    assert set(by_measure) == {"loc_top1", "loc_top5", "gt_known", "pointing", "max_box_acc", "max_box_acc_v2"}
    assert run(["difference", str(tmp_path / "all"), str(tmp_path / "all")]) == 0
    assert capsys.readouterr().out.count("not significantly different") == 12
    assert run(["difference", str(tmp_path / "all"), str(tmp_path)]) == 2
    assert "holds no run of evaluate" in capsys.readouterr().err


def test_retrieval_runs_are_compared_by_their_neighbours(made: Path, tmp_path: Path) -> None:
    given = ("--protocol", "retrieval", "--embedding", "-m", "l2caf")
    evaluated(made, tmp_path / "a", *given)
    evaluated(made, tmp_path / "b", *given, "--distance", "euclidean")
    images, found = compared(*(MeasuredRun.read(tmp_path / name) for name in "ab"))
    assert images == COUNT
    maps = {"loc", "gt_known", "pointing", "max_box_acc", "max_box_acc_v2"}
    assert {one.measure for one in found} == {"r1", "r2", "r4", "r8", *maps}


def test_retrieval_where_no_class_has_two_images_is_refused() -> None:
    rows = [ImageVector(f"{label}.png", label, (float(label), 1.0)) for label in range(3)]
    with pytest.raises(InputError, match="Each of the 3 images is the only one of its class"):
        Neighbourhood.of(rows, normalized=False)
    assert Neighbourhood.of([*rows, ImageVector("b.png", 0, (0.1, 1.0))], normalized=False).classes == 3
