"""The question that was asked, at the doors: one logit, embeddings, labels that are no classes, what was assumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import made_datasets
import squares
from l2caf.cli.app import run as command_line
from l2caf.errors import InputError
from l2caf.images import open_image
from l2caf.networks.catalogue import load
from l2caf.networks.class_names import imagenet_class_names, predictions
from l2caf.networks.model import Model
from l2caf.preprocessing import Preprocessing
from l2caf.tasks.compare import compare
from l2caf.tasks.evaluate import EvaluationRequest, evaluate
from l2caf.tasks.network_choice import NetworkChoice
from l2caf.tasks.question import Question

NETS = """
import torch
from torch import nn
from l2caf.networks.model import Model
from l2caf.preprocessing import Preprocessing

class Colours(nn.Module):
    def __init__(self, outputs, width=2, softmax=False):
        super().__init__()
        self.map = nn.AvgPool2d(8)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.scores = nn.Linear(3, outputs)
        self.width, self.softmax = width, softmax
        torch.manual_seed(0)
        with torch.no_grad():
            self.scores.weight.copy_(torch.randn(outputs, 3) if outputs > 1 else torch.tensor([[4.0, -4.0, 0.0]]))
            self.scores.bias.zero_()
    def forward(self, images):
        found = self.scores(self.pool(self.map(images)).flatten(1))
        found = found.softmax(dim=1) if self.softmax else found
        return found if self.width == 2 else found[:, 0]

def prepare():
    return Preprocessing(input_size=(64, 64), resize_size=(64, 64), mean=(0, 0, 0), std=(1, 1, 1), fit="squash")

def logit():
    return Colours(1), prepare()

def number():
    return Colours(1, width=1), prepare()

def plain():
    return Colours(7)

def prepared():
    return Colours(7), prepare()

def ending_in_softmax():
    return Colours(7, softmax=True), prepare()

def embedding():
    return Model("places", Colours(5), prepare(), embedding=True)
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A red and a green square on black, the networks, and a gallery."""
    folder = tmp_path_factory.mktemp("asked")
    (folder / "nets.py").write_text(NETS)
    pixels = np.zeros((64, 64, 3), np.uint8)
    pixels[:16, :16, 0] = 255
    pixels[48:, 48:, 1] = 255
    Image.fromarray(pixels).save(folder / "photo.png")
    (folder / "gallery").mkdir()
    for number, colour in enumerate(((255, 0, 0), (0, 255, 0), (0, 0, 255))):
        Image.new("RGB", (64, 64), colour).save(folder / "gallery" / f"{number}.png")
    return folder


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any], str]:
    """Run a command: its exit code, its document, and what it said beside."""
    code = command_line([*arguments, "--json"])
    printed = capsys.readouterr()
    return code, json.loads(printed.out), printed.err


def net(made: Path, name: str) -> str:
    return f"{made / 'nets.py'}:{name}"


class TestOneLogit:
    @pytest.mark.parametrize("name", ["logit", "number"])
    @pytest.mark.parametrize("asked", [["--class", "0"], ["--top", "1"], ["--method", "gradcam"], ["--method", "cam"]])
    def test_on_the_command_line(
        self, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, asked: list[str]
    ) -> None:
        out = ["--out", str(tmp_path), "--npy", "--network", net(made, name)]
        code, found, _ = document(capsys, "explain", str(made / "photo.png"), *asked, *out)
        assert code == 0
        image = found["images"][0]
        assert image["predicted"]["probability"] is None  # a single number is weighed against nothing
        assert image["predicted"]["score"] == pytest.approx(0, abs=1e-6)  # as much for as against
        assert image["maps"][0]["class"]["index"] == 0
        assert image["maps"][0]["outcome"] in (None, "exact")
        heat = np.load(image["npy"])
        assert heat[:20, :20].sum() / heat.sum() > 0.95  # on the red square, which raises the logit

    def test_all_methods_side_by_side(self, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        arguments = ["--network", net(made, "number"), "--out", str(tmp_path)]
        code, found, _ = document(capsys, "compare", str(made / "photo.png"), *arguments)
        assert code == 0
        assert found["class"]["name"] == "class 0"
        assert found["class"]["score"] == pytest.approx(0, abs=1e-6)
        assert all(method["fits"] for method in found["methods"])

    def test_names_are_taken_where_there_is_one_for_each_output(self) -> None:
        (one,) = predictions(torch.tensor([[1.5]]), ["tumour"])
        assert one is not None
        assert (one.name, one.score) == ("tumour", 1.5)
        (other,) = predictions(torch.tensor([1.5]), ["healthy", "tumour"])  # of which it is, nobody says
        assert other is not None
        assert other.name == "class 0"
        (shifted,) = predictions(torch.tensor([[0.0, 1.0, 5.0]]), ["cat", "dog"])
        assert shifted is not None
        assert shifted.name == "class 2"


class TestEmbeddings:
    @pytest.mark.parametrize(
        ("asked", "option"),
        [
            (["--class", "3"], "--class"),
            (["--top", "2"], "--top"),
            (["--signed"], "--signed"),
            (["--published"], "--published"),
            (["--method", "cam"], "--method"),
            (["--method", "l2caf-class"], "--method"),
        ],
    )
    def test_no_question_about_a_class(
        self, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], asked: list[str], option: str
    ) -> None:
        out = ["--out", str(tmp_path), "--network", net(made, "embedding")]
        code, found, _ = document(capsys, "explain", str(made / "photo.png"), *asked, *out)
        assert code == 2
        assert found["error"].startswith(f"{option}: places gives an embedding, whose numbers are no classes")

    @pytest.mark.parametrize("command", ["compare", "animate"])
    def test_other_commands(self, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
        out = ["--class", "1", "--out", str(tmp_path), "--network", net(made, "embedding")]
        code, found, _ = document(capsys, command, str(made / "photo.png"), *out)
        assert code == 2
        assert found["error"].startswith("--class: places gives an embedding")

    @pytest.mark.parametrize("method", ["l2caf", "gradcam", "gradcam-abs", "softmax"])
    def test_what_is_asked_about_the_whole_output(
        self, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], method: str
    ) -> None:
        out = ["--method", method, "--out", str(tmp_path), "--network", net(made, "embedding")]
        code, found, said = document(capsys, "explain", str(made / "photo.png"), *out)
        assert code == 0
        assert found["images"][0]["predicted"] is None
        assert found["images"][0]["maps"][0]["class"] is None
        assert (found["assumed"], said) == ({}, "")

    def test_comparison_has_a_mode_of_its_own(self, made: Path) -> None:
        found = compare(load(net(made, "embedding")), open_image(made / "photo.png"))
        assert [answer.title for answer in found.answers] == [
            "L2-CAF, class-oblivious",
            "Grad-CAM",
            "Grad-CAM-abs",
            "L1 filter, class-oblivious",
            "softmax filter, class-oblivious",
            "Gaussian filter, class-oblivious",
        ]
        assert not any(answer.refusal for answer in found.answers)
        assert (found.prediction, found.about) == (None, None)
        with pytest.raises(InputError, match="no classes"):
            compare(load(net(made, "embedding")), open_image(made / "photo.png"), of_class=1)

    def test_a_network_of_ones_own_is_told(
        self, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        out = ["--embedding", "--out", str(tmp_path), "--network", net(made, "prepared")]
        code, found, said = document(capsys, "explain", str(made / "photo.png"), *out)
        assert (code, found["assumed"], said) == (0, {}, "")
        assert found["images"][0]["predicted"] is None

    @pytest.mark.parametrize(
        ("told", "network"), [("--classifier", "embedding"), ("--embedding", "efficientnet_lite0")]
    )
    def test_what_is_known_is_not_told_otherwise(
        self, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], told: str, network: str
    ) -> None:
        name = network if network == "efficientnet_lite0" else net(made, network)
        arguments = [told, "--out", str(tmp_path), "--network", name]
        code, found, _ = document(capsys, "explain", str(made / "photo.png"), *arguments)
        assert code == 2
        assert "is known to give" in found["error"]

    def test_the_sanity_of_an_embedding(self, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        arguments = ["--seeds", "1", "--stages", "2", "--out", str(tmp_path), "--network", net(made, "embedding")]
        code, found, _ = document(capsys, "sanity", str(made / "gallery"), *arguments)
        assert code == 0
        assert set(found["methods"]) == {"l2caf", "gradcam", "gradcam-abs"}
        assert set(found["refused"]) == {"l2caf-prediction", "l2caf-class", "cam"}
        assert "ClassOblivious" in found["refused"]["l2caf-prediction"]
        assert "an embedding has none" in found["refused"]["cam"]

    def test_published_without_a_classifier(self) -> None:
        from l2caf.networks.from_timm import _gives_embedding
        from l2caf.networks.imports import import_timm

        timm = import_timm()

        def known(name: str) -> bool:
            config = timm.get_pretrained_cfg(name)
            network = nn.Identity()
            network.num_classes, network.pretrained_cfg = config.num_classes, config.to_dict()
            return _gives_embedding(network)

        assert known("vit_small_patch14_dinov2.lvd142m")
        assert known("vit_base_patch16_clip_224.openai")
        assert not known("vit_base_patch16_clip_224.openai_ft_in1k")
        assert not known("vit_base_patch16_clip_224.laion2b_ft_in12k")
        assert not known("resnet50.a1_in1k")


@pytest.fixture(scope="module")
def boxes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return squares.folder(tmp_path_factory.mktemp("boxes"), count=9)


class TestLabels:
    def _asked(self, boxes: Path, out: Path, **more: Any) -> EvaluationRequest:
        network = NetworkChoice(f"{boxes / 'bright.py'}:build", device="cpu")
        return EvaluationRequest("manifest", boxes / "boxes.csv", out, **{"network": network, "batch": 4, **more})

    def test_labels_of_ones_own_are_no_classes(self, boxes: Path, tmp_path: Path) -> None:
        found = evaluate(self._asked(boxes, tmp_path)).as_dict()
        assert list(found["methods"]) == ["l2caf", "l2caf-prediction"]  # neither asks about a class
        assert found["classification"] == {}
        assert "loc_top1" not in found["methods"]["l2caf"]
        assert "nothing says that the labels of manifest are classes" in found["left_out"]

    def test_a_map_of_a_class_that_is_asked_for_is_refused(self, boxes: Path, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"Maps of a class \(Grad-CAM\) cannot be measured") as caught:
            evaluate(self._asked(boxes, tmp_path, methods=("l2caf", "gradcam")))
        assert caught.value.field == "classes"

    def test_labels_that_are_told_to_be_classes(self, boxes: Path, tmp_path: Path) -> None:
        found = evaluate(self._asked(boxes, tmp_path, classes="labels")).as_dict()
        assert found["class_maps_about"] == "labels"
        assert found["classification"]["top1"]["value"] == 100
        assert found["methods"]["gradcam"]["loc_top1"]["value"] == 100
        assert found["left_out"] is None

    def test_maps_of_what_is_predicted(self, boxes: Path, tmp_path: Path) -> None:
        found = evaluate(self._asked(boxes, tmp_path, classes="predicted", methods=("gradcam",))).as_dict()
        assert found["class_maps_about"] == "predicted"
        assert found["classification"] == {}
        assert found["methods"]["gradcam"]["gt_known"]["value"] == 100

    def test_the_three_of_ones_own_are_not_three_fishes(self, boxes: Path, tmp_path: Path) -> None:
        network = NetworkChoice(device="cpu")
        with pytest.raises(InputError, match="classes of tf_efficientnet_lite0"):
            evaluate(self._asked(boxes, tmp_path, network=network, methods=("gradcam",)))

    def test_an_embedding_is_asked_about_no_label(self, boxes: Path, tmp_path: Path) -> None:
        told = NetworkChoice(f"{boxes / 'bright.py'}:build", device="cpu", embedding=True)
        found = evaluate(self._asked(boxes, tmp_path / "a", network=told)).as_dict()
        assert list(found["methods"]) == ["l2caf", "gradcam", "gradcam-abs"]
        assert found["classification"] == {}
        assert "gives an embedding" in found["left_out"]
        assert found["methods"]["l2caf"]["gt_known"]["value"] == 100
        with pytest.raises(InputError, match="gives an embedding"):
            evaluate(self._asked(boxes, tmp_path / "b", network=told, methods=("cam",)))
        with pytest.raises(InputError, match="gives an embedding"):
            evaluate(self._asked(boxes, tmp_path / "c", network=told, classes="labels"))

    @pytest.mark.parametrize(("names", "known"), [("imagenet", True), ("none", False), ("others", False)])
    def test_imagenet_is_known_by_its_names(self, tmp_path: Path, names: str, known: bool) -> None:
        (tmp_path / "nets.py").write_text(
            "from torch import nn\n"
            "from l2caf.networks.class_names import imagenet_class_names\n"
            "from l2caf.networks.model import Model\n"
            "from l2caf.preprocessing import Preprocessing\n"
            "NAMES = {'imagenet': imagenet_class_names(), 'none': (), 'others': [f'thing {n}' for n in range(1000)]}\n"
            "def build():\n"
            "    layers = [nn.Conv2d(3, 4, 8, stride=8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]\n"
            f"    names = NAMES[{names!r}]\n"
            "    return Model('thousand', nn.Sequential(*layers, nn.Linear(4, 1000)), Preprocessing(), names)\n"
        )
        root = made_datasets.wsol(tmp_path / "data")
        network = NetworkChoice(f"{tmp_path / 'nets.py'}:build", device="cpu")
        found = evaluate(EvaluationRequest("imagenet", root, tmp_path / "out", network)).as_dict()
        assert ("top1" in found["classification"]) is known
        assert ("gradcam" in found["methods"]) is known
        assert len(imagenet_class_names()) == 1000


class TestAssumed:
    @pytest.mark.parametrize("command", ["explain", "compare", "animate"])
    def test_what_a_builder_did_not_say_is_said(
        self, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
    ) -> None:
        out = ["--out", str(tmp_path), "--network", net(made, "plain")]
        code, found, said = document(capsys, command, str(made / "photo.png"), *out)
        assert code == 0
        assert set(found["assumed"]) == {"preprocessing", "output"}
        assert "224 × 224" in found["assumed"]["preprocessing"]
        assert all(f"assumed: {words}" in said.replace("\n", " ") for words in found["assumed"].values())
        code, found, said = document(
            capsys, command, str(made / "photo.png"), "--out", str(tmp_path), "--network", net(made, "prepared")
        )
        assert set(found["assumed"]) == {"output"}
        assert "224" not in said

    def test_in_the_record_of_a_run(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        boxes = squares.folder(tmp_path / "boxes", count=3)
        (boxes / "alone.py").write_text(squares.BUILDER + "\ndef alone():\n    return build()[0]\n")
        arguments = ["evaluate", "manifest", str(boxes / "boxes.csv"), "--network", f"{boxes / 'alone.py'}:alone"]
        assert command_line([*arguments, "--out", str(tmp_path / "out")]) == 0
        said = capsys.readouterr().err
        assert "assumed: photographs are resized to 256" in said
        assert "left out: maps of a class" in said
        results = json.loads((tmp_path / "out" / "results.json").read_text())
        assert set(results["assumed"]) == {"preprocessing", "output"}

    def test_nothing_is_assumed_of_a_network_that_says_all(self) -> None:
        assert load("efficientnet_lite0", pretrained=False).assumed == {}
        assert load("torchvision:resnet18", pretrained=False).assumed == {}
        assert set(load("torchvision:fcn_resnet50", pretrained=False).assumed) == {"preprocessing"}


class TestMatch:
    @pytest.mark.parametrize(
        ("name", "told", "width"),
        [
            ("prepared", [], 3),
            ("ending_in_softmax", [], 3),
            ("prepared", ["--classifier"], 3),
            ("prepared", ["--embedding"], 7),
            ("embedding", [], 5),
        ],
    )
    def test_what_is_compared_is_said(
        self,
        made: Path,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        name: str,
        told: list[str],
        width: int,
    ) -> None:
        arguments = ["--out", str(tmp_path), "--network", net(made, name), *told]
        code, found, _ = document(capsys, "match", str(made / "photo.png"), str(made / "gallery"), *arguments)
        assert code == 0
        assert found["compares"] == (
            "pooled features, the 3 numbers that its last layer, scores, is given" if width == 3 else "its embedding"
        )
        assert ("pooled features" in found["network"]) is (width == 3)
        index = np.load(next(tmp_path.rglob("*.npz")))
        assert any(array.ndim == 2 and array.shape[1] == width for array in index.values())

    def test_on_the_terminal(self, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        arguments = ["match", str(made / "photo.png"), str(made / "gallery"), "--network", net(made, "prepared")]
        assert command_line([*arguments, "--out", str(tmp_path)]) == 0
        assert "compared, by cosine: pooled features, the 3 numbers" in capsys.readouterr().out

    def test_a_protocol_of_embeddings_asks_what_the_output_is(self, tmp_path: Path) -> None:
        boxes = squares.folder(tmp_path / "boxes", count=9)
        choice = NetworkChoice(f"{boxes / 'bright.py'}:build", device="cpu")
        request = EvaluationRequest("manifest", boxes / "boxes.csv", tmp_path / "out", choice, "retrieval")
        with pytest.raises(InputError, match="Nothing says whether") as caught:
            evaluate(request)
        assert caught.value.field == "embedding"
        told = NetworkChoice(choice.network, device="cpu", embedding=True)
        found = evaluate(EvaluationRequest("manifest", boxes / "boxes.csv", tmp_path / "a", told, "retrieval"))
        assert found.as_dict()["compares"] == "its embedding"
        told = NetworkChoice(choice.network, device="cpu", embedding=False)
        found = evaluate(EvaluationRequest("manifest", boxes / "boxes.csv", tmp_path / "b", told, "retrieval"))
        assert found.as_dict()["compares"].startswith("pooled features, the 3 numbers")

    def test_a_layer_that_is_not_the_last_stays(self) -> None:
        """The widest mistake: an earlier layer has as many outputs as there are classes."""

        class Two(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.scores = nn.Linear(3, 6)
                self.hidden = nn.Linear(6, 6)  # after it in the list of modules, before it in the run
                self.first = nn.Linear(3, 3)

            def forward(self, images: torch.Tensor) -> torch.Tensor:
                pooled = self.first(images.mean(dim=(2, 3)))
                found: torch.Tensor = self.scores(pooled) + 0 * self.hidden(self.scores.bias)
                return found

        network = Two().eval()
        prepare = Preprocessing(input_size=(8, 8), resize_size=(8, 8))
        made = Model("two", network, prepare, tuple("abcdef")).as_embedding()
        assert isinstance(made.network.scores, nn.Identity)
        assert isinstance(made.network.hidden, nn.Linear)


def test_a_question_without_a_network_is_as_before() -> None:
    assert Question("gradcam").as_method() is not None
