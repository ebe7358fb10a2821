"""What trips people on their first day: pictures that overwrite one another, what was cut off, useless remedies."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import l2caf
import networks_for_tests as nets
from commands_for_tests import TINY, Run
from l2caf.errors import L2cafError
from l2caf.rendering.style import Style
from l2caf.tasks.compare import Comparison
from l2caf.tasks.explain import ExplainRequest
from l2caf.tasks.network_choice import NetworkChoice
from l2caf.tasks.outputs import suffix_of
from l2caf.tasks.question import Question
from networks_for_tests import pixels, seeded


@pytest.fixture(autouse=True)
def wide(tmp_path: Path) -> Path:
    path = tmp_path / "wide.png"
    Image.effect_noise((96, 48), 60).convert("RGB").save(path)
    Image.effect_noise((48, 48), 60).convert("RGB").save(tmp_path / "square.png")
    return path


def test_a_second_question_leaves_the_first_picture_alone(run: Run, tmp_path: Path) -> None:
    questions = [(), ("--class", "1"), ("--class", "1", "--class", "2"), ("--method", "gradcam", "--class", "1")]
    for question in questions:
        code, _, err = run("explain", "wide.png", *question, *TINY, "--out", "maps")
        assert code == 0, err
    names = {path.name for path in (tmp_path / "maps").iterdir()}
    assert names == {"wide-l2caf.png", "wide-l2caf-1.png", "wide-l2caf-1-2.png", "wide-gradcam-1.png"}


def test_every_question_has_a_name_of_its_own() -> None:
    questions = [
        {},
        {"question": Question("l2caf", classes=(1,))},
        {"question": Question("l2caf", classes=(2,))},
        {"question": Question("l2caf", classes=(1, 2))},
        {"question": Question("l2caf", classes=(1,)), "style": Style(signed=True)},
        {"question": Question("l2caf", classes=(1,), published=True)},
        {"question": Question("l2caf", top=2)},
        {"question": Question("l2caf", top=3)},
        {"question": Question("l2caf", filter="softmax")},
        {"question": Question("l2caf", solver="gradient-descent")},
        {"question": Question("l2caf", solver="gradient-descent", seed=3)},
        {"question": Question("gradcam")},
        {"question": Question("l2caf-class")},
        {"style": Style(signed=True)},
        {"network": NetworkChoice(layer="0")},
        {"network": NetworkChoice(view="whole")},
    ]
    names = {suffix_of(ExplainRequest([Path("a.png")], Path("out"), **given).words) for given in questions}  # type: ignore[arg-type]
    assert len(names) == len(questions)


def test_a_comparison_says_its_class(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = Comparison(Image.new("RGB", (64, 64)), (), None, None, "0", "tiny")
    monkeypatch.setattr("l2caf.tasks.compare.compare", lambda *_, **__: nothing)
    for question in ((), ("--class", "1"), ("--layer", "0")):
        assert run("compare", "square.png", *question, *TINY, "--out", "maps")[0] == 0
    names = {path.name for path in (tmp_path / "maps").iterdir()}
    assert names == {"square-compare.png", "square-compare-1.png", "square-compare-0.png"}


def test_what_was_cut_off_is_said_where_it_is_much(run: Run) -> None:
    code, out, err = run("explain", "wide.png", *TINY)
    assert code == 0
    assert "only the centre of wide.png was shown (38%); --view whole shows all of it" in err
    assert "--view whole" not in run("explain", "square.png", *TINY)[2]
    assert "--view whole" not in run("explain", "wide.png", "--view", "whole", *TINY)[2]
    code, out, err = run("explain", "wide.png", "square.png", *TINY, "--json")
    assert [one["seen"] for one in json.loads(out)["images"]] == [0.3828, 0.7656]
    assert "only the centre of wide.png" in err
    Image.open("wide.png").resize((480, 64)).save("wider.png")
    err = run("explain", "wide.png", "wider.png", *TINY)[2]
    assert "only the centre of 2 photographs was shown, least of wider.png (" in err


def test_a_number_that_is_the_whole_is_a_threshold(run: Run) -> None:
    assert run("explain", "square.png", "--box", "--threshold", "1", *TINY)[0] == 0
    assert run("explain", "square.png", "--box", "--threshold", "0.995", *TINY)[0] == 0


def test_a_folder_may_have_a_dot_in_its_name(run: Run, tmp_path: Path) -> None:
    (tmp_path / "maps.old").mkdir()
    for name in ("maps.v2", "maps.old", "run.2024"):
        assert run("explain", "square.png", "--out", name, *TINY)[0] == 0
        assert (tmp_path / name / "square-l2caf.png").is_file()


def test_pictures_that_are_not_there_can_be_dropped_from_the_list(run: Run, tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text("file,label,x0,y0,x1,y1\nsquare.png,0,1,1,9,9\ngone.png,0,1,1,9,9\n")
    code, _, err = run("evaluate", "manifest", "list.csv", *TINY, "--out", "out")
    assert code == 2
    assert "or remove them from that list" in err


def test_numbers_and_endings(tmp_path: Path) -> None:
    heatmap = l2caf.explain(seeded(nets.pooled), pixels())
    assert np.load(heatmap.save(tmp_path / "maps.NPY")).shape == (2, 32, 32)
    with pytest.raises(L2cafError) as caught:
        heatmap.save(tmp_path / "maps.xyz")
    for ending in (".png", ".jpg", ".webp", ".tiff", ".gif", ".pdf", ".svg", ".npy"):
        assert ending in str(caught.value)


def test_a_layer_without_a_map_is_told_the_last_ones_that_have_one() -> None:
    network = torch.nn.Sequential()
    for name in ("conv1", "act1", "conv2", "conv2b"):
        network.add_module(name, torch.nn.ReLU() if "act" in name else torch.nn.Conv2d(3, 3, 3, padding=1))
    network.add_module("conv3", torch.nn.Conv2d(3, 8, 4, 4))
    network.add_module("pool", torch.nn.AdaptiveAvgPool2d(1))
    network.add_module("flat", torch.nn.Flatten())
    network.add_module("act", torch.nn.Linear(8, 5))  # by name next to act1
    with pytest.raises(L2cafError, match=r"has no spatial map; the nearest usable ones are .*conv3") as caught:
        l2caf.explain(network, pixels(), layer=network.act)
    assert "act1" not in str(caught.value)


def test_a_key_of_a_tensor_is_refused_without_a_warning_of_torch() -> None:
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        with pytest.raises(L2cafError, match="There is no output 'logits'"):
            l2caf.explain(seeded(nets.pooled), pixels(), output="logits")
    assert not heard


@pytest.mark.parametrize("command", ["explain", "compare"])
@pytest.mark.parametrize("ending", [".pdf", ".SVG"])
def test_commands_write_figures(run: Run, tmp_path: Path, command: str, ending: str) -> None:
    more = ("--top", "2", "--box", "--contours") if command == "explain" else ()
    code, _, err = run(command, "square.png", "--out", f"where{ending}", *more, *TINY)
    assert code == 0, err
    content = (tmp_path / f"where{ending}").read_bytes()
    assert content.startswith(b"%PDF" if ending == ".pdf" else b"<?xml")
    if ending == ".SVG":
        assert content.count(b"maximum of the map") == 1
        assert b"square.png" in content
        assert b"layer" in content
    if command == "explain":
        assert run(command, "square.png", "--out", f"bare{ending}", "--bare", *TINY)[0] == 0
        assert (tmp_path / f"bare{ending}").is_file()
