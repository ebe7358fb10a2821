"""Parts of the page that need no server: code to copy, limits, networks that are kept, markup."""

from __future__ import annotations

import io
import runpy
import shlex
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from l2caf.cli.app import run as command_line
from l2caf.errors import ExtraError, InputError, L2cafError
from l2caf.methods.table import METHODS
from l2caf.networks.catalogue import DEFAULT
from l2caf.networks.model import Model
from l2caf.rendering.style import Style
from l2caf.tasks.browse import BrowseRequest, browse, runs_in
from l2caf.tasks.look import Look, LookRequest, look
from l2caf.tasks.network_choice import NetworkChoice
from l2caf.tasks.question import Question
from l2caf.tasks.samples import sample
from l2caf.web import markup, server
from l2caf.web.equivalent import as_command, as_python
from l2caf.web.limits import Limits
from l2caf.web.models import Models
from l2caf.web.visits import Visits


@pytest.fixture(scope="module")
def model() -> Model:
    return NetworkChoice().load()


def seen(model: Model, question: Question, **choice: str) -> Look:
    request = LookRequest(sample("cup"), "cup.png", NetworkChoice(**choice), question)  # type: ignore[arg-type]
    return look(request, model=model.viewed(choice.get("view", "crop")))


QUESTIONS = {
    "prediction": (Question(), {}),
    "output": (Question("l2caf"), {}),
    "class": (Question("l2caf-class", classes=(967,)), {}),
    "two classes": (Question("l2caf-class", classes=(967, 282)), {}),  # the cup speaks against a cat
    "published": (Question("l2caf-published", classes=(967,)), {}),
    "gradcam": (Question("gradcam", classes=(968,)), {}),
    "cam of the best": (Question("cam"), {}),
    "softmax": (Question("softmax"), {}),
    "l1": (Question(filter="l1"), {}),
    "layer and view": (Question("gradcam"), {"layer": "blocks.5", "view": "whole"}),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_code_that_is_shown_runs_and_finds_the_same(
    name: str, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    question, choice = QUESTIONS[name]
    found = seen(model, question, **choice)
    style = Style(alpha=0.5, box=True, threshold=0.3, signed=name == "two classes")
    sample("cup").save(tmp_path / "cup.png")
    monkeypatch.chdir(tmp_path)

    words = shlex.split(as_command(found, style))
    assert words[0] == "l2caf"
    assert command_line([*words[1:], "--quiet"]) == 0
    expected = [one.heat for one in found.explained(style).maps]
    download = np.load(io.BytesIO(found.numbers(style)))
    np.testing.assert_allclose(download, np.squeeze(expected), atol=0)
    saved = np.load("where.npy")
    assert saved.shape == download.shape
    np.testing.assert_allclose(saved, download, atol=2e-4)
    ours = np.asarray(found.picture(style), float)
    with Image.open("where.png") as theirs:
        assert np.abs(np.asarray(theirs.convert("RGB"), float) - ours).max() <= 2
    Path("where.npy").unlink()
    Path("where.png").unlink()

    Path("shown.py").write_text(as_python(found, style))
    runpy.run_path("shown.py")
    saved = np.load("where.npy")
    assert saved.shape == download.shape
    np.testing.assert_allclose(saved, download, atol=2e-4)
    with Image.open("where.png") as theirs:
        if len(found.shown.maps) == 1:
            assert np.abs(np.asarray(theirs.convert("RGB"), float) - ours).max() <= 2
        else:  # side by side too, without the photograph, its name and a caption
            assert theirs.width > 2 * 300


def test_what_is_drawn_again_is_not_solved_again(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    found = seen(model, Question("l2caf-class", classes=(967, 282)))  # the cup speaks against a cat
    monkeypatch.setattr(Model, "run", None)
    for alpha in (0.1, 0.9):
        pictures = found.pictures(Style(alpha=alpha, signed=True, box=True), height=224)
        assert [one.picture.height for one in pictures] == [224, 224]
    assert np.load(io.BytesIO(found.numbers(Style(signed=True)))).min() < 0


def test_a_document_of_what_was_seen(model: Model) -> None:
    document = seen(model, Question()).as_dict()
    assert document["best"][0]["name"] == "espresso"
    assert len(document["best"]) == 5
    assert document["maps"][0]["outcome"] == "exact"


class TestModels:
    def test_only_a_few_are_kept(self, monkeypatch: pytest.MonkeyPatch, model: Model) -> None:
        loaded: list[str] = []

        def load(self: NetworkChoice, progress: object = None) -> Model:
            loaded.append(self.network)
            return replace(model, name=self.network)

        monkeypatch.setattr(NetworkChoice, "load", load)
        models = Models(["a", "b", "c"], most=2)
        for name in ("a", "b", "a", "c", "a", "b"):
            assert models.get(models.choice(name)).name == name
        assert loaded == ["a", "b", "c", "b"]  # b was idle longest when c came
        assert len(models) == 2

    def test_one_that_several_ask_for_is_loaded_once(self, monkeypatch: pytest.MonkeyPatch, model: Model) -> None:
        loaded: list[str] = []
        gate = threading.Event()

        def load(self: NetworkChoice, progress: object = None) -> Model:
            gate.wait(5)
            loaded.append(self.network)
            return model

        monkeypatch.setattr(NetworkChoice, "load", load)
        models = Models()
        askers = [threading.Thread(target=models.get, args=(models.choice(DEFAULT),)) for _ in range(4)]
        for asker in askers:
            asker.start()
        gate.set()
        for asker in askers:
            asker.join()
        assert loaded == [DEFAULT]

    def test_a_visitor_names_no_file_and_the_host_does(self) -> None:
        assert Models(["nets.py:build"]).choice("nets.py:build").network == "nets.py:build"
        with pytest.raises(L2cafError, match="on this page") as told:
            Models().choice("nets.py:build")
        assert told.value.field == "network"
        assert Models().choice("timm:resnet50").network == "timm:resnet50"


class TestVisitsKept:
    def test_the_oldest_makes_room(self, tmp_path: Path) -> None:
        visits = Visits(tmp_path, most=2)
        folders = []
        for name in ("one", "two", "three"):
            visit = visits.of(name)
            visit.place("a.txt").write_text("a")
            folders.append(visit.folder)
        assert [folder.exists() for folder in folders] == [False, True, True]
        assert visits.of("three").folder == folders[2]
        visits.end_all()
        assert list(tmp_path.iterdir()) == []

    def test_a_visit_without_a_name_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="load the page anew"):
            Visits(tmp_path).of(None)


@pytest.mark.parametrize("given", [{"upload_mb": 0}, {"megapixels": -1}, {"upload_mb": float("nan")}])
def test_limits_that_let_nothing_in_are_refused(given: dict[str, float]) -> None:
    with pytest.raises(InputError, match="lets nothing in"):
        Limits(**given)  # type: ignore[arg-type]


def test_a_clip_is_measured_before_it_is_explained(tmp_path: Path) -> None:
    from l2caf.tasks.video import make_demo

    clip = make_demo(tmp_path / "demo.mp4")
    assert Limits().check_clip(clip) == 1
    assert Limits(frames=25).check_clip(clip) == 3  # 60 frames, every third
    with pytest.raises(InputError, match="megapixels are the most"):
        Limits(megapixels=0.05).check_clip(clip)


def test_what_comes_from_outside_is_escaped() -> None:
    evil = "<script>alert('x')</script>\" onload=\"x"
    small = Image.new("RGB", (4, 4))
    page = markup.figures([markup.Shown(small, evil, evil)]) + markup.facts({evil: evil}) + markup.notes([evil])
    page += markup.code(evil, of="a", name=evil) + markup.empty(evil, evil) + markup.section(evil)
    assert "<script" not in page
    assert '" onload' not in page


def test_a_page_without_gradio_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "gradio", None)
    with pytest.raises(ExtraError, match="pip install 'gradio>=6'"):
        server.Server(server.ServeRequest())
    assert command_line(["serve"]) == 2
    assert "The page needs gradio: pip install 'gradio>=6'." in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("serve --host 0.0.0.0", "--auth: At 0.0.0.0 others can reach the page"),
        ("serve --auth ann", "--auth: Nobody can come in by that"),
        ("serve --port 99999", "--port: There is no port 99999"),
        ("serve --gallery nowhere", "--gallery: 'nowhere' is no folder"),
        ("serve --report nowhere", "--report: 'nowhere' is no folder"),
        ("serve --upload-mb 0", "--upload-mb: A limit of 0.0 lets nothing in"),
    ],
)
def test_what_is_given_wrong_is_said_by_its_option(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line(words.split()) == 2
    assert said in " ".join(capsys.readouterr().err.split())


class TestBrowse:
    def test_images_by_score(self, evaluation: Path) -> None:
        assert runs_in(evaluation) == runs_in(evaluation / "run") == [evaluation / "run"]
        found = browse(BrowseRequest(evaluation / "run", evaluation / "images"))
        assert found.methods == ("l2caf", "cam")
        worst = found.ranked("l2caf", "cam")
        assert [one.ours for one in worst] == sorted(one.ours for one in worst)
        assert [one.image for one in found.ranked("l2caf", "cam", order="best")] == [one.image for one in worst][::-1]
        apart = [abs(one.apart) for one in found.ranked("l2caf", "cam", order="apart")]
        assert apart == sorted(apart, reverse=True)
        assert found.file("cat.png") == (evaluation / "images" / "cat.png").resolve()

    @pytest.mark.parametrize("name", ["../run/rows.jsonl", "/etc/passwd", "nothing.png", ""])
    def test_a_name_that_leads_elsewhere_is_refused(self, evaluation: Path, name: str) -> None:
        found = browse(BrowseRequest(evaluation / "run", evaluation / "images"))
        with pytest.raises(InputError, match="no image"):
            found.file(name)

    def test_what_is_not_there_is_said(self, evaluation: Path, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="holds no run"):
            browse(BrowseRequest(tmp_path))
        found = browse(BrowseRequest(evaluation / "run"))
        with pytest.raises(InputError, match="where the images lie"):
            found.file("cat.png")
        with pytest.raises(InputError, match="was not measured here"):
            found.ranked("gradcam", "cam")
        with pytest.raises(InputError, match="no order"):
            found.ranked("l2caf", "cam", order="odd")


def test_every_method_of_the_table_can_be_asked(model: Model) -> None:
    for key in METHODS:
        assert seen(model, Question(key)).shown.maps, key
