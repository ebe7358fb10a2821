"""Files of a run that are damaged, a disk that is full, a folder that cannot be written to, names from any disk."""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import squares
import stripes
from classifier_for_tests import ClassifierRecipe
from l2caf.cli.app import run as cli
from l2caf.errors import FileError, WeightsError
from l2caf.files import json_text, printable, write_json, write_whole
from l2caf.runs.rows import ABOUT, ROWS, Identity, RowFile
from l2caf.tasks.outputs import names_for
from l2caf.training.trainer import follow

WHO = Identity({"view": "crop"})


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """The rows of three blocks."""
    file = RowFile.open(tmp_path, WHO)
    for block in range(3):
        file.append(block, [{"image": f"{block}-{number}.png", "iou": [0.5, number]} for number in range(4)])
    return tmp_path / ROWS


def read(folder: Path) -> list[str]:
    return [row["image"] for row in RowFile.open(folder, WHO).rows()]


class TestRows:
    @pytest.mark.parametrize("cut", [1, 2, 20, 60])
    def test_what_was_cut_off_is_done_again(self, rows: Path, cut: int) -> None:
        rows.write_bytes(rows.read_bytes()[:-cut])
        file = RowFile.open(rows.parent, WHO)
        assert file.blocks_done == 2
        assert len(list(file.rows())) == 8

    @pytest.mark.parametrize("tail", [b"\0" * 4096, b'{"image":"half', b"\xff\xfe\n\n", b'{"block":3}\n', b"[1]\n"])
    def test_rubbish_behind_the_last_block_is_dropped(self, rows: Path, tail: bytes) -> None:
        whole = rows.read_bytes()
        rows.write_bytes(whole + tail)
        assert len(read(rows.parent)) == 12
        assert rows.read_bytes() == whole

    def test_a_last_block_that_is_not_as_it_was_written_is_done_again(self, rows: Path) -> None:
        """As after a loss of power: the length is on disk, and not all of the pages."""
        stored = rows.read_bytes()
        rows.write_bytes(stored.replace(b'"2-1.png"', b"\0" * 9))
        file = RowFile.open(rows.parent, WHO)
        assert (file.blocks_done, len(list(file.rows()))) == (2, 8)

    @pytest.mark.parametrize(
        ("there", "instead"),
        [
            (b'"1-2.png"', b'"1-3.png"'),  # still a row, of another picture
            (b'"iou":[0.5,2]', b'"iou":[0.9,2]'),
            (b'{"image":"1-2.png"', b'{"imag'),
            (b'{"image":"1-2.png","iou":[0.5,2]}\n', b""),  # a line less
            (b'{"image":"1-2.png","iou":[0.5,2]}\n', b"17\n"),
            (b'{"block":1,', b'{"black":1,'),
            (b'{"block":1,', b'{"block":7,'),
        ],
    )
    def test_damage_in_the_middle_is_told_with_its_lines(self, rows: Path, there: bytes, instead: bytes) -> None:
        file = RowFile.open(rows.parent, WHO)
        file.append(3, [{"image": "3.png"}])
        assert there in rows.read_bytes()
        stored = rows.read_bytes()
        first, second, third, last = stored.split(b'{"block":')[1:]
        assert all((first, second, third, last))
        head, tail = stored.index(b'"1-0.png"'), stored.index(b'"2-0.png"')
        rows.write_bytes(stored[:head] + stored[head:tail].replace(there, instead) + stored[tail:])
        before = rows.read_bytes()
        with pytest.raises(
            FileError, match=r"rows\.jsonl' is damaged in the lines from 6 to \d+: remove all"
        ) as caught:
            RowFile.open(rows.parent, WHO)
        assert caught.value.field == "out"
        assert rows.read_bytes() == before  # nothing is lost
        rows.write_bytes(b"".join(before.splitlines(keepends=True)[:5]))  # the remedy
        file = RowFile.open(rows.parent, WHO)
        assert (file.blocks_done, len(list(file.rows()))) == (1, 4)

    def test_damage_in_the_first_block_is_told_too(self, rows: Path) -> None:
        rows.write_bytes(b"\n" + rows.read_bytes())
        with pytest.raises(FileError, match="is damaged in the lines from 1 to 6: "):
            RowFile.open(rows.parent, WHO)

    def test_rows_of_which_nobody_knows_what_they_are_about(self, rows: Path) -> None:
        before = rows.read_bytes()
        for content in (None, b"", b" \n"):
            (rows.parent / ABOUT).unlink()
            if content is not None:
                (rows.parent / ABOUT).write_bytes(content)
            with pytest.raises(FileError, match=r"rows.jsonl' has lines, but '.*run.json', which tells what"):
                RowFile.open(rows.parent, WHO)
            (rows.parent / ABOUT).touch()
        assert rows.read_bytes() == before

    def test_somebody_elses_file_of_that_name_stays(self, tmp_path: Path) -> None:
        (tmp_path / ROWS).write_text('{"mine": 1}\n')
        with pytest.raises(FileError, match="has lines, but"):
            RowFile.open(tmp_path, WHO)
        assert (tmp_path / ROWS).read_text() == '{"mine": 1}\n'

    @pytest.mark.parametrize(
        "content", [b"[]", b"7", b'"text"', b"{}", b'{"identity": 3}', b'{"a', b"\xff", b"[" * 9999]
    )
    @pytest.mark.parametrize("measured", [True, False])
    def test_a_record_that_is_none(self, rows: Path, content: bytes, measured: bool) -> None:
        if not measured:
            rows.unlink()
        (rows.parent / ABOUT).write_bytes(content)
        with pytest.raises(FileError, match=r"run.json' is no record of a run that can be read: choose another folder"):
            RowFile.open(rows.parent, WHO)
        assert (rows.parent / ABOUT).read_bytes() == content

    def test_no_rows_or_no_finished_block_is_a_new_run(self, rows: Path) -> None:
        rows.unlink()
        assert RowFile.open(rows.parent, WHO).blocks_done == 0
        rows.write_bytes(b"")
        assert RowFile.open(rows.parent, WHO).blocks_done == 0
        rows.write_bytes(b'{"image":"half')
        assert RowFile.open(rows.parent, Identity({"view": "squash"})).blocks_done == 0
        assert rows.read_bytes() == b""

    def test_a_folder_in_the_place_of_a_file(self, tmp_path: Path) -> None:
        for name in (ROWS, ABOUT):
            (tmp_path / name / name).mkdir(parents=True)
            with pytest.raises(FileError, match=r"cannot be used \(Is a directory\): choose another folder"):
                RowFile.open(tmp_path / name, WHO)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return squares.folder(tmp_path_factory.mktemp("made"), count=8)


def evaluation(made: Path, out: Path) -> list[str]:
    network = ("--network", f"{made / 'bright.py'}:build", "--batch", "2", "-m", "l2caf")
    return ["evaluate", "manifest", str(made / "boxes.csv"), *network, "--out", str(out)]


def test_the_command_says_what_is_damaged(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(evaluation(made, tmp_path)) == 0
    lines = (tmp_path / ROWS).read_bytes().splitlines(keepends=True)
    (tmp_path / ROWS).write_bytes(b"".join([*lines[:4], b"rubbish\n", *lines[4:]]))
    assert cli(evaluation(made, tmp_path)) == 2
    said = capsys.readouterr().err
    assert "error: --out: '" in said
    assert "is damaged in the lines from 4 to 7: remove all lines from 4 on" in said
    assert said.count("error:") == 1
    (tmp_path / ROWS).write_bytes(b"".join(lines[:3]))
    (tmp_path / "results.json").write_text('{"half')
    (tmp_path / "report.html").write_text("<!doctype html><html")
    assert cli(evaluation(made, tmp_path)) == 0
    assert (tmp_path / ROWS).read_bytes() == b"".join(lines)
    json.loads((tmp_path / "results.json").read_text())
    assert (tmp_path / "report.html").read_text().endswith("</html>\n")


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
from l2caf.cli import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no limits of this kind")
class TestFull:
    """No file may grow beyond a limit, which every writer meets as it meets a full disk."""

    def call(self, limit: int, arguments: list[str]) -> tuple[int, str]:
        command = [sys.executable, "-c", LIMITED, str(limit), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    def test_rows_are_gone_on_with_when_there_is_room(self, made: Path, tmp_path: Path) -> None:
        whole, full = tmp_path / "whole", tmp_path / "full"
        assert cli(evaluation(made, whole)) == 0
        size = (whole / ABOUT).stat().st_size
        assert size < (whole / ROWS).stat().st_size
        code, said = self.call(size + 10, evaluation(made, full))
        assert code == 2, said
        assert "rows.jsonl' could not be written (File too large): make room, and run the same command again" in said
        assert "Traceback" not in said
        assert (full / ROWS).stat().st_size > 0
        assert cli(evaluation(made, full)) == 0
        for name in (ROWS, "results.json"):
            assert (full / name).read_bytes() == (whole / name).read_bytes()

    def test_a_report_is_whole_or_not_there(self, made: Path, tmp_path: Path) -> None:
        code, said = self.call(8000, evaluation(made, tmp_path))
        assert code == 2, said
        assert "could not be written (File too large)" in said
        assert "Traceback" not in said
        assert not (tmp_path / "report.html").exists()
        assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]

    @pytest.mark.parametrize(
        "command", [["explain", "00.png", "--npy"], ["match", "00.png", "."], ["sanity", "00.png", "--seeds", "1"]]
    )
    def test_pictures_and_arrays(self, made: Path, tmp_path: Path, command: list[str]) -> None:
        paths = [str(made / one) if one in ("00.png", ".") else one for one in command]
        code, said = self.call(
            100, [*paths, "--network", f"{made / 'bright.py'}:build", "--out", str(tmp_path / "out")]
        )
        assert code == 2, said
        assert "could not be written (File too large)" in said
        assert "Traceback" not in said
        assert list((tmp_path / "out").iterdir()) == []

    def test_a_state_of_training(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """torch's own writer says so in no OSError."""
        import resource

        data = stripes.dataset(tmp_path / "pictures", size=24)
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, before[1]))
        try:
            with pytest.raises(FileError, match=r"resume.pt' could not be written \(") as caught:
                follow(ClassifierRecipe(), data, tmp_path / "out", device="cpu")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert "\n" not in str(caught.value)
        assert list((tmp_path / "out").iterdir()) == []
        follow(ClassifierRecipe(), data, tmp_path / "out", device="cpu")


def test_no_space_is_told_in_the_systems_words(rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RowFile.open(rows.parent, WHO)

    class Full(io.BytesIO):
        def write(self, stored: Any) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", lambda *_: Full())
        with pytest.raises(FileError, match="No space left on device"):
            file.append(3, [{"image": "3.png"}])
    assert RowFile.open(rows.parent, WHO).blocks_done == 3


@pytest.fixture
def unwritable(tmp_path: Path) -> Iterator[Path]:
    """A folder that is there and takes no file, from anybody."""
    if os.name == "posix" and os.geteuid() == 0:  # whom no permission keeps out
        if not Path("/proc/self").exists():
            pytest.skip("root may write everywhere here")
        yield Path("/proc/self")
        return
    folder = tmp_path / "unwritable"
    folder.mkdir(mode=0o555)
    yield folder
    folder.chmod(0o755)


@pytest.mark.parametrize("command", ["explain", "compare", "animate", "match", "evaluate", "sanity", "time", "demo"])
@pytest.mark.parametrize("inside", [False, True])
def test_a_folder_that_cannot_be_written_to_is_told_before_a_network_is_loaded(
    made: Path, unwritable: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str,
    inside: bool,
) -> None:  # fmt: skip
    def loaded(*_: object, **__: object) -> None:
        raise AssertionError("the network was loaded")

    for place in ("tasks.network_choice", "networks.untrained", "networks.catalogue", "tasks.demo"):
        if hasattr(sys.modules.get(f"l2caf.{place}"), "load"):
            monkeypatch.setattr(f"l2caf.{place}.load", loaded)
    (made / "loud.py").write_text("def build():\n    raise SystemExit('it was loaded')\n")
    photograph, network = str(made / "00.png"), ("--network", f"{made / 'loud.py'}:build")
    arguments = {
        "match": [photograph, str(made), *network],
        "evaluate": ["manifest", str(made / "boxes.csv"), *network],
        "time": [network[1]],
        "demo": [],
    }.get(command, [photograph, *network])
    out = unwritable / "inside" if inside else unwritable
    assert cli([command, *arguments, "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: --out: '{out}' cannot be made or written to (")
    assert said.endswith("choose another folder.\n")


def test_training_notices_it_before_it_prepares(unwritable: Path, tmp_path: Path) -> None:
    stages: list[str] = []
    data = stripes.dataset(tmp_path / "pictures", size=24)
    with pytest.raises(FileError, match="cannot be made or written to"):
        follow(ClassifierRecipe(), data, unwritable, progress=lambda *now: stages.append(now[0]))
    assert stages == []


class TestState:
    """The state from which a training goes on."""

    @pytest.mark.parametrize(
        "content",
        [{"format": 3}, {"format": 3, "log": 1}, {"format": 3, "log": [], "best_line": {}}, {"format": 3, "log": [{}]}],
    )
    def test_one_that_misses_its_parts(self, tmp_path: Path, content: dict[str, Any]) -> None:
        torch.save(content, tmp_path / "resume.pt")
        with pytest.raises(WeightsError, match=r"resume.pt cannot be read \(\w+\), so the run cannot go on") as caught:
            follow(ClassifierRecipe(), stripes.dataset(tmp_path / "pictures", size=24), tmp_path, device="cpu")
        assert caught.value.field == "out"

    @pytest.mark.parametrize("part", ["current", "optimizer", "random", "mean"])
    def test_one_whose_tensors_do_not_fit(self, tmp_path: Path, part: str) -> None:
        data = stripes.dataset(tmp_path / "pictures", size=24)
        follow(ClassifierRecipe(iterations=5), data, tmp_path, device="cpu")
        stored = torch.load(tmp_path / "resume.pt", weights_only=True)
        stored[part] = [{}] if part == "random" else {}
        torch.save(stored, tmp_path / "resume.pt")
        with pytest.raises(WeightsError, match=r"resume.pt cannot be read \(\w+\), so the run cannot go on"):
            follow(ClassifierRecipe(iterations=8), data, tmp_path, device="cpu")


NAMES = {
    "no UTF-8": b"caf\xe9 \xff.png",
    "a new line": b"two\nlines\r.png",
    "quotes and brackets": b'it\'s "[red]" <b>&amp; $x$ :cat: %s {0}.png',
    "an escape": b"\x1b[31mred\x07.png",
    "four bytes a letter": "🐈".encode() * 60 + b".png",
    "long": b"n" * 251 + b".png",
    "spaces": b"  two  .png",
    "a dash": b"--out.png",
}


@pytest.fixture(params=NAMES)
def foreign(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder with two pictures of one class each, one of which has a name that few would choose."""
    name = os.fsdecode(NAMES[request.param])
    folder = tmp_path / "photos"
    for place, (group, file) in enumerate((("a", name), ("b", "plain.png"), ("b", "more.png"), ("a", "last.png"))):
        path = folder / group / file
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            Image.fromarray(np.full((64, 64, 3), 60 * place + 9, np.uint8)).save(path, "PNG")
        except OSError:
            pytest.skip("this disk takes no such name")
    (tmp_path / "bright.py").write_text(squares.BUILDER)
    return folder


class Closed(HTMLParser):
    """Reads a page, and notes what is neither text nor a tag that a report has."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag != "b", "a file's name became a part of the page"


class TestNames:
    """Each command twice: for people, and then, where it goes on with what is there, for machines."""

    @pytest.fixture
    def document(self, capsys: pytest.CaptureFixture[str], foreign: Path) -> Callable[..., dict[str, Any]]:
        def call(*arguments: object) -> dict[str, Any]:
            network = ("--network", f"{foreign.parent / 'bright.py'}:build", "--out", str(foreign.parent / "out"))
            for more in ([], ["--json"]):
                code = cli([*map(str, arguments), *network, *more])
                said = capsys.readouterr()
                assert code == 0, said
                assert "\x1b" not in said.out + said.err
            found: dict[str, Any] = json.loads(said.out)
            return found

        return call

    def test_explain(self, document: Callable[..., dict[str, Any]], foreign: Path) -> None:
        found = document("explain", foreign)
        assert {one["file"] for one in found["images"]} == {str(path) for path in foreign.rglob("*.png")}
        assert all(Path(picture).is_file() for one in found["images"] for picture in one["pictures"])
        assert len(list((foreign.parent / "out").glob("*.png"))) == 4

    def test_match(self, document: Callable[..., dict[str, Any]], foreign: Path) -> None:
        query = next(path for path in (foreign / "a").iterdir() if path.name != "last.png")
        found = document("match", query, foreign)
        assert found["query"] == str(query)
        assert found["gallery"] == 4
        assert Path(found["picture"]).is_file()

    def test_evaluate(self, document: Callable[..., dict[str, Any]], foreign: Path) -> None:
        assert document("evaluate", "folder", foreign, "--protocol", "retrieval", "--embedding")["images"] == 4
        Closed().feed((foreign.parent / "out" / "report.html").read_text(encoding="utf-8"))
        rows = [json.loads(line) for line in (foreign.parent / "out" / ROWS).read_text().splitlines()]
        images = {row["image"] for row in rows if "image" in row}
        assert images == {path.relative_to(foreign).as_posix() for path in foreign.rglob("*.png")}


def test_bad_files_of_such_names_get_their_sentence(foreign: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = next(path for path in (foreign / "a").iterdir() if path.name != "last.png")
    bad.write_bytes(b"no picture")
    network = ("--network", f"{foreign.parent / 'bright.py'}:build", "--out", str(foreign.parent / "out"))
    cli(["explain", str(foreign), *network])
    said = [line for line in capsys.readouterr().err.splitlines() if line.strip() and not line.startswith("assumed:")]
    assert len(said) == 1
    assert said[0].startswith("skipped: '")
    assert "is not an image that can be read" in said[0]
    assert cli(["evaluate", "folder", str(foreign), "--protocol", "retrieval", "--embedding", *network]) == 0
    page = (foreign.parent / "out" / "report.html").read_bytes().decode("utf-8")
    Closed().feed(page)
    assert "is not an image that can be read" in page


def test_names_of_pictures_fit_on_every_disk(tmp_path: Path) -> None:
    files = [Path(os.fsdecode(name)) for name in NAMES.values()]
    files += [Path("🐈" * 60 + ".jpg"), Path("n" * 200 + ".jpg")]
    names = names_for(files, suffix="l2caf-published")
    assert len({name.casefold() for name in names.values()}) == len(files)
    for name in names.values():
        with write_whole(tmp_path / f"{name}-999.png") as temporary:
            temporary.write_bytes(b"x")
    assert len(list(tmp_path.iterdir())) == len(files)


def test_json_of_any_name_comes_back(tmp_path: Path) -> None:
    names = [os.fsdecode(name) for name in NAMES.values()]
    write_json(tmp_path / "names.json", names)
    assert json.loads((tmp_path / "names.json").read_text(encoding="utf-8")) == names
    for encoding in ("ascii", "latin-1", "utf-8"):
        text = json_text(names, encoding=encoding)
        assert json.loads(text.encode(encoding)) == names
    assert "é" in json_text(["é"])
    assert all("\n" not in printable(name) and printable(name).encode() for name in names)


@pytest.mark.parametrize("name", [b"caf\xe9.png", pytest.param(b"\xe7\x8c\xab.png", marks=pytest.mark.endurance)])
def test_a_terminal_of_few_letters_prints_all(made: Path, tmp_path: Path, name: bytes) -> None:
    photograph = tmp_path / os.fsdecode(name)
    photograph.write_bytes((made / "00.png").read_bytes())
    command = [sys.executable, "-m", "l2caf", "explain", str(photograph), "--network", f"{made / 'bright.py'}:build"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    for more in ([], ["--json"]):
        done = subprocess.run(
            [*command, "--out", str(tmp_path / "out"), *more], env=environment, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["images"][0]["file"] == str(photograph)
