"""The pages of results: all that they must tell, and nothing cut or overlapping on a telephone or a desk."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from html import escape, unescape
from itertools import pairwise
from pathlib import Path

import pytest
from PIL import Image

import l2caf
import squares
from l2caf.cli.app import run
from l2caf.evaluation.localization import Localization, LocalizationResult, summarise
from l2caf.evaluation.measurements import THRESHOLDS, MapOverlap, Mapped
from l2caf.evaluation.published import fine_tuned_rows, localisation_table
from l2caf.evaluation.reproduction import Measure, Number, Reproduced, Row, Unmet
from l2caf.reports.localization import write_report
from l2caf.reports.photographs import Listed, write_list
from l2caf.reports.reproduction import grid_of, write_reproduction
from l2caf.reports.tiles import Tile

METHODS = ("l2caf", "l2caf-class", "cam", "gradcam", "gradcam-abs")
LONG = "val/" + "a_name_without_any_place_to_break_it" * 4 + ".JPEG"


def _result(methods: tuple[str, ...] = METHODS) -> LocalizationResult:
    """Four of five methods find the same boxes, as they do wherever a head is a mean and a linear layer."""
    rows = [
        Mapped(
            image=str(number),
            method=method,
            label=1,
            top=(1, 2),
            overlap=MapOverlap(
                iou=tuple(
                    0.9 if (number + place * (method != "l2caf")) % 3 else 0.1 for place in range(len(THRESHOLDS))
                ),
                best_iou=(0.6,) * len(THRESHOLDS),
                pointed=number == 0,
                foreground=0.5,
            ),
        ).as_dict()
        for number in range(6)
        for method in methods
    ]
    bad = {"image": LONG, "error": "it is truncated or damaged; save or download it again"}
    return summarise(
        [*rows, bad], Localization(methods), dataset="made", network="none", published=localisation_table("imagenet")
    )[0]


def _report(folder: Path) -> Path:
    tiles = [
        Tile(name, [Image.new("RGB", (64, 64), "grey")] * 5, [0.5] * 5, "goldfish", "tench, 61%", right=False)
        for name in ("one.JPEG", LONG)
    ]
    title = "a_network_of_my_own_with_a_long_name:build on a data set with a long name: where do its maps lie?"
    settings = {"network": "a_network_of_my_own_with_a_long_name:build", "images": "6"}
    return write_report(
        folder / "report.html", _result(), {"best": tiles, "worst": tiles}, title=title, settings=settings
    )


def _list(folder: Path) -> Path:
    Image.new("RGB", (900, 300), "teal").save(folder / "one.png")
    listed = [
        Listed(
            f"/a/folder/{name}",
            "soft-coated wheaten terrier, 61%",
            ["terrier, 61%", "cat, 3%"],
            ["exact"],
            [Path("one.png")],
        )
        for name in ("one.jpg", "two.jpg", LONG)
    ]
    return write_list(
        folder / "index.html", listed, {LONG: "it is damaged"}, title="Where it looked", settings={"network": "x"}
    )


def _reproduction(folder: Path) -> Path:
    """The paper's own rows and as many of ours, with intervals."""
    measures = (
        Measure("cub_cls", "classification"),
        Measure("cub_loc", "localisation top-1"),
        Measure("gt", "GT-known"),
    )
    wide = Number(-12.34, -45.67, 12.3)
    rows = [
        Row("L2-CAF, class-specific as published", "tf_efficientnet_lite0", {one.key: wide for one in measures}),
        *(
            Row(row.method, row.backbone, {"cub_loc": Number(row.cub_loc)}, ours=False, trained=row.tuning, words=words)
            for row in fine_tuned_rows()
            for words in ("fused maps, quoted",)
        ),
    ]
    margins = [Row("L2-CAF, class-specific as published − Grad-CAM", "timm:resnet50", {"cub_loc": wide}, trained="ADL")]
    found = Reproduced(
        "table2",
        "Table 2: localisation on CUB-200-2011, networks fine-tuned for it",
        "Per cent.",
        measures,
        tuple(rows),
        tuple(margins),
        (Unmet("weights", f"{LONG} could not be had."),),
        (f"table2/{LONG}/report.html",),
    )
    return write_reproduction(folder / "report.html", [found, found], settings={"tables": "table2"})


def test_what_a_table_leaves_empty_has_no_column(tmp_path: Path) -> None:
    row = Row("CAM", "VGG", {"loc": Number(40.0, 38.0, 42.0)})
    found = Reproduced("t", "T", "", (Measure("loc", "LOC"), Measure("nmi", "NMI")), (row,), (row,))
    assert grid_of(found)[0] == ["method", "network", "LOC"]
    assert grid_of(found)[1] == [[("CAM", False), ("VGG", True), ("40.0 (38.0 to 42.0)", False)]]
    assert grid_of(found, margins=True)[1][0][-1] == ("+40.0 (+38.0 to +42.0)", True)


def test_a_page_says_version_and_date(tmp_path: Path) -> None:
    page = _report(tmp_path).read_text()
    assert f"l2caf {l2caf.__version__}, {datetime.now(UTC):%Y-%m-}" in page


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("/usr/bin/l2caf", True),
        ("/x/site-packages/l2caf/__main__.py", True),
        ("/home/me/my_script.py", False),
        ("", False),
    ],
)
def test_a_page_says_the_command_where_there_was_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, told: bool
) -> None:
    monkeypatch.setattr(sys, "argv", [program, "evaluate", "cub", "my data/<b>"])
    assert ("l2caf evaluate cub 'my data/<b>'" in unescape(_report(tmp_path).read_text())) == told
    assert "<b>" not in (tmp_path / "report.html").read_text()


def test_a_tile_shows_class_and_prediction_and_marks_what_is_wrong(tmp_path: Path) -> None:
    page = _report(tmp_path).read_text()
    assert "class: goldfish · seen as: <span class=wrong>tench, 61%</span>" in page


def test_methods_with_one_curve_share_its_line_and_label(tmp_path: Path) -> None:
    """Of five lines four lay under the last."""
    page = _report(tmp_path).read_text()
    assert "L2-CAF, class-specific = CAM = Grad-CAM = Grad-CAM-abs" in re.sub(r"<!--|-->", "", page)


def test_lines_differ_in_more_than_their_colour() -> None:
    from l2caf.rendering.figures import LOOKS

    assert len({look.marker for look in LOOKS}) == len(LOOKS)
    assert all(one.line != other.line for one, other in pairwise(LOOKS))


def test_the_tiles_of_an_evaluation_name_classes(tmp_path: Path) -> None:
    made = squares.folder(tmp_path / "made")
    command = ["evaluate", "manifest", str(made / "boxes.csv"), "--network", f"{made / 'bright.py'}:build"]
    command += ["--limit", "6", "--classes", "labels", "--method", "cam", "--out", str(tmp_path / "out")]
    assert run(command) == 0
    page = (tmp_path / "out" / "report.html").read_text()
    found = re.findall(r"<small>class: ([^·]+) · seen as: <span>([^,<]+), [\d.]+%</span></small>", page)
    assert len(found) >= 6
    assert all(truth == predicted for truth, predicted in found)


BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MEASURE = """<script>
addEventListener("load", () => {
  const wide = innerWidth, out = [];
  for (const one of document.querySelectorAll("body *")) {
    if (one.closest("svg") && one.tagName !== "svg") continue;
    const box = one.getBoundingClientRect();
    if (!box.width || one.closest("details:not([open])")) continue;
    if (box.right > wide + 1 || box.left < -1) out.push(["outside", one.tagName, one.textContent.slice(0, 40)]);
    if (one.scrollWidth > one.clientWidth + 1 && one.clientWidth) out.push(["cut", one.tagName, one.className]);
  }
  const leaves = [...document.querySelectorAll("td, figcaption, img, h1, h2, p, dd, dt, .name, small, svg, footer")]
    .map(one => [one, one.getBoundingClientRect()]).filter(([, box]) => box.width && box.height);
  for (const [one, a] of leaves) for (const [other, b] of leaves) {
    if (one === other || one.contains(other) || other.contains(one)) continue;
    const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (across > 1 && down > 1)
      out.push(["overlap", one.tagName, other.tagName, one.textContent.slice(0, 30)]);
  }
  const said = document.createElement("pre");
  said.id = "measured";
  said.textContent = JSON.stringify({wide, scroll: document.documentElement.scrollWidth, out: out.slice(0, 10)});
  parent.document.body.append(said);
});
</script>"""


@pytest.mark.browser
@pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("make", [_report, _list, _reproduction])
def test_nothing_is_cut_or_overlaps(tmp_path: Path, make, width: int) -> None:
    page = make(tmp_path)
    inner = page.read_text().replace("</body>", MEASURE + "</body>")
    # In a frame: a window of Chromium is never narrower than 500 pixels.
    frame = f"<iframe style='border:0;width:{width}px;height:3000px' srcdoc='{escape(inner, quote=True)}'></iframe>"
    page.write_text(f"<!doctype html><meta charset=utf-8><body>{frame}</body>")
    options = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
        " --disable-component-update --disable-sync --hide-scrollbars --dump-dom"
    ).split()
    command = [
        str(BROWSER),
        *options,
        f"--user-data-dir={tmp_path / 'profile'}",
        "--window-size=1400,3200",
        page.as_uri(),
    ]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    found = re.search(r'<pre id="measured">(.*?)</pre>', shown, re.DOTALL)
    assert found
    measured = json.loads(unescape(found[1]))
    assert measured["wide"] == width
    assert measured["scroll"] <= width
    assert measured["out"] == []
