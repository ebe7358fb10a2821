"""`l2caf export`, and `l2caf explain` with what it leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands_for_tests import Run
from exported_for_tests import pictures


@pytest.fixture
def photographs(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, picture in enumerate(pictures(3, size=(300, 240))):
        picture.save(folder / f"{number}.png")
    return folder


def test_a_network_of_ones_own_is_exported_and_explains_without_its_code(
    run: Run, tmp_path: Path, photographs: Path
) -> None:
    words = [
        "export",
        "nets.py:tiny",
        "--maps",
        "class",
        "--top",
        2,
        "--photos",
        "photos/*.png",
        "--out",
        "out/tiny.onnx",
    ]
    code, said, told = run(*words)
    assert code == 0, told
    assert "class_maps" in said
    assert "against the library on 3 photographs, the same best class on 100%; float32" in said
    assert "written: out/tiny.onnx" in said
    (tmp_path / "nets.py").unlink()
    code, said, told = run("explain", photographs / "0.png", "--network", "out/tiny.onnx", "--json", "--out", "maps")
    assert code == 0, told
    document = json.loads(said)
    assert document["method"] == "L2-CAF, class-specific"
    assert document["network"] == "nets.py:tiny"
    assert Path(document["images"][0]["pictures"][0]).is_file()


def test_the_document_says_how_near_the_file_is(run: Run, tmp_path: Path, photographs: Path) -> None:
    code, said, told = run("export", "nets.py:tiny", "--json", "--products", 20, "--photos", photographs)
    assert code == 0, told
    document = json.loads(said)
    assert document["file"] == "model.onnx"
    assert document["bytes"] == (tmp_path / "model.onnx").stat().st_size
    assert set(document["check"]["maps"]) == {"output", "class", "prediction"}
    assert document["check"]["photographs"] == 3
    assert max(one["error"] for one in document["check"]["maps"].values()) < 1e-4


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--out", "model.pt"], "--out: 'model.pt' names no ONNX file: end it in .onnx"),
        (["--precision", "int4"], "--precision: There is no precision 'int4'"),
        (["--opset", 12], "--opset: opset is 12: give a whole number from 18 to 23"),
        (["--products", 0], "--products: products is 0"),
        (["--maps", "klass"], "--maps: The maps are"),
        (["--top", 0], "--top: The best 0 classes are asked for"),
        (["--layer", "nowhere"], "--layer: "),
        (["--photos", "nothing.jpg"], "nothing.jpg"),
        (["--view", "whole", "--photos", "photos"], "--view: The photographs become inputs of"),
        (["--products", 1, "--photos", "photos"], "--products: The fixed number of multiplications"),
    ],
)
def test_what_is_asked_wrong_gets_a_sentence_and_leaves_nothing(
    run: Run, tmp_path: Path, photographs: Path, words: list[object], said: str
) -> None:
    pictures(1, seed=5, size=(100, 300))[0].save(photographs / "tall.png")
    code, _, told = run("export", "nets.py:tiny", *words)
    assert code == 2
    assert said in told
    assert not list(tmp_path.glob("*.onnx"))
