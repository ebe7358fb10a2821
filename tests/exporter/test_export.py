"""`export`: the file says what the library says, and what cannot be exported is told in a sentence."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from scipy.stats import spearmanr
from torch import nn

import l2caf
from exported_for_tests import NAMES, ChannelsLast, Small, pictures, small_model
from l2caf.clips import ClipInput
from l2caf.errors import ExtraError, L2cafError
from l2caf.exporter import trace
from l2caf.exporter.check import rank_correlation
from l2caf.networks.model import Model
from l2caf.preprocessing import Preprocessing


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photographs")
    for number, picture in enumerate(pictures(12)):
        picture.save(folder / f"{number:02}.png")
    return folder


@pytest.fixture(scope="module")
def made(photographs: Path, tmp_path_factory: pytest.TempPathFactory) -> l2caf.Exported:
    model = small_model()
    return l2caf.export(
        model, tmp_path_factory.mktemp("made") / "small.onnx", top=3, products=24, photographs=photographs
    )


def test_maps_are_those_of_the_library_on_other_photographs_and_any_batch(made: l2caf.Exported) -> None:
    network, model = made.load(), small_model()
    others = pictures(5, seed=7)
    for asked in (others, others[:1]):
        answers = {
            about: network.explain(asked, about=about, top=3 if about == "class" else None) for about in made.card.maps
        }
        objectives = {
            "output": l2caf.ClassOblivious(), "prediction": l2caf.Prediction(), "class": l2caf.ClassSpecific(top=3),
        }  # fmt: skip
        for about, objective in objectives.items():
            heatmap, answer = model.explain(asked, objective=objective), answers[about]
            grids = np.stack([heatmap.grids(index, signed=True) for index in range(len(asked))])
            np.testing.assert_allclose(answer.grids(signed=True), grids, atol=1e-4)
            np.testing.assert_allclose(answer.maps.reshape(heatmap.maps.shape), heatmap.numpy(), atol=1e-4)
            np.testing.assert_allclose(answer.signed.reshape(heatmap.signed.shape), heatmap.signed.numpy(), atol=1e-4)
            if heatmap.classes is not None:
                assert answer.classes is not None
                assert answer.classes.tolist() == heatmap.classes.tolist()
            outcomes = [[str(one) for one in heatmap.solution.outcomes(index)] for index in range(len(asked))]
            assert [[str(one) for one in row] for row in answer.outcomes] == outcomes
        with torch.no_grad():
            expected = model.network(model.batch([model.ready(one).input for one in asked]))
        np.testing.assert_allclose(answers["output"].output, expected.numpy(), atol=1e-5)


def test_the_file_says_what_it_is_and_how_near_it_is(made: l2caf.Exported) -> None:
    card = made.load().card
    assert (card.network, card.layer, card.grid, card.input_size, card.class_names) == (
        "small", "layers", (8, 8), (32, 32), NAMES,
    )  # fmt: skip
    assert card.preprocessing == Preprocessing((32, 32), (36, 36))
    assert card.identity == small_model().identity
    assert card.checked == made.check.as_dict()
    assert made.check.photographs == 12
    assert made.check.same_best == 1
    for found in made.check.maps.values():
        assert found.maps + found.not_converged in (12, 36)
        assert found.error < 1e-4
        assert found.least_correlation > 0.999
    stored = onnx.load(made.path)
    assert {one.name for one in stored.graph.output} == set(card.outputs)
    assert stored.ir_version <= 10
    assert [one.version for one in stored.opset_import] == [18]
    assert not any(one.metadata_props or one.doc_string for one in stored.graph.node)
    assert str(Path.cwd()) not in str(made.path.read_bytes())  # where it was made concerns nobody


def test_the_network_is_left_as_it_was(tmp_path: Path) -> None:
    network = Small().train()
    network.head.weight.requires_grad_(False)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    hooks = [len(one._forward_hooks) for one in network.modules()]
    l2caf.export(network, tmp_path / "model.onnx", inputs=torch.rand(4, 3, 32, 32), maps=["class"])
    assert network.training
    assert all(one.training for one in network.modules())
    assert [one.requires_grad for one in network.head.parameters()] == [False, True]
    assert [len(one._forward_hooks) for one in network.modules()] == hooks
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_channels_may_come_last(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = ChannelsLast().eval()
    inputs = torch.rand(6, 3, 32, 40)
    made = l2caf.export(network, tmp_path / "last.onnx", inputs=inputs, maps=["output", "class"], products=30, opset=20)
    assert made.card.grid == (8, 10)
    answer = made.load().run(inputs.numpy(), about="class")
    heatmap = l2caf.explain(network, inputs, objective=l2caf.ClassSpecific())
    np.testing.assert_allclose(answer.maps[:, 0], heatmap.numpy(), atol=1e-4)


def test_an_embedding_has_the_map_of_its_output(tmp_path: Path) -> None:
    model = small_model(12, embedding=True)
    made = l2caf.export(model, tmp_path / "embedding.onnx", products=24)
    assert made.card.maps == ("output",)
    assert made.check.same_best is None
    answer = made.load().explain(pictures(2))
    assert (answer.about, answer.predictions(), answer.output.shape) == ("output", [None, None], (2, 12))
    heatmap = model.explain(pictures(2))
    np.testing.assert_allclose(answer.maps[:, 0], heatmap.numpy(), atol=1e-4)
    with pytest.raises(L2cafError, match="small gives an embedding, so there is no map of the class: leave it out"):
        l2caf.export(model, tmp_path / "no.onnx", maps=["class"])
    with pytest.raises(L2cafError, match="whose numbers are no classes"):
        made.load().explain(pictures(1), top=1)


def test_int8_keeps_first_depthwise_and_head_float_and_tells_how_near_it_is(tmp_path: Path, photographs: Path) -> None:
    made = l2caf.export(
        small_model(), tmp_path / "int8.onnx", precision="int8", photographs=photographs, products=24, top=1
    )
    stored = onnx.load(made.path)
    kinds = [one.data_type for one in stored.graph.initializer if len(one.dims) == 4]
    assert sorted(kinds) == [onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT, onnx.TensorProto.INT8]
    head = next(one for one in stored.graph.node if one.op_type == "Gemm")  # the network's own comes first
    assert not any("quantized" in name for name in head.input[1:])
    assert made.card.precision == "int8"
    for found in made.check.maps.values():
        assert 1e-4 < found.error < 0.5
        assert 0.9 < found.least_correlation <= found.correlation < 1


class NotAffine(nn.Sequential):
    def __init__(self) -> None:
        mean = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        super().__init__(nn.Conv2d(3, 8, 4, stride=4), nn.ReLU(), mean, nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 5))


class Weighted(nn.Sequential):
    """Affine, and no mean."""

    def __init__(self) -> None:
        super().__init__(nn.Conv2d(3, 2, 4, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(128, 5))


class Wayward(Small):
    """What it does depends on the numbers."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return super().forward(images) if float(images.sum()) > -1e9 else images.flatten(1)[:, :6]


INPUTS = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("network", "settings", "said"),
    [
        (Small, {"path": "model.pb"}, "names no ONNX file: end it in .onnx"),
        (Small, {"maps": "class"}, "The maps are 'class': give a list of output, class, prediction"),
        (Small, {"maps": ["klass"]}, "give a list of output, class, prediction"),
        (Small, {"precision": "float16"}, "There is no precision 'float16': take float32 or int8"),
        (Small, {"opset": 9}, "opset is 9: give a whole number from 18 to 23"),
        (Small, {"products": 0}, "products is 0: give a whole number from 1 to 64"),
        (Small, {"top": 0}, "The best 0 classes are asked for: give 1 or more"),
        (Small, {"temperature": 0.0}, "The temperature is 0.0"),
        (Small, {"layer": "head"}, "layer 'head'"),
        (Small, {"inputs": None}, "give a batch of real inputs=, or an l2caf.Model"),
        (Small, {"inputs": torch.rand(4, 32)}, r"The inputs are \(4, 32\): give a tensor \(B, 3, height, width\)"),
        (Small, {"photographs": ["x.jpg"]}, "Photographs are given, and inputs too"),
        (lambda: 3, {}, "The network is a int: give a name, an l2caf.Model or a torch.nn.Module"),
        (lambda: Small().double(), {"inputs": INPUTS.double()}, "Small computes in torch.float64, and an"),
        (NotAffine, {}, "is no mean over the positions and a linear map"),
        (Weighted, {}, "is no mean over the positions and a linear map"),
        (lambda: Small(1), {"maps": ["prediction"]}, "Small has one score, so there is no map of the prediction"),
        (Wayward, {"maps": ["class"]}, "torch cannot export this network as a graph"),
    ],
)  # fmt: skip
def test_what_cannot_be_exported_is_told_and_leaves_no_file(
    network: Any, settings: dict[str, Any], said: str, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    given = {"path": "model.onnx", "inputs": INPUTS, **settings}
    path = tmp_path / given.pop("path")
    made = network()
    with pytest.raises(L2cafError, match=said):
        l2caf.export(made.eval() if isinstance(made, nn.Module) else made, path, **given)
    assert list(tmp_path.iterdir()) == []


def test_networks_for_clips_and_inputs_of_several_sizes_are_refused(tmp_path: Path, photographs: Path) -> None:
    model = small_model()
    clips = Model("film", model.network, model.preprocess, clip=ClipInput(8))
    with pytest.raises(L2cafError, match="film takes clips, and an exported file takes photographs"):
        l2caf.export(clips, tmp_path / "model.onnx")
    with pytest.raises(L2cafError, match=r"inputs of [23] different sizes, and an exported file takes one"):
        l2caf.export(model.viewed("whole"), tmp_path / "model.onnx")


def test_a_graph_that_disagrees_leaves_what_stood_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"before")
    honest = trace.traced

    def other(network: nn.Module, *given: Any, **settings: Any) -> onnx.ModelProto:
        return honest(changed(network), *given, **settings)

    def changed(network: nn.Module) -> nn.Module:
        torch.manual_seed(1)
        return Small().eval()

    monkeypatch.setattr(trace, "traced", other)
    with pytest.raises(L2cafError, match=r"gives another output than the network .* so that no file was written"):
        l2caf.export(Small().eval(), path, inputs=INPUTS, maps=["class"])
    assert path.read_bytes() == b"before"
    assert [one.name for one in tmp_path.iterdir()] == ["model.onnx"]


def test_a_map_that_never_converges_is_refused_and_may_be_left_out(tmp_path: Path, photographs: Path) -> None:
    """With 1 multiplication none is sure; the maps of classes need none."""
    with pytest.raises(L2cafError, match="finds no filter of the output on any of 12 photographs") as told:
        l2caf.export(small_model(), tmp_path / "model.onnx", photographs=photographs, products=1)
    assert told.value.field == "products"
    assert list(tmp_path.iterdir()) == []
    assert l2caf.export(
        small_model(), tmp_path / "model.onnx", photographs=photographs, products=1, maps=["class"]
    ).path.exists()


def test_packages_that_are_missing_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ExtraError, match="pip install onnx onnxruntime onnxscript"):
        l2caf.export("tf_efficientnet_lite0", tmp_path / "model.onnx")


def test_rank_correlation_is_that_of_scipy() -> None:
    ours, theirs = np.random.default_rng(0).random((2, 49), np.float32)
    assert rank_correlation(ours, theirs) == pytest.approx(spearmanr(ours, theirs).statistic, abs=1e-8)
