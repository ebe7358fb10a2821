"""An exported file on a machine without torch: explained, drawn and refused as a network in torch is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from PIL import Image

import l2caf
from exported_for_tests import NAMES, pictures, small_model
from l2caf.cli import main
from l2caf.errors import InputError, L2cafError
from l2caf.exported import CONVERGED, Answer, Card, ExportedNetwork, load
from l2caf.preprocessing import Preprocessing
from l2caf.rendering.style import Style
from l2caf.runs.spec import ModelSpec
from l2caf.tasks.explain import ExplainRequest, explain_photographs
from l2caf.tasks.network_choice import NetworkChoice
from l2caf.tasks.question import Question


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an exported network and photographs."""
    folder = tmp_path_factory.mktemp("exported")
    (folder / "photos").mkdir()
    for number, picture in enumerate(pictures(4, size=(90, 60))):
        picture.save(folder / "photos" / f"{number}.png")
    l2caf.export(small_model(), folder / "small.onnx", top=2, products=24, photographs=folder / "photos")
    return folder


@pytest.fixture
def network(home: Path) -> ExportedNetwork:
    return load(home / "small.onnx", threads=1)


def without_torch(*words: object) -> subprocess.CompletedProcess[str]:
    """The command line in a process where torch cannot be imported."""
    program = "import sys; sys.modules['torch'] = None; from l2caf.cli import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, words)], capture_output=True, text=True, check=False
    )


def test_photographs_are_explained_without_torch(home: Path, tmp_path: Path) -> None:
    done = without_torch(
        "explain", home / "photos", "--network", home / "small.onnx", "--out", tmp_path, "--json", "--npy"
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["network"] == "small"
    assert document["method"] == "L2-CAF, prediction"
    assert [Path(one["file"]).name for one in document["images"]] == ["0.png", "1.png", "2.png", "3.png"]
    assert Path(document["page"]).is_file()
    model = small_model()
    for one in document["images"]:
        heatmap = model.explain(one["file"], objective=l2caf.Prediction())
        (found,) = one["maps"]
        assert found["outcome"] == "exact"
        assert one["layer"] == heatmap.layer
        (prediction,) = model.predictions(model.run([model.ready(Image.open(one["file"])).input]).output)
        assert prediction is not None
        assert one["predicted"]["name"] == prediction.name
        assert one["predicted"]["probability"] == pytest.approx(prediction.probability, abs=1e-5)
        np.testing.assert_allclose(np.load(one["npy"]), heatmap.numpy()[0], atol=1e-4)


@pytest.mark.parametrize(
    ("question", "style"),
    [
        (Question(), Style()),
        (Question("l2caf"), Style(box=True, contours=True)),
        (Question(top=2), Style()),
        (Question("l2caf-class"), Style(signed=True)),
    ],
    ids=["prediction", "output", "classes", "signed"],
)
def test_pictures_are_those_of_a_run_in_torch(question: Question, style: Style, home: Path, tmp_path: Path) -> None:
    drawn = []
    for name, model in (("torch", small_model()), ("file", None)):
        choice = NetworkChoice("small") if model else NetworkChoice(str(home / "small.onnx"))
        request = ExplainRequest([home / "photos" / "1.png"], tmp_path / f"{name}.png", choice, question, style)
        (written,) = explain_photographs(request, model=model).written
        drawn.append((np.asarray(Image.open(tmp_path / f"{name}.png"), int), written.as_dict()))
    (theirs, said), (ours, ours_said) = drawn
    assert theirs.shape == ours.shape
    assert np.abs(theirs - ours).max() <= 4
    for key in ("predicted", "layer", "seen"):
        assert said[key] == ours_said[key] or key == "predicted"
    for one, other in zip(said["maps"], ours_said["maps"], strict=True):
        assert (one["outcome"], one["box"]) == (other["outcome"], other["box"])
        assert (one["class"] or {}).get("name") == (other["class"] or {}).get("name")


def test_a_run_that_was_stopped_is_resumed(home: Path, tmp_path: Path) -> None:
    stopped = 2

    class Enough(Exception):  # noqa: N818
        pass

    def stop(stage: str, done: int, total: int | None, numbers: object = None) -> None:
        if stage == "explaining" and done == stopped:
            raise Enough

    request = ExplainRequest([home / "photos"], tmp_path, NetworkChoice(str(home / "small.onnx")), batch=1)
    with pytest.raises(Enough):
        explain_photographs(request, progress=stop)
    stood = {one.name: one.stat().st_mtime_ns for one in tmp_path.glob("*.png")}
    assert len(stood) == stopped
    assert len(explain_photographs(request).written) == 4
    for name, when in stood.items():
        assert (tmp_path / name).stat().st_mtime_ns == when


def test_a_file_goes_to_other_processes_by_its_name(home: Path) -> None:
    built = ModelSpec(str(home / "small.onnx"), view="squash").build()
    assert isinstance(built, ExportedNetwork)
    assert built.card.preprocessing == Preprocessing((32, 32), (36, 36)).squashed((32, 32))


def test_an_answer_draws_itself_on_the_photograph(network: ExportedNetwork, home: Path, tmp_path: Path) -> None:
    photograph = home / "photos" / "2.png"
    answer = network.explain(photograph)
    heatmap = small_model().explain(photograph, objective=l2caf.Prediction())
    drawn = np.asarray(answer.overlay(width=300), int)
    assert np.abs(drawn - np.asarray(heatmap.overlay(width=300), int)).max() <= 4
    assert answer.save(tmp_path / "where.png").is_file()
    assert answer.as_dict()["samples"][0]["outcomes"] == ["exact"]
    classes = network.explain([photograph, photograph], top=2)
    assert classes.as_dict()["samples"][1]["classes"] == classes.classes[1].tolist()
    assert np.asarray(classes.overlay(1, 1, signed=True)).shape == (60, 90, 3)


def test_a_class_is_asked_by_name_or_number_where_it_is_among_the_best(network: ExportedNetwork, home: Path) -> None:
    photograph = home / "photos" / "0.png"
    best = network.explain(photograph, top=2)
    first, second = best.classes[0].tolist()
    named = network.explain(photograph, classes=[NAMES[second], first])
    assert named.classes.tolist() == [[second, first]]
    np.testing.assert_array_equal(named.weights[0], best.weights[0, ::-1])
    other = next(index for index in range(6) if index not in (first, second))
    with pytest.raises(L2cafError, match="is not among the best 2 classes here"):
        network.explain(photograph, classes=other)


def test_a_map_that_did_not_converge_is_known_as_such(network: ExportedNetwork) -> None:
    weights = np.random.default_rng(0).random((5, 1, 8, 8)).astype(np.float32)
    weights[2], weights[3] = 0, 1
    output = np.ones((5, 6), np.float32)
    output[4, 0] = np.nan
    residual = np.array([CONVERGED / 2, CONVERGED * 2, 0, 0, 0], np.float32)
    answer = Answer(network.card, "output", output, weights, residual=residual)
    assert [str(one) for (one,) in answer.outcomes] == ["exact", "step_limit", "unmoved", "uniform", "non_finite"]
    assert answer.maps[2:].any() == np.False_
    assert answer.maps[:2].max() == 1
    assert answer.predictions()[4] is None
    unknown = Answer(network.card, "output", output, weights, residual=np.full(5, np.nan, np.float32))
    assert str(unknown.outcomes[0][0]) == "step_limit"


ASKED = {
    "about": ({"about": "feeling"}, "has maps of the output and the class and the prediction, and none of the feeling"),
    "both": ({"about": "output", "top": 1}, "A class is asked about, and the map of the output too"),
    "top": ({"top": 3}, "has maps of the best 2: export the network again with more of them"),
    "no top": ({"top": 0}, "The best 0 classes are asked for: give 1 or more"),
    "name": ({"classes": "wombat"}, "small has no class 'wombat'"),
    "number": ({"classes": 6}, "small has no class 6"),
    "no number": ({"classes": True}, "names no class"),
}


@pytest.mark.parametrize(("given", "said"), ASKED.values(), ids=ASKED)
def test_what_the_file_cannot_answer_is_told(given: dict, said: str, network: ExportedNetwork, home: Path) -> None:
    with pytest.raises(InputError, match=said):
        network.explain(home / "photos" / "0.png", **given)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--method", "gradcam"], "--method: An exported network has the maps of l2caf, l2caf-prediction, l2caf-class"),
        (["--method", "l2caf-published"], "--method: An exported network has the maps of"),
        (["--filter", "l1"], "--filter: An exported network has unit filters that were solved exactly"),
        (["--solver", "riemannian"], "--solver: An exported network has unit filters"),
        (["--published"], "--published: An exported network has unit filters"),
        (["--region", "0,0,4,4"], "--region: An exported network gives no image-like output"),
        (["--top", "3"], "--top: The best 3 classes are asked for, and 'small.onnx' has maps of the best 2"),
        (["--class", "wombat"], "--class: small has no class 'wombat'"),
        (["--layer", "layers.0"], "--layer: 'small.onnx' has maps of layer layers alone"),
        (["--weights", "x.pth"], "--weights: The weights of an exported network was settled"),
        (["--output", "1"], "--output: The output of an exported network was settled"),
        (["--device", "cuda"], "--device: The device of an exported network was settled"),
        (["--view", "whole"], "--view: 'small.onnx' takes inputs of one size"),
        (["--embedding"], "--embedding: The embedding of an exported network was settled"),
    ],
)
def test_options_that_are_settled_in_the_file_get_a_sentence(
    words: list[str], said: str, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(
        [
            "explain",
            str(home / "photos" / "0.png"),
            "--network",
            str(home / "small.onnx"),
            "--out",
            str(tmp_path),
            *words,
        ]
    )
    told = capsys.readouterr().err
    assert code == 2, told
    assert said in told
    assert list(tmp_path.glob("*.png")) == []


def test_other_commands_say_that_they_need_the_network_itself(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(home / "small.onnx")
    assert main(["compare", str(home / "photos" / "0.png"), "--network", file, "--out", str(tmp_path)]) == 2
    assert "is an exported network" in capsys.readouterr().err
    assert main(["export", file, "--out", str(tmp_path / "again.onnx")]) == 2
    assert "is exported already: give a network" in capsys.readouterr().err


def rewritten(home: Path, path: Path, **changed: object) -> Path:
    """The file with another card; None for none."""
    stored = onnx.load(home / "small.onnx")
    known = {one.key: one.value for one in stored.metadata_props}
    card = {**json.loads(known["l2caf"]), **changed}
    helper.set_model_props(stored, {"l2caf": json.dumps(card)} if changed else {})
    onnx.save(stored, path)
    return path


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, "was not exported by l2caf, so it gives no maps"),
        ({"format": 2}, "has format 2, and this version of l2caf reads 1"),
        ({"grid": [10**9, 10**9]}, "What the file says of itself cannot be read"),
        ({"grid": "7"}, "What the file says of itself cannot be read"),
        ({"maps": ["os.system"]}, "What the file says of itself cannot be read"),
        ({"unknown": 1}, "What the file says of itself cannot be read"),
        ({"input_size": [64, 64], "preprocessing": None}, "and says of itself that it takes images"),
    ],
)
def test_files_that_say_something_else_of_themselves_are_refused(
    changed: dict[str, object], said: str, home: Path, tmp_path: Path
) -> None:
    with pytest.raises(L2cafError, match=said):
        load(rewritten(home, tmp_path / "other.onnx", **changed))


def test_files_that_are_none_are_refused(tmp_path: Path, network: ExportedNetwork) -> None:
    (tmp_path / "rubbish.onnx").write_bytes(b"rubbish" * 100)
    with pytest.raises(L2cafError, match="cannot be run by ONNX Runtime"):
        load(tmp_path / "rubbish.onnx")
    with pytest.raises(L2cafError, match="cannot be read"):
        load(tmp_path / "nothing.onnx")
    with pytest.raises(L2cafError, match="threads is 0: give 1 or more"):
        load(network.path, threads=0)


def test_inputs_that_are_none_are_refused(network: ExportedNetwork, home: Path, tmp_path: Path) -> None:
    with pytest.raises(L2cafError, match=r"\(2, 3, 8, 8\), and the file takes \(B, 3, 32, 32\)"):
        network.run(np.zeros((2, 3, 8, 8)))
    with pytest.raises(L2cafError, match="no batch of arrays of one size"):
        network.run([np.zeros((3, 8, 8)), np.zeros((3, 9, 8))])
    with pytest.raises(L2cafError, match="There are no photographs"):
        network.explain([])
    own = load(rewritten(home, tmp_path / "own.onnx", preprocessing=None))
    assert own.run(np.zeros((1, 3, 32, 32), np.float32)).maps.shape == (1, 1, 32, 32)
    with pytest.raises(L2cafError, match="by a function of its own, which no file can hold"):
        own.explain(home / "photos" / "0.png")


def test_the_card_reads_what_it_wrote() -> None:
    card = Card("net", "layer4", (7, 7), (224, 224), Preprocessing(), ("a", "b"), maps=("output", "class"), top=2)
    assert Card.from_json(card.as_json()) == card
    assert set(card.outputs) == {"output", "output_map", "output_residual", "class_maps", "classes"}
