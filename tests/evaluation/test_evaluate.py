"""An evaluation end to end: on made images whose answer is known, killed and resumed, and on bad input."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import squares
from l2caf.cli.app import run
from l2caf.errors import FileError, InputError
from l2caf.evaluation.localization import Localization, LocalizationResult, summarise
from l2caf.evaluation.measurements import THRESHOLDS, MapOverlap, Mapped, Measurement, row_of
from l2caf.evaluation.scores import tables_of
from l2caf.retrieval.embed import ImageVector
from l2caf.runs.rows import Identity, RowFile, Unusable
from l2caf.tasks.evaluate import EvaluationRequest, evaluate


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty pictures with one bright square each, in the colour of its class, and a manifest of their boxes."""
    return squares.folder(tmp_path_factory.mktemp("made"))


def _arguments(made: Path, out: Path, *more: str) -> list[str]:
    network = f"{made / 'bright.py'}:build"
    return [
        "evaluate",
        "manifest",
        str(made / "boxes.csv"),
        "--network",
        network,
        "--batch",
        "4",
        "--classes",
        "labels",
        "--out",
        str(out),
        *more,
    ]


def test_planted_squares_are_found_by_every_method(made: Path, tmp_path: Path) -> None:
    assert run(_arguments(made, tmp_path / "out")) == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["images"] == 40
    assert results["classification"]["top1"]["value"] == 100
    for scores in results["methods"].values():
        assert scores["loc_top1"]["value"] == 100
        assert scores["gt_known"]["value"] == 100
        assert scores["pointing"]["value"] == 100
        assert scores["max_box_acc_v2"]["value"] == 100
    report = (tmp_path / "out" / "report.html").read_text()
    assert "Most disagreed on" in report
    assert "http://" not in report.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
        "http://creativecommons.org", ""
    )


def test_wrong_boxes_and_wrong_labels_are_not_hits(made: Path, tmp_path: Path) -> None:
    lines = (made / "boxes.csv").read_text().splitlines()
    moved = [lines[0]]
    for number, line in enumerate(lines[1:]):
        file, label, x0, y0, x1, y1 = line.split(",")
        if number % 2:  # every other box is moved to the opposite corner
            x0, x1, y0, y1 = (str(value) for value in (64 - int(x1), 64 - int(x0), 64 - int(y1), 64 - int(y0)))
        if number % 4 == 0:
            label = "5"
        moved.append(",".join((str(made / file), label, x0, y0, x1, y1)))
    manifest = tmp_path / "moved.csv"
    manifest.write_text("\n".join(moved) + "\n")
    arguments = _arguments(made, tmp_path / "out", "-m", "l2caf")
    arguments[2] = str(manifest)
    assert run(arguments) == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    scores = results["methods"]["l2caf"]
    assert results["classification"]["top1"]["value"] == 75
    assert 50 <= scores["gt_known"]["value"] < 75  # a few squares near the centre still overlap when mirrored
    assert scores["loc_top1"]["value"] <= scores["gt_known"]["value"] - 20


# A run that wrote a fifth of its rows waits to be killed, so that none is over before, however late the kill comes.
STALLING = """
import os, time
from pathlib import Path

rows = os.environ.get("STALL_ON")
def written():
    return Path(rows).read_bytes().count(b"\\n") if Path(rows).exists() else 0
before = rows and written()
def stall():
    time.sleep(0.02 if rows else 0)
    while rows and written() - before >= 16:
        time.sleep(1)
"""


@pytest.mark.endurance  # that of `explain`, which goes the same way, is in `make test`
def test_killed_five_times_it_leaves_the_same_rows(made: Path, tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_WAIT_POLICY": "PASSIVE"}
    assert run(_arguments(made, whole, "-m", "l2caf", "-m", "gradcam")) == 0
    slow = STALLING + squares.BUILDER.replace("def forward(self, x):", "def forward(self, x):\n        stall()")
    (made / "bright.py").write_text(slow)
    try:
        command = [sys.executable, "-m", "l2caf", *_arguments(made, cut, "-m", "l2caf", "-m", "gradcam")]
        generator = random.Random(0)
        killed = 0
        rows = cut / "rows.jsonl"
        stalling = environment | {"STALL_ON": str(rows)}
        for _ in range(5):
            process = subprocess.Popen(command, env=stalling, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            before = rows.stat().st_size if rows.exists() else 0
            while process.poll() is None and (not rows.exists() or rows.stat().st_size == before):
                time.sleep(0.01)
            time.sleep(generator.uniform(0, 0.3))
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                killed += 1
            process.wait()
        assert killed >= 2, "the runs ended before they could be killed"
        with rows.open("a") as file:
            file.write('{"image":"00.png","meth')  # as if the machine had died in the middle of a line
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    finally:
        (made / "bright.py").write_text(squares.BUILDER)
    assert sorted((cut / "rows.jsonl").read_bytes().splitlines()) == sorted(
        (whole / "rows.jsonl").read_bytes().splitlines()
    )
    assert (cut / "results.json").read_bytes() == (whole / "results.json").read_bytes()


def test_another_setting_in_the_same_folder_is_refused(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(_arguments(made, tmp_path / "out", "-m", "l2caf")) == 0
    assert run(_arguments(made, tmp_path / "out", "-m", "gradcam", "--layer", "mean")) == 2
    assert "differs in layer" in capsys.readouterr().err


def test_a_finished_run_is_not_measured_again(made: Path, tmp_path: Path) -> None:
    assert run(_arguments(made, tmp_path / "out", "-m", "l2caf")) == 0
    before = (tmp_path / "out" / "rows.jsonl").read_bytes()
    assert run(_arguments(made, tmp_path / "out", "-m", "l2caf")) == 0
    assert (tmp_path / "out" / "rows.jsonl").read_bytes() == before


def test_bad_files_are_named_and_the_rest_goes_on(made: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(b"no picture")
    lines = (made / "boxes.csv").read_text().splitlines()
    absolute = [",".join((str(made / line.split(",", 1)[0]), line.split(",", 1)[1])) for line in lines[1:9]]
    manifest = tmp_path / "some.csv"
    manifest.write_text("\n".join([lines[0], *absolute[:3], "broken.png,0,0,0,8,8", *absolute[3:]]) + "\n")
    arguments = _arguments(made, tmp_path / "out", "-m", "l2caf")
    arguments[2] = str(manifest)
    assert run(arguments) == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["images"] == 8
    assert list(results["bad"]) == ["broken.png"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"--method": "magic"}, "magic"),
        ({"--view": "sideways"}, "sideways"),
        ({1: "imagenette"}, "imagenette"),
        ({2: "/nowhere/boxes.csv"}, "/nowhere"),
    ],
)
def test_bad_arguments_get_one_sentence(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str | int, str], words: str
) -> None:
    arguments = _arguments(made, tmp_path / "out")
    for key, value in change.items():
        if isinstance(key, int):
            arguments[key] = value
        else:
            arguments += [key, value]
    assert run(arguments) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out" / "report.html").exists()


def test_json_is_one_document(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(_arguments(made, tmp_path / "out", "-m", "l2caf", "--json")) == 0
    assert json.loads(capsys.readouterr().out)["images"] == 40


def test_a_row_file_drops_what_was_cut_off(tmp_path: Path) -> None:
    file = RowFile.open(tmp_path, Identity({"a": 1}))
    file.append(0, [{"image": "x"}])
    file.append(1, [{"image": "y"}])
    path = tmp_path / "rows.jsonl"
    path.write_bytes(path.read_bytes()[:-3])
    again = RowFile.open(tmp_path, Identity({"a": 1}))
    assert again.blocks_done == 1
    assert [row["image"] for row in again.rows()] == ["x"]
    with pytest.raises(FileError, match="differs in a:"):
        RowFile.open(tmp_path, Identity({"a": 2}))


def test_rows_without_boxes_leave_nothing_to_measure() -> None:
    with pytest.raises(InputError, match="nothing to measure"):
        tables_of([Mapped("x", "l2caf", None, (1,))], ["l2caf"])


def test_a_scripted_table_gives_known_scores() -> None:
    rows = [
        Mapped(
            image=str(number),
            method="l2caf",
            label=1,
            top=(1, 2) if number < 2 else (2, 1),
            overlap=MapOverlap(
                iou=(0.9 if number % 2 else 0.1,) * len(THRESHOLDS),
                best_iou=(0.6,) * len(THRESHOLDS),
                pointed=number == 0,
                foreground=0.5,
            ),
        ).as_dict()
        for number in range(4)
    ]
    work = Localization(("l2caf",))
    result, _ = summarise([*rows, {"image": "x", "error": "gone"}], work, dataset="made", network="none")
    scores = result.comparison.methods["l2caf"].measures
    assert result.bad == {"x": "gone"}
    assert [scores[key].value for key in ("loc_top1", "loc_top5", "gt_known", "pointing")] == [25, 50, 50, 25]
    assert scores["max_box_acc_v2"].value == pytest.approx(100 * 2 / 3, abs=1e-3)


@pytest.mark.parametrize(
    "row",
    [
        Unusable("a.png", "it is empty"),
        ImageVector("a.png", 3, (0.5, -1.0)),
        Mapped("a.png", "cam"),
        Mapped("a.png", "cam", None, (2, 1), "global", MapOverlap((0.5,), (0.6,), True, 0.25)),
    ],
)
def test_rows_come_back_as_they_were(row: Measurement) -> None:
    assert row_of(json.loads(json.dumps(row.as_dict()))) == row


DATA = Path(os.environ.get("L2CAF_DATA", Path(__file__).parents[3] / "shared" / "data"))


@pytest.mark.dataset
@pytest.mark.skipif(not (DATA / "imagenet-val").is_dir(), reason="the labelled photographs are not here")
def test_localisation_on_real_photographs(tmp_path: Path) -> None:
    request = EvaluationRequest(
        "imagenet",
        DATA / "imagenet-val",
        tmp_path,
        methods=("l2caf", "l2caf-class", "gradcam"),
        limit=48,
    )
    result = evaluate(request).result
    assert isinstance(result, LocalizationResult)
    assert result.classification["top1"].value > 55
    for scores in result.comparison.methods.values():
        assert scores.measures["gt_known"].value > 45
        assert scores.measures["pointing"].value > 70
