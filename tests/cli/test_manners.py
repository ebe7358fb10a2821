"""What people try first: -h, a mistyped word, a pattern in quotes, one picture by its name, --quiet, --open."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
from PIL import Image

from commands_for_tests import TINY, Run
from l2caf.cli.app import COMMANDS


@pytest.fixture(autouse=True)
def photos(tmp_path: Path) -> Path:
    """Three photographs."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, name in enumerate(("a.png", "b.png", "c.jpg")):
        Image.effect_noise((48, 48), 40 + 10 * number).convert("RGB").save(folder / name)
    return folder


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("explian a.png", "no command 'explian': did you mean 'explain'?"),
        ("train retreival cub x", "no command 'retreival': did you mean 'retrieval'?"),
        ("explain a.png --metod cam", "no option --metod: did you mean --method?"),
        ("evaluate cub x --spilt seen", "no option --spilt: did you mean --split?"),
        ("explain photos/a.png --device cuda:77", "no device 'cuda:77' here: take auto or cpu"),
        (
            "explain photos/a.png --view sideways",
            "--view: There is no view 'sideways': take one of crop, whole, squash",
        ),
        ("compare a.png --top 3", "There is no option --top. See 'l2caf compare --help'"),
        ("explain photos/a.png --out where.xyz", "--out: 'where.xyz' cannot be made: end the name of the file in .png"),
        ("explain photos/a.png --method l2caf --signed", "--signed: What speaks for and against is known of a class"),
        ("explain photos/a.png --method l2caf-prediction --signed", "--signed: What speaks for and against"),
        ("explain photos/a.png --threshold 7", "--threshold: threshold is 7.0: give a number from 0 to 1."),
        ("explain photos/a.png --alpha -1", "--alpha: The alpha is -1.0; choose one from 0"),
        ("explain photos/a.png --cmap turbu", "--cmap: There is no colour map 'turbu'; try turbo"),
        ("explain photos --out where.png", "--out: 'where.png' names one picture, and there are 3 photographs"),
        ("explain photos/a.png --out where.tif", "--out: 'where.tif' cannot be made"),
        ("animate photos/a.png --out film.mp4", "--out: 'film.mp4' cannot be made: end the name of the file in .gif"),
        ("sanity photos --out maps.xyz", "--out: 'maps.xyz' names a file, and this command writes several"),
        ("sanity photos --out maps.png", "--out: 'maps.png' names a file, and this command writes several"),
    ],
)
def test_one_sentence_says_what_was_meant(run: Run, tmp_path: Path, arguments: str, words: str) -> None:
    before = set(tmp_path.rglob("*"))
    own = TINY if arguments.startswith(("explain photos", "animate")) else ()
    code, out, err = run(*arguments.split(), *own)
    assert (code, out) == (2, "")
    assert words in err
    assert len(err.splitlines()) == 1
    made = {path.name for path in set(tmp_path.rglob("*")) - before if "__pycache__" not in path.parts}
    assert made <= {"l2caf-out"}  # that it can be written to is the first that is tried


@pytest.mark.parametrize("ending", [".png", ".jpg", ".webp"])
def test_out_names_the_picture_of_one_photograph(run: Run, tmp_path: Path, ending: str) -> None:
    code, out, _ = run("explain", "photos/a.png", "--out", f"new/where{ending}", *TINY)
    assert code == 0
    assert [path.name for path in (tmp_path / "new").iterdir()] == [f"where{ending}"]
    assert f"where{ending}" in out
    with Image.open(tmp_path / "new" / f"where{ending}") as picture:
        assert picture.format == {".png": "PNG", ".jpg": "JPEG", ".webp": "WEBP"}[ending]


def test_a_folder_that_looks_like_a_picture_is_a_folder(run: Run, tmp_path: Path) -> None:
    (tmp_path / "maps.png").mkdir()
    assert run("explain", "photos", "--out", "maps.png", *TINY)[0] == 0
    assert len(list((tmp_path / "maps.png").glob("*.png"))) == 3


@pytest.mark.parametrize(("pattern", "names"), [("photos/*.png", "ab"), ("**/[bc].*", "bc"), ("photos/?.jpg", "c")])
def test_patterns_in_quotes(run: Run, pattern: str, names: str) -> None:
    code, out, _ = run("explain", pattern, *TINY, "--json")
    assert code == 0
    assert [Path(one["file"]).stem for one in json.loads(out)["images"]] == list(names)


def test_a_file_whose_name_looks_like_a_pattern(run: Run, tmp_path: Path) -> None:
    (tmp_path / "photos" / "a.png").rename(tmp_path / "photos" / "[b].png")
    code, out, _ = run("explain", "photos/[b].png", *TINY, "--json")
    assert code == 0
    assert json.loads(out)["images"][0]["file"] == "photos/[b].png"


def test_quiet_prints_nothing_but_errors(run: Run) -> None:
    assert run("explain", "photos", "-q", "--network", "nets.py:tiny") == (0, "", "")
    code, out, err = run("explain", "photos", "none.png", "--quiet", *TINY)
    assert (code, out) == (1, "")
    assert err == "skipped: 'none.png' does not exist; check the path.\n"
    assert "assumed:" in run("explain", "photos/a.png", "--network", "nets.py:tiny")[2]  # else it is said


def test_open_shows_the_page_or_the_picture(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("typer.launch", lambda path: opened.append(path) or len(opened) // 2)
    assert "no program" not in run("explain", "photos/a.png", "--open", "--out", "maps", *TINY)[2]
    assert "no program here opens" in run("explain", "photos", "--open", "--out", "maps", *TINY)[2]
    run("explain", "none.png", "--open", *TINY)
    assert opened == [str(Path("maps/a-l2caf.png")), str(Path("maps/index.html"))]


def test_the_threshold_moves_the_box(run: Run) -> None:
    areas = []
    for threshold in ("0.1", "0.9"):
        document = json.loads(run("explain", "photos/a.png", "--threshold", threshold, "--json", *TINY)[1])
        x0, y0, x1, y1 = document["images"][0]["maps"][0]["box"]
        areas.append((x1 - x0) * (y1 - y0))
    assert areas[0] > areas[1] > 0


def test_views_show_other_parts(run: Run, tmp_path: Path) -> None:
    Image.effect_noise((96, 48), 40).convert("RGB").save(tmp_path / "wide.png")
    sizes = {}
    for view in ("crop", "whole", "squash"):
        assert run("explain", "wide.png", "--view", view, "--bare", "--out", f"{view}.png", *TINY)[0] == 0
        with Image.open(f"{view}.png") as picture:
            sizes[view] = picture.width / picture.height
    assert sizes == {"crop": 1, "whole": 2, "squash": 1}
    assert Path("crop.png").read_bytes() != Path("squash.png").read_bytes()


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("command", ["", *COMMANDS, "train retrieval"])
def test_help_fits_the_window(run: Run, monkeypatch: pytest.MonkeyPatch, command: str, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    code, out, _ = run(*command.split(), "-h")
    assert code == 0
    lines = out.splitlines()
    assert all(len(line) <= width for line in lines)
    assert "…" not in out
    assert "\b" not in out
    prose = [line.strip() for line in re.split(r"^(?:╭|Arguments:|Options:)", out, flags=re.M)[0].splitlines()]
    examples = prose[prose.index("Examples") + 1 :]
    # Each command is on a line of its own, or is broken where its author broke it.
    assert all(re.match(r"l2caf |torchrun |--|-m |$", line) for line in examples), examples
    assert all(before.endswith("\\") for before, line in pairwise(examples) if line[:1] == "-")
    # A paragraph fills its lines: the next word would not have fitted.
    for line, following in pairwise(prose[: prose.index("Examples")]):
        if line and following and not line.startswith("Usage"):
            assert len(line) + 1 + len(following.split()[0]) > width - 4, (line, following)


def test_the_shell_completes_commands_options_and_methods(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for words, expected in {
        "l2caf expl": "explain",
        "l2caf explain --thr": "--threshold",
        "l2caf explain --method gradcam-": "gradcam-abs",
        "l2caf evaluate x y --view s": "squash",
    }.items():
        monkeypatch.setenv("_L2CAF_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
        with pytest.raises(SystemExit):  # before any command
            run()
        assert capsys.readouterr().out.split() == [expected]
