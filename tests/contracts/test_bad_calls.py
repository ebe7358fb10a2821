"""Bad calls of the public surface: each gets one sentence that names the fault and the remedy, and no raw traceback."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import l2caf
import networks_for_tests as nets
from l2caf.errors import L2cafError
from l2caf.filters import Filter
from l2caf.methods.table import METHODS
from l2caf.networks.model import Model
from l2caf.objectives.objective import Losses
from l2caf.preprocessing import Preprocessing
from l2caf.retrieval.embed import embed
from l2caf.runs.spec import ModelSpec, RunSpec
from l2caf.volumes import Volume, VolumePreprocessing
from networks_for_tests import pixels, seeded

NETWORK = seeded(nets.pooled)
CURVED = seeded(nets.curved)
PICTURES = pixels()
PHOTOGRAPH = Image.new("RGB", (64, 48), (90, 90, 90))
HEATMAP = l2caf.explain(NETWORK, PICTURES)
TWO_MAPS = l2caf.explain(NETWORK, PICTURES, objective=l2caf.ClassSpecific(top=2))
VOLUME = l2caf.Heatmap(torch.rand(1, 4, 4, 4), (8, 8, 8), "layer", "method")


def asked(**given: Any) -> Any:
    return l2caf.explain(NETWORK, PICTURES, **given)


def descended(objective: Any) -> Any:
    return l2caf.explain(CURVED, PICTURES, objective=objective)


class Gives(nn.Module):
    """A network that returns what it is told to."""

    def __init__(self, gives: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.inner = seeded(nets.pooled)
        self.gives = gives

    def forward(self, pictures: torch.Tensor) -> Any:
        return self.gives(self.inner(pictures))


class Asks(l2caf.Objective):
    """An objective that returns what it is told to."""

    def __init__(self, gives: Callable[[torch.Tensor], Any]) -> None:
        self.gives = gives

    def losses(self, output: torch.Tensor) -> Losses:
        return self.gives(output)  # type: ignore[no-any-return]


class Weighs(Filter):
    """A filter whose weights are what it is told to give."""

    def __init__(self, weighs: Callable[[torch.Tensor], Any]) -> None:
        self.weighs = weighs

    def weights(self, parameters: torch.Tensor, grid: tuple[int, ...]) -> Any:
        return self.weighs(parameters)

    def start(self, batch: int, grid: tuple[int, ...], generator: Any = None) -> torch.Tensor:
        return torch.ones(batch, int(np.prod(grid)))


class Formula(l2caf.Method):
    """A method that returns what it is told to."""

    def __init__(self, gives: Any) -> None:
        self.gives = gives

    def formula(self, head: l2caf.Head) -> Any:
        return self.gives


LARGE = {"which": 9}
NORMED = nn.Sequential(nn.Conv2d(3, 8, 4, 4), nn.BatchNorm2d(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))

EXPLAIN: dict[str, Callable[[], Any]] = {
    "a network by name": lambda: l2caf.explain("resnet50", PICTURES),  # type: ignore[call-overload]
    "a function as network": lambda: l2caf.explain(lambda x: x, PICTURES),  # type: ignore[call-overload]
    "a class as network": lambda: l2caf.explain(nn.Sequential, PICTURES),  # type: ignore[call-overload]
    "a model as network": lambda: l2caf.explain(Model("m", NETWORK, Preprocessing()), PICTURES),  # type: ignore[call-overload]
    "a network without a map": lambda: l2caf.explain(nn.Sequential(nn.Flatten(), nn.Linear(3072, 5)), PICTURES),
    "inputs as an array": lambda: l2caf.explain(NETWORK, np.zeros((2, 3, 32, 32))),  # type: ignore[call-overload]
    "inputs as a path": lambda: l2caf.explain(NETWORK, "cat.png"),
    "inputs as a photograph": lambda: l2caf.explain(NETWORK, PHOTOGRAPH),  # type: ignore[call-overload]
    "no inputs": lambda: l2caf.explain(NETWORK, None),  # type: ignore[call-overload]
    "an empty batch": lambda: l2caf.explain(NETWORK, PICTURES[:0]),
    "a picture without a batch": lambda: l2caf.explain(NETWORK, PICTURES[0]),
    "a picture without a batch, for a batch norm": lambda: l2caf.explain(NORMED, PICTURES[0]),
    "layers for a picture without a batch": lambda: l2caf.usable_layers(NORMED, PICTURES[0]),
    "bytes as inputs": lambda: l2caf.explain(NETWORK, (PICTURES * 255).byte()),
    "inputs of another type": lambda: l2caf.explain(NETWORK, PICTURES.double()),
    "inputs with other channels": lambda: l2caf.explain(NETWORK, pixels(channels=5)),
    "a list of pictures": lambda: l2caf.explain(NETWORK, list(PICTURES)),
    "named inputs that it has not": lambda: l2caf.explain(NETWORK, {"pixel_values": PICTURES}),
    "an input that is not there": lambda: asked(of="image"),
    "an input by a number too large": lambda: asked(of=3),
    "a layer that is not there": lambda: asked(layer="layer9"),
    "a layer by a number": lambda: asked(layer=5),
    "no layers": lambda: asked(layer=[]),
    "layers of which one is a number": lambda: asked(layer=["0", 1]),
    "layers of which one is not there": lambda: asked(layer=["0", "backbone"]),
    "a layer of another network": lambda: asked(layer=CURVED[0]),
    "a class as layer": lambda: asked(layer=nn.Conv2d),
    "a layer without positions": lambda: asked(layer="4"),
    "a call that was not": lambda: asked(layer="0", call=4),
    "a call by a word": lambda: asked(layer="0", call="last"),
    "a layout by a word": lambda: asked(layer="0", layout="tokens"),
    "a layout without a layer": lambda: asked(layout=l2caf.Layout("channels_first", grid=(8, 8))),
    "a layout that does not fit": lambda: asked(layer="0", layout=l2caf.Layout("tokens", grid=(9, 9))),
    "a filter by a word": lambda: asked(filter="l1"),
    "a filter by a misspelt word": lambda: asked(filter="gausian"),
    "a class as filter": lambda: asked(filter=l2caf.UnitL1),
    "a number as filter": lambda: asked(filter=2),
    "a solver by a word": lambda: asked(solver="exact"),
    "a class as solver": lambda: asked(solver=l2caf.Riemannian),
    "a filter as solver": lambda: asked(solver=l2caf.UnitL2()),
    "exact where nothing is": lambda: l2caf.explain(CURVED, PICTURES, solver=l2caf.Exact()),
    "exact for another filter": lambda: asked(solver=l2caf.Exact(), filter=l2caf.Softmax()),
    "a method by a misspelt word": lambda: asked(method="gradcm"),
    "a class as method": lambda: asked(method=l2caf.GradCAM),
    "an objective as method": lambda: asked(method=l2caf.ClassSpecific(1)),
    "a method and a filter": lambda: asked(method="cam", filter=l2caf.UnitL1()),
    "a method and an objective": lambda: asked(method="l2caf", objective=l2caf.Prediction()),
    "no time": lambda: asked(timeout=0),
    "a time in words": lambda: asked(timeout="2 s"),
    "CAM where the head is curved": lambda: l2caf.CAM()(CURVED, PICTURES),
    "an output that is a tuple": lambda: l2caf.explain(Gives(lambda out: (out, out)), PICTURES),
    "an output that is a dict": lambda: l2caf.explain(Gives(lambda out: {"logits": out}), PICTURES),
    "an output that is nothing": lambda: l2caf.explain(Gives(lambda out: None), PICTURES),
    "an output by a key that is not there": lambda: asked(output="logits"),
    "an output by an index that is not there": lambda: l2caf.explain(Gives(lambda out: [out]), PICTURES, output=3),
    "an output by a list": lambda: asked(output=[0]),
    "an output by a function that fails": lambda: asked(output=lambda out: out.logits),
    "an output of whole numbers": lambda: l2caf.explain(Gives(lambda out: out.argmax(dim=1)), PICTURES),
    "one number for the batch": lambda: l2caf.explain(Gives(lambda out: out.sum()), PICTURES),
}
OBJECTIVES: dict[str, Callable[[], Any]] = {
    "a class as objective": lambda: asked(objective=l2caf.ClassSpecific),
    "an objective by a word": lambda: asked(objective="class"),
    "a class index as objective": lambda: asked(objective=281),
    "a class that is not there": lambda: asked(objective=l2caf.ClassSpecific(1000)),
    "a class below zero": lambda: asked(objective=l2caf.ClassSpecific(-1)),
    "a class by name": lambda: asked(objective=l2caf.ClassSpecific("cat")),  # type: ignore[arg-type]
    "half a class": lambda: asked(objective=l2caf.ClassSpecific(1.5)),  # type: ignore[arg-type]
    "no classes": lambda: asked(objective=l2caf.ClassSpecific(classes=[])),
    "a mask as classes": lambda: asked(objective=l2caf.ClassSpecific(classes=[True, False])),
    "classes as many as inputs": lambda: asked(objective=l2caf.ClassSpecific([1, 2])),
    "too few labels": lambda: asked(objective=l2caf.ClassSpecific(labels=[1])),
    "one label": lambda: asked(objective=l2caf.ClassSpecific(labels=3)),  # type: ignore[arg-type]
    "classes and top": lambda: l2caf.ClassSpecific(3, top=2),
    "the best no class": lambda: asked(objective=l2caf.ClassSpecific(top=0)),
    "the best of too many": lambda: asked(objective=l2caf.ClassSpecific(top=99)),
    "the best in words": lambda: asked(objective=l2caf.ClassSpecific(top="all")),  # type: ignore[arg-type]
    "classes of a map": lambda: l2caf.explain(
        Gives(lambda out: out[:, :, None, None].expand(-1, -1, 2, 2)), PICTURES, objective=l2caf.ClassSpecific(1)
    ),
    "no temperature": lambda: l2caf.Prediction(temperature=0),
    "a temperature in words": lambda: l2caf.Prediction(temperature="warm"),  # type: ignore[arg-type]
    "a kind of prediction": lambda: l2caf.Prediction(kind="softmx"),  # type: ignore[arg-type]
    "similar to too short a vector": lambda: asked(objective=l2caf.Similarity(torch.zeros(3))),
    "similar to a word": lambda: asked(objective=l2caf.Similarity("cat")),  # type: ignore[arg-type]
    "an endpoint that is not there": lambda: asked(objective=l2caf.ClassOblivious(at="layer9")),
    "a function that gives one number": lambda: descended(lambda out: out.sum()),
    "a function that gives no tensor": lambda: descended(lambda out: 3.0),
    "a function that gives a row": lambda: descended(lambda out: out),
    "an objective that gives nothing": lambda: asked(objective=Asks(lambda out: None)),
    "an objective that gives a loss": lambda: asked(objective=Asks(lambda out: l2caf.LeastSquares(out))),
    "an objective that gives no losses": lambda: asked(objective=Asks(lambda out: l2caf.Losses(()))),
    "two losses for one map": lambda: asked(
        objective=Asks(lambda out: l2caf.Losses((l2caf.LeastSquares(out), l2caf.LeastSquares(out))))
    ),
    "a target of another shape": lambda: asked(
        objective=Asks(lambda out: l2caf.Losses((l2caf.LeastSquares(torch.zeros(3)),)))
    ),
    "a direction of another shape": lambda: asked(
        objective=Asks(lambda out: l2caf.Losses((l2caf.Linear(torch.zeros(3)),)))
    ),
}
PARTS: dict[str, Callable[[], Any]] = {
    "a descent of no steps": lambda: l2caf.GradientDescent(steps=0),
    "a descent of half a step": lambda: l2caf.GradientDescent(steps=0.5),  # type: ignore[arg-type]
    "a search without evaluations": lambda: l2caf.Riemannian(evaluations=0),
    "a search of so many words": lambda: l2caf.Riemannian(evaluations="many"),  # type: ignore[arg-type]
    "a Gaussian of no width": lambda: l2caf.Gaussian(sigma=0),
    "a Gaussian in words": lambda: l2caf.Gaussian(sigma="wide"),  # type: ignore[arg-type]
    "a filter that gives no weights": lambda: asked(filter=Weighs(lambda parameters: None)),
    "a filter of other positions": lambda: asked(filter=Weighs(lambda parameters: parameters[:, :3])),
    "a method that gives no maps": lambda: Formula(None)(NETWORK, PICTURES),
    "a method that gives maps of another batch": lambda: Formula(l2caf.Maps(torch.rand(1, 8, 8)))(NETWORK, PICTURES),
    "a method that gives one axis": lambda: Formula(l2caf.Maps(torch.rand(2, 64)))(NETWORK, PICTURES),
    "a layout of no kind": lambda: l2caf.Layout("token", grid=(4, 4)),  # type: ignore[arg-type]
    "a method that is registered twice": lambda: METHODS.register("cam", l2caf.CAM),
    "a network that is not there": lambda: l2caf.load("resnet51"),
    "a network by a number": lambda: l2caf.load(50),  # type: ignore[arg-type]
    "a network of no module": lambda: l2caf.load("nowhere.nets:build"),
    "a network file that is not there": lambda: l2caf.load("nowhere.py:build"),
    "a checkpoint that is not there": lambda: l2caf.load("nowhere.safetensors"),
    "weights that are not there": lambda: l2caf.load(weights="nowhere.pth"),
    "a device that is not there": lambda: l2caf.load(pretrained=False, device="gpu"),
    "a layout of data that is not there": lambda: l2caf.read("imagnet", "."),
    "data that is not there": lambda: l2caf.read("folder", "nowhere"),
    "files in place of samples": lambda: embed(RunSpec("embedding", ModelSpec("x")), ["q.jpg"]),  # type: ignore[list-item]
    "layers of no network": lambda: l2caf.usable_layers("resnet50", PICTURES),  # type: ignore[arg-type]
    "a recording of no inputs": lambda: l2caf.record(NETWORK, "cat.png"),
}
DRAWINGS: dict[str, Callable[[Path], Any]] = {
    "a name without an ending": lambda folder: HEATMAP[0].save(folder / "x", PHOTOGRAPH),
    "an ending of no format": lambda folder: HEATMAP[0].save(folder / "x.docx", PHOTOGRAPH),
    "a number as file": lambda folder: HEATMAP.save(5),  # type: ignore[arg-type]
    "a folder as file": lambda folder: HEATMAP[0].save(folder, PHOTOGRAPH),
    "one photograph for two samples": lambda folder: HEATMAP.save(folder / "x.png", PHOTOGRAPH),
    "three photographs for two samples": lambda folder: HEATMAP.save(folder / "x.png", [PHOTOGRAPH] * 3),
    "a photograph that is not there": lambda folder: HEATMAP[0].save(folder / "x.png", str(folder / "no.jpg")),  # type: ignore[arg-type]
    "a number as photograph": lambda folder: HEATMAP[0].save(folder / "x.png", 5),  # type: ignore[arg-type]
    "the inputs as photograph": lambda folder: HEATMAP[0].save(folder / "x.png", PICTURES),  # type: ignore[arg-type]
    "a misspelt setting": lambda folder: HEATMAP[0].save(folder / "x.png", PHOTOGRAPH, contour=True),
    "a setting of another library": lambda folder: HEATMAP[0].save(folder / "x.png", PHOTOGRAPH, image_weight=0.5),
    "a sample that is not there": lambda folder: HEATMAP.overlay(PHOTOGRAPH, 2),
    "half a sample": lambda folder: HEATMAP.overlay(PHOTOGRAPH, 0.5),  # type: ignore[arg-type]
    "a map that is not there": lambda folder: HEATMAP.overlay(PHOTOGRAPH, **LARGE),
    "several maps in one overlay": lambda folder: TWO_MAPS.overlay(PHOTOGRAPH),
    "a map by its name": lambda folder: TWO_MAPS.overlay(PHOTOGRAPH, which="cat"),  # type: ignore[arg-type]
    "a volume as picture": lambda folder: VOLUME.overlay(PHOTOGRAPH),
    "a place on no photograph": lambda folder: HEATMAP.on_photograph(0),
    "an index too large": lambda folder: HEATMAP[2],
    "an index by a word": lambda folder: HEATMAP["a"],  # type: ignore[index]
    "two indices": lambda folder: HEATMAP[0, 1],  # type: ignore[index]
    "a threshold in words": lambda folder: HEATMAP.boxes("half"),
    "a threshold above one": lambda folder: HEATMAP.boxes(25),
    "boxes of a volume on a photograph": lambda folder: VOLUME.boxes(on="photograph"),
    "boxes of a volume on no scan": lambda folder: VOLUME.boxes(on="scan"),
    "boxes of a picture on a scan": lambda folder: HEATMAP.boxes(on="scan"),
    "a volume on no scan": lambda folder: VOLUME.save(folder / "map.nii.gz"),
    "a picture as NIfTI": lambda folder: HEATMAP[0].save(folder / "map.nii.gz"),
    "a scan that is not there": lambda folder: VOLUME.save(folder / "map.nii.gz", str(folder / "no.nii.gz")),
    "the preprocessing of photographs for a scan": lambda folder: VOLUME.save(
        folder / "map.png", Volume(np.zeros((9, 9, 9), np.float32)), preprocess=Preprocessing()
    ),
    "another preprocessing of a scan": lambda folder: VOLUME.save(
        folder / "map.png", Volume(np.zeros((9, 9, 9), np.float32)), preprocess=VolumePreprocessing()
    ),
    "a scan and no preprocessing": lambda folder: VOLUME.save(
        folder / "x.png", Volume(np.zeros((8, 8, 8), np.float32))
    ),
    "a volume on a scan that nobody knows": lambda folder: VOLUME.on_scan(),
}


def said_of(call: Callable[[], Any]) -> str:
    """What a call says that fails on purpose; anything else comes through."""
    with pytest.raises(L2cafError) as caught:
        call()
    return str(caught.value)


def check(sentence: str) -> None:
    assert "\n" not in sentence
    assert not re.match(r"[A-Za-z]+(Error|Warning|Exception)\b", sentence), "somebody else's error"
    assert sentence.endswith((".", "?"))
    assert re.search(r"[:;,] \S", sentence), "a fault without a remedy"
    assert len(sentence) < 420


@pytest.mark.parametrize("name", {**EXPLAIN, **OBJECTIVES, **PARTS})
def test_a_bad_call_gets_a_sentence(name: str) -> None:
    check(said_of({**EXPLAIN, **OBJECTIVES, **PARTS}[name]))


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_bad_drawing_gets_a_sentence_and_leaves_no_file(name: str, tmp_path: Path) -> None:
    check(said_of(lambda: DRAWINGS[name](tmp_path)))
    assert list(tmp_path.iterdir()) == []


def test_there_are_enough_of_them() -> None:
    assert len({**EXPLAIN, **OBJECTIVES, **PARTS, **DRAWINGS}) >= 120
