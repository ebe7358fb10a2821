"""What the doors offer, without a door: typed requests in, typed results out; progress, cancelling, faults."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from embeddings_for_tests import colours_file, patches
from l2caf.cli import main
from l2caf.errors import Cancelled, ClassError, FileError, ImageError, InputError, L2cafError
from l2caf.methods.table import METHODS
from l2caf.progress import Progress
from l2caf.rendering.style import Style
from l2caf.solution import Outcome
from l2caf.tasks.animate import AnimateRequest, animate_filter
from l2caf.tasks.compare import CompareRequest, compare_methods
from l2caf.tasks.explain import ExplainRequest, explain_photographs
from l2caf.tasks.match import MatchRequest, match_pictures
from l2caf.tasks.network_choice import NetworkChoice
from l2caf.tasks.outputs import Failed
from l2caf.tasks.question import Question
from l2caf.tasks.samples import sample
from l2caf.tasks.sanity import SanityRequest, check_sanity
from l2caf.tasks.time import TimeRequest, time_maps

NETS = """
import torch
from torch import nn

def straight():
    torch.manual_seed(0)
    trunk = [nn.Conv2d(3, 8, 28, stride=28), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*trunk, nn.Linear(8, 4))
"""
Told = list[tuple[str, int, int | None]]


@pytest.fixture
def choice(tmp_path: Path) -> NetworkChoice:
    (tmp_path / "nets.py").write_text(NETS)
    return NetworkChoice(f"{tmp_path / 'nets.py'}:straight", device="cpu")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, name in enumerate(("cat", "cup", "rocket", "cat", "cup")):
        sample(name).resize((60 + number, 60)).save(folder / f"{number}.png")
    return folder


def into(told: Told) -> Progress:
    return lambda stage, done, total, numbers=None: told.append((stage, done, total))


def stop_at(stage: str, done: int) -> Progress:
    def tell(now: str, so_far: int, total: int | None, numbers: object = None) -> None:
        if (now, so_far) == (stage, done):
            raise Cancelled("enough")

    return tell


def whole_pictures(folder: Path) -> list[str]:
    """The names of the pictures in a folder; every one can be read, and nothing else lies there."""
    pictures = sorted(folder.glob("[!.]*.[!h]*"))  # but for the page that lists them
    for path in pictures:
        with Image.open(path) as picture:
            picture.load()
    return [path.name for path in pictures]


class TestExplain:
    def test_a_folder(self, choice: NetworkChoice, photos: Path, tmp_path: Path) -> None:
        (photos / "bad.png").write_text("no picture")
        told: Told = []
        left_out: list[Failed] = []
        request = ExplainRequest([photos, Path("none.png")], tmp_path / "out", choice, Question(top=2), batch=2)
        result = explain_photographs(request, progress=into(told), skipped=left_out.append)
        assert [one.explained.file for one in result.written] == [photos / f"{number}.png" for number in range(5)]
        assert (
            {one.file.name for one in left_out} == {one.file.name for one in result.failed} == {"bad.png", "none.png"}
        )
        assert all(found.outcome == Outcome.EXACT for one in result.written for found in one.explained.maps)
        assert told[0] == (f"loading {choice.network}", 0, None)
        assert told[1:] == [("explaining", done, 6) for done in range(1, 7)]
        assert whole_pictures(tmp_path / "out") == [f"{number}-l2caf-top2.png" for number in range(5)]
        document = json.loads(json.dumps(result.as_dict(), allow_nan=False))
        assert document["images"][0]["pictures"] == [str(tmp_path / "out" / "0-l2caf-top2.png")]
        assert "error" not in document

    def test_cancelled_in_a_folder_all_that_was_told_is_there_and_whole(
        self, choice: NetworkChoice, photos: Path, tmp_path: Path
    ) -> None:
        request = ExplainRequest([photos], tmp_path / "out", choice, batch=2)
        with pytest.raises(Cancelled):
            explain_photographs(request, progress=stop_at("explaining", 3))
        # The block that the third belongs to was done whole.
        assert whole_pictures(tmp_path / "out") == [f"{number}-l2caf.png" for number in range(4)]
        assert len(explain_photographs(request).written) == 5

    def test_a_loaded_network_is_not_loaded_again(self, choice: NetworkChoice, photos: Path, tmp_path: Path) -> None:
        told: Told = []
        request = ExplainRequest([photos / "0.png"], tmp_path / "out", choice)
        explain_photographs(request, model=choice.load(), progress=into(told))
        assert told == [("explaining", 1, 1)]

    def test_layer_part_and_view_are_in_the_request(self, choice: NetworkChoice, photos: Path, tmp_path: Path) -> None:
        sample("cup").resize((120, 60)).save(photos / "wide.png")
        looked = NetworkChoice(choice.network, layer="0", view="whole", device="cpu")
        request = ExplainRequest([photos / "wide.png"], tmp_path / "out", looked, npy=True)
        (written,) = explain_photographs(request).written
        assert written.explained.layer == "0"
        assert written.numbers is not None
        assert np.load(written.numbers).shape == (224, 448)

    def test_none_went_well(self, choice: NetworkChoice, tmp_path: Path) -> None:
        for name in "ab":
            (tmp_path / f"{name}.png").write_text("no picture")
        request = ExplainRequest([tmp_path / "a.png", tmp_path / "b.png"], tmp_path / "out", choice)
        result = explain_photographs(request)
        assert result.as_dict()["error"] == "None of the 2 photographs could be explained: see 'failed'."
        with pytest.raises(ImageError, match="does not exist"):
            explain_photographs(ExplainRequest([tmp_path / "none.png"], tmp_path / "out", choice))


class TestOthers:
    def test_compare_asks_every_method_of_the_table(self, choice: NetworkChoice, photos: Path, tmp_path: Path) -> None:
        told: Told = []
        request = CompareRequest(photos / "0.png", tmp_path / "out", choice, of_class="2")
        result = compare_methods(request, progress=into(told))
        titles = [METHODS[key].title for key in METHODS.default_in("compare")]
        assert [one.title for one in result.comparison.answers] == titles
        assert [one["method"] for one in result.as_dict()["methods"]] == titles
        assert told[1:] == [("comparing", done, len(titles)) for done in range(1, len(titles) + 1)]
        assert result.comparison.about is not None
        assert result.comparison.about.index == 2
        assert whole_pictures(tmp_path / "out") == ["0-compare-2.png"]

    def test_animate(self, choice: NetworkChoice, photos: Path, tmp_path: Path) -> None:
        told: Told = []
        request = AnimateRequest(photos / "0.png", tmp_path / "film.gif", choice, frames=3, steps=200)
        result = animate_filter(request, progress=into(told))
        assert ("descending", 0, None) in told
        assert result.film.losses[-1] < result.film.losses[0]
        assert result.as_dict()["loss"] == [result.film.losses[0], result.film.losses[-1]]
        assert result.as_dict()["frames"] == len(result.film.maps) <= 3
        with Image.open(tmp_path / "film.gif") as film:
            assert film.n_frames == len(result.film.maps)

    def test_match(self, tmp_path: Path) -> None:
        colours_file(tmp_path)
        patches(tmp_path / "query.png", ((0, 8), (255, 0, 0)))
        for number, colour in enumerate([(255, 0, 0), (0, 255, 0), (0, 0, 255)]):
            patches(tmp_path / "gallery" / f"{number}.png", ((40, 0), colour))
        (tmp_path / "gallery" / "bad.png").write_text("no picture")
        told: Told = []
        left_out: list[Failed] = []
        choice = NetworkChoice(f"{tmp_path / 'colours.py'}:build", device="cpu")
        request = MatchRequest(tmp_path / "query.png", tmp_path / "gallery", tmp_path / "out", choice, top=2)
        result = match_pictures(request, progress=into(told), skipped=left_out.append)
        assert result.matches.pairs[0].name == "0.png"
        assert result.gallery == 3
        assert [one.file.name for one in left_out] == ["bad.png"]
        assert list(dict.fromkeys(stage for stage, *_ in told)) == [told[0][0], "embedding", "explaining"]
        assert json.loads((tmp_path / "out" / "query-match.json").read_text("utf-8")) == json.loads(
            json.dumps(result.as_dict())
        )

    def test_sanity_and_a_cancelled_one(self, choice: NetworkChoice, photos: Path, tmp_path: Path) -> None:
        (photos / "bad.png").write_text("no picture")
        left_out: list[Failed] = []
        request = SanityRequest([photos], tmp_path / "out", choice, ["l2caf", "cam"], seeds=1, stages=2)
        with pytest.raises(Cancelled):
            check_sanity(request, progress=stop_at("randomising", 1))
        assert list((tmp_path / "out").iterdir()) == []
        result = check_sanity(request, skipped=left_out.append)
        assert [one.file.name for one in left_out] == ["bad.png"]
        assert list(result.found.methods) == ["l2caf", "cam"]
        assert result.as_dict()["photographs"] == [str(photos / f"{number}.png") for number in range(5)]
        assert all(path.is_file() for path in result.written)
        assert result.added == ()
        assert "written" not in json.loads(result.written[0].read_text("utf-8"))

    def test_sanity_says_which_photographs_joined_in(
        self, choice: NetworkChoice, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        given = [str(photos / "0.png"), "--network", choice.network, "--classifier", "-m", "l2caf"]
        assert main(["sanity", *given, "--seeds", "1", "--stages", "2", "--out", str(tmp_path / "out")]) == 0
        said = capsys.readouterr().err
        assert "note: 1 photograph can be compared with too few others, so 5 that are installed joined in" in said
        assert "chelsea.png" in said
        assert len(json.loads((tmp_path / "out" / "sanity.json").read_text("utf-8"))["added"]) == 5

    def test_time_and_a_cancelled_one(self, choice: NetworkChoice, tmp_path: Path) -> None:
        told: Told = []
        request = TimeRequest([choice.network], tmp_path / "out", rounds=1)
        name = choice.network
        with pytest.raises(Cancelled):
            time_maps(request, progress=stop_at(f"timing {name}", 2))
        assert list((tmp_path / "out").iterdir()) == []
        result = time_maps(request, progress=into(told))
        assert told == [("loading", 0, None), *((f"timing {name}", done, 3) for done in (1, 2, 3))]
        assert [one["network"] for one in result.as_dict()["networks"]] == [name]
        assert all(path.is_file() for path in result.written)


@pytest.mark.parametrize(
    ("ask", "field"),
    [
        (lambda a, b: ExplainRequest([a], b, batch=0), "batch"),
        (lambda a, b: AnimateRequest(a, b, frames=1), "frames"),
        (lambda a, b: AnimateRequest(a, b, steps=1), "steps"),
        (lambda a, b: MatchRequest(a, a, b, top=0), "top"),
        (lambda a, b: SanityRequest([a], b, stages=1), "stages"),
        (lambda a, b: SanityRequest([a], b, methods=["cum"]), "method"),
        (lambda a, b: TimeRequest([], b, rounds=0), "rounds"),
        (lambda a, b: ExplainRequest([a], b, style=Style(cmap="viridas")), "cmap"),
    ],
)
def test_a_bad_request_names_its_field_before_any_work(ask: Callable[[Path, Path], Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        ask(Path("a.png"), Path("out"))
    assert caught.value.field == field
    assert "--" not in str(caught.value)


def test_what_only_the_network_or_the_disk_can_tell(choice: NetworkChoice, photos: Path, tmp_path: Path) -> None:
    image = photos / "0.png"
    with pytest.raises(ClassError) as caught:
        explain_photographs(ExplainRequest([image], tmp_path / "out", choice, Question(classes=("cat",))))
    assert caught.value.field == "class"
    for field, chosen in {
        "network": NetworkChoice(choice.network.replace("straight", "crooked")),
        "weights": NetworkChoice(choice.network, weights=tmp_path / "none.pth"),
        "layer": NetworkChoice(choice.network, layer="9"),
        "device": NetworkChoice(choice.network, device="abacus"),
    }.items():
        with pytest.raises(L2cafError) as found:
            explain_photographs(ExplainRequest([image], tmp_path / "out", chosen))
        assert found.value.field == field
    with pytest.raises(FileError) as refused:
        explain_photographs(ExplainRequest([image], tmp_path / "nets.py" / "below", choice))
    assert refused.value.field == "out"
    with pytest.raises(InputError) as among:
        explain_photographs(ExplainRequest([photos], photos, choice))
    assert among.value.field == "out"


def test_a_door_can_import_the_tasks_without_torch() -> None:
    names = ("explain", "compare", "animate", "match", "demo", "sanity", "time")
    program = (
        f"import sys; {'; '.join(f'import l2caf.tasks.{name}' for name in names)}; assert 'torch' not in sys.modules"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
