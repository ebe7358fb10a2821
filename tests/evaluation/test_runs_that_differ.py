"""Two runs that are cut off, damaged, older or of other settings: one sentence each, and nothing dropped in silence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import squares
from l2caf.cli.app import run
from l2caf.evaluation.box_accuracy import V2_NEEDED, box_accuracy_difference
from l2caf.evaluation.difference import MeasuredRun, compared
from l2caf.evaluation.measurements import Mapped, overlaps_of, row_of
from l2caf.preprocessing import Preprocessing
from l2caf.runs.rows import ABOUT, ROWS

COUNT = 12


def evaluated(made: Path, out: Path, *more: str) -> Path:
    given = ["evaluate", "manifest", str(made / "boxes.csv"), "--network", f"{made / 'bright.py'}:build"]
    assert run([*given, "--batch", "4", "--classes", "labels", "--out", str(out), *more]) == 0
    return out


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = squares.folder(tmp_path_factory.mktemp("made"), count=COUNT)
    evaluated(root, root / "both", "-m", "l2caf", "-m", "cam")
    evaluated(root, root / "squash", "-m", "l2caf", "-m", "gradcam", "--view", "squash")
    return root


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [row for line in (folder / ROWS).read_text().splitlines() if "block" not in (row := json.loads(line))]


def shortened(folder: Path) -> None:
    """As a run is left by a kill in the middle of a block."""
    stored = (folder / ROWS).read_bytes()
    (folder / ROWS).write_bytes(stored[: stored.rindex(b'{"block":') - 40])


def changed(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    about = json.loads((folder / ABOUT).read_text())
    change(about)
    (folder / ABOUT).write_text(json.dumps(about))


def middle_gone(folder: Path) -> None:
    lines = (folder / ROWS).read_bytes().splitlines(keepends=True)
    (folder / ROWS).write_bytes(b"".join([lines[0][:20] + b"\n", *lines[1:]]))


def unchecked(folder: Path) -> None:
    """As an older version ended its blocks."""
    lines = (folder / ROWS).read_text().splitlines()
    older = [line if "block" not in line else json.dumps({"block": json.loads(line)["block"]}) for line in lines]
    (folder / ROWS).write_text("\n".join(older) + "\n")


BROKEN: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no rows": (lambda folder: (folder / ROWS).write_text(""), "holds no finished rows: run the same evaluate"),
    "rows missing": (lambda folder: (folder / ROWS).unlink(), "holds no run of evaluate"),
    "damaged in the middle": (middle_gone, r"is damaged in the lines from 1 to \d+: measure that run again"),
    "blocks without checksums": (unchecked, "damaged in the lines|holds no finished rows"),
    "run.json cut off": (lambda folder: (folder / ABOUT).write_text('{"identity": "a'), "cannot be read as a run"),
    "run.json of something else": (lambda folder: (folder / ABOUT).write_text("[]"), "cannot be read as a run"),
    "no thresholds": (
        lambda folder: changed(folder, lambda about: about.pop("thresholds")),
        "cannot be read as a run of evaluate .*thresholds.*: it is damaged, or of another version",
    ),
    "other thresholds": (
        lambda folder: changed(folder, lambda about: about.update(thresholds=[0.5])),
        "cannot be read as a run of evaluate",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_run_that_cannot_be_read_is_refused_in_a_sentence(
    made: Path, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    import re

    breaks, words = BROKEN[kind]
    shutil.copytree(made / "both", tmp_path / "broken")
    breaks(tmp_path / "broken")
    capsys.readouterr()
    assert run(["difference", str(made / "both"), str(tmp_path / "broken")]) == 2
    said = capsys.readouterr().err
    assert re.search(words, said), said
    assert len(said.splitlines()) == 1


def test_of_a_run_that_was_cut_off_the_finished_images_are_compared(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "both", tmp_path / "cut")
    shortened(tmp_path / "cut")
    images, _ = compared(*(MeasuredRun.read(folder) for folder in (made / "both", tmp_path / "cut")))
    assert images == COUNT - 4
    joined = evaluated(made, tmp_path / "joined", "-m", "l2caf")
    evaluated(made, joined, "-m", "l2caf", "-m", "cam")
    (added,) = joined.glob("added-*")
    shortened(added)
    images, found = compared(*(MeasuredRun.read(folder) for folder in (made / "both", joined)))
    assert images == COUNT - 4
    assert {one.ours_method for one in found} == {"l2caf", "cam"}


def test_rows_without_boxes_are_read(made: Path, tmp_path: Path) -> None:
    """Older runs have none."""
    import zlib

    shutil.copytree(made / "both", tmp_path / "older")
    lines, block = [], b""
    for line in (made / "both" / ROWS).read_text().splitlines():
        row = json.loads(line)
        if "block" in row:
            row["crc32"] = zlib.crc32(block)
            lines.append(json.dumps(row, separators=(",", ":")).encode() + b"\n")
            block = b""
        else:
            kept = {key: value for key, value in row.items() if not key.startswith(("boxes", "truth"))}
            lines.append(json.dumps(kept).encode() + b"\n")
            block += lines[-1]
    (tmp_path / "older" / ROWS).write_bytes(b"".join(lines))
    assert MeasuredRun.read(tmp_path / "older").images == MeasuredRun.read(made / "both").images


def test_what_only_one_run_has_is_named(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    folders = str(made / "both"), str(made / "squash")
    assert run(["difference", *folders]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "only in RUN, and not compared: CAM" in said
    assert "only in OTHER, and not compared: Grad-CAM" in said
    assert "view differs: crop in RUN, squash in OTHER" in said
    assert run(["difference", *folders, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["only_in_first"]["methods"] == ["cam"]
    assert found["only_in_second"]["methods"] == ["gradcam"]
    assert found["settings"]["view"] == ["crop", "squash"]


def test_max_box_acc_v2_is_compared_as_its_own_protocol_does(made: Path) -> None:
    runs = [MeasuredRun.read(made / name) for name in ("both", "squash")]
    _, found = compared(*runs)
    (ours,) = [one for one in found if one.measure == "max_box_acc_v2"]
    ious = []
    for name in ("both", "squash"):
        rows = {row["image"]: row["best_iou"] for row in rows_of(made / name) if row["method"] == "l2caf"}
        ious.append(np.array([rows[image] for image in sorted(rows)]))
    assert ours.points == box_accuracy_difference(*ious, needed=V2_NEEDED).in_percent()


def test_rows_have_boxes_in_pixels_of_the_photograph() -> None:
    crop = Preprocessing(input_size=(64, 64), resize_size=(72, 72)).crop(Image.new("RGB", (311, 200)))
    planted = [[140.0, 60.0, 180.0, 110.0]]
    ((x0, y0, x1, y1),) = crop.to_input(planted).round().astype(int).tolist()
    maps = np.zeros((2, 64, 64), np.float32)
    maps[0, y0:y1, x0:x1] = 1  # the other shows nothing
    found, nothing = overlaps_of(maps, crop.to_input(planted), (0.2, 0.5), crop)
    assert found is not None
    assert nothing is not None
    assert found.truth_on_photograph == ((140.0, 60.0, 180.0, 110.0),)
    assert np.abs(np.array(found.boxes_on_photograph) - planted).max() < 200 / 72
    assert nothing.boxes_on_photograph == ((0.0,) * 4,) * 2
    row = Mapped("a.png", "cam", 3, (3, 1), None, found)
    assert row_of(json.loads(json.dumps(row.as_dict()))) == row
