"""Tables of the paper measured again: ours beside its own, what was not met, nothing done twice, one page of all."""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch
from torch import nn

import made_datasets
from l2caf import datasets
from l2caf.cli.app import run
from l2caf.datasets.search import find
from l2caf.errors import Cancelled, CatalogueError, InputError, LayerError
from l2caf.evaluation.published import published
from l2caf.evaluation.reproduction import Number, Reproduced, Row, ordered, words_of
from l2caf.networks import embedding, localiser
from l2caf.networks.class_names import imagenet_class_names
from l2caf.networks.embedded import Embedded
from l2caf.networks.embedding import Backbone
from l2caf.networks.from_timm import Timm
from l2caf.networks.from_torchvision import Torchvision
from l2caf.networks.model import Model
from l2caf.preprocessing import Preprocessing
from l2caf.tasks.evaluate import Evaluation, EvaluationRequest
from l2caf.tasks.reproduce import ReproduceRequest, reproduce
from l2caf.tasks.reproduce_steps import Steps
from l2caf.tasks.reproduce_tables import TABLES
from l2caf.training.retrieval import job as retrieval_job
from l2caf.training.wsol import job as wsol_job

SMALL = Preprocessing((32, 32), (36, 36))


def trunk() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = {
            "one": nn.Sequential(nn.Conv2d(3, 8, 5, stride=2, padding=2), nn.BatchNorm2d(8), nn.ReLU()),
            "two": nn.Sequential(nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU()),
        }
        return nn.Sequential(OrderedDict(layers)).eval()


def backbone(name: str, *, stride: int = 16, pretrained: bool = True) -> Backbone:
    if name != "tf_efficientnet_lite0":
        raise CatalogueError(f"The pretrained weights of {name} are nowhere: give others.")
    return Backbone(name, trunk(), 16, False, SMALL)


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded network alone can be had, and is small."""

    def load(self: object, name: str = "tf_efficientnet_lite0", **given: Any) -> Model:
        if name != "tf_efficientnet_lite0" and given.get("pretrained", True):
            raise CatalogueError(f"The pretrained weights of {name} are nowhere: give others.")
        with torch.random.fork_rng():
            torch.manual_seed(0)
            head = {"mean": nn.AdaptiveAvgPool2d(1), "flat": nn.Flatten(), "scores": nn.Linear(16, 1000)}
            network = nn.Sequential(OrderedDict([("trunk", trunk()), *head.items()])).eval()
        return Model(name, network, SMALL, imagenet_class_names(), weights="trained")

    for source in (Embedded, Timm, Torchvision):
        monkeypatch.setattr(source, "load", load)
    for module in (embedding, localiser, retrieval_job):
        monkeypatch.setattr(module, "load_backbone", backbone)
    for module in (localiser, wsol_job):
        monkeypatch.setattr(module, "localiser_backbone", backbone)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    made_datasets.wsol(root / "imagenet")
    made_datasets.birds(root / "birds" / "CUB_200_2011")
    return root


class Watch:
    """Counts what is done, by its stage; raises once when one of them has come so far."""

    def __init__(self, stop: str = "", at: int = 0) -> None:
        self.stop, self.at = stop, at
        self.first: dict[str, int] = {}
        self.done: dict[str, int] = {}

    def __call__(
        self, stage: str, done: int, total: int | None, numbers: Mapping[str, float] = MappingProxyType({})
    ) -> None:
        self.first.setdefault(stage, done - 1 if stage.endswith("training") else done)  # a first iteration is told as 1
        self.done[stage] = max(done, self.done.get(stage, 0))
        if self.stop and self.stop in stage and done >= self.at:
            self.stop = ""
            raise Cancelled("enough")

    def of(self, words: str) -> dict[str, int]:
        """What was really done of these stages: a run that goes on begins with what it has."""
        new = {stage: count - self.first[stage] for stage, count in self.done.items() if stage.endswith(words)}
        return {stage: count for stage, count in new.items() if count}


def paper(table: str, method: str, backbone: str, **more: str) -> dict[str, Any]:
    """The one row of the paper."""
    (row,) = (
        row
        for row in published()[table]["rows"]
        if (row["method"], row["backbone"]) == (method, backbone) and more.items() <= row.items()
    )
    return dict(row)


def one(found: Reproduced, method: str, network: str, *, trained: str = "", margins: bool = False) -> Row:
    rows = found.margins if margins else found.rows
    (row,) = (row for row in rows if (row.method, row.network, row.trained) == (method, network, trained))
    return row


def said(found: Reproduced, about: str) -> str:
    return " ".join(one.words for one in found.unmet if one.about == about)


LITE = "tf_efficientnet_lite0"
PUBLISHED = "L2-CAF, class-specific as published"


def test_table_1_has_our_numbers_beside_the_papers(data: Path, tmp_path: Path) -> None:
    (found,) = reproduce(ReproduceRequest(("table1",), tmp_path, data)).tables
    results = json.loads((tmp_path / "table1" / LITE / "results.json").read_text())
    ours = one(found, "Grad-CAM", LITE)
    for key, stored in (
        ("loc_top1", results["methods"]["gradcam"]["loc_top1"]),
        ("cls_top5", results["classification"]["top5"]),
    ):
        assert ours.numbers[key].as_dict() == stored
    theirs = paper("table1_imagenet_standard", "L2-CAF", "DenseNet-161")
    shown = one(found, PUBLISHED, "DenseNet-161")
    assert {key: number.value for key, number in shown.numbers.items()} == {
        key: theirs[key] for key in ("cls_top1", "cls_top5", "loc_top1", "loc_top5")
    }
    base = paper("table1_imagenet_standard", "Grad-CAM", "DenseNet-161")
    margin = one(found, f"{PUBLISHED} − Grad-CAM", "DenseNet-161", margins=True)
    assert margin.numbers["loc_top5"].value == pytest.approx(theirs["loc_top5"] - base["loc_top5"])
    (stored,) = (
        row
        for row in results["differences"]
        if (row["ours"], row["theirs"], row["measure"]) == ("l2caf-class", "gradcam", "loc_top1")
    )
    ours = one(found, "L2-CAF, class-specific − Grad-CAM", LITE, margins=True)
    assert ours.numbers["loc_top1"].as_dict() == {key: stored[key] for key in ("value", "low", "high")}
    assert "3 of 50,000" in said(found, "data")
    for title in ("GoogLeNet", "ResNetV2-50", "DenseNet-161"):
        assert f"{title} was not measured" in said(found, "weights")
    assert LITE in said(found, "networks")


def test_table_2_trains_measures_and_is_done_once(data: Path, tmp_path: Path) -> None:
    request = ReproduceRequest(("table2",), tmp_path, data, budget="2")
    (found,) = reproduce(request).tables
    assert {row.trained for row in found.rows} == {"GAP", "ADL", "ACoL"}
    theirs = paper("table2_finetuned", "CAM", "VGG-GAP", tuning="ADL")
    assert one(found, "CAM", "VGG-GAP", trained="ADL").numbers["cub_loc"].value == theirs["cub_loc"]
    results = json.loads((tmp_path / "table2" / f"adl-{LITE}-2" / "measured" / "results.json").read_text())
    ours = one(found, "CAM", LITE, trained="ADL").numbers
    assert ours["cub_loc"].as_dict() == results["methods"]["cam"]["loc_top1"]
    assert ours["cub_cls"].as_dict() == results["classification"]["top1"]
    assert results["images"] == 8  # the official test pictures
    gained = one(found, "CAM", LITE, trained="ADL − GAP", margins=True)
    other = json.loads((tmp_path / "table2" / f"gap-{LITE}-2" / "measured" / "results.json").read_text())
    step = results["methods"]["cam"]["gt_known"]["value"] - other["methods"]["cam"]["gt_known"]["value"]
    assert gained.numbers["cub_gt"].value == pytest.approx(step, abs=1e-3)
    assert gained.numbers["cub_gt"].low is not None
    for words in ("2 iterations of", "frozen up to", "2 stored views", "the classifiers of ACoL"):
        assert words in said(found, "training")
    assert "8 of 5,794 test pictures" in said(found, "data")
    watch = Watch()
    (again,) = reproduce(request, progress=watch).tables
    assert again == found
    assert not watch.of("training")
    assert not watch.of("storing features")
    assert not watch.of("measuring")


def test_a_network_without_a_map_leaves_the_rest_of_its_table(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = Steps.evaluate

    def evaluate(self: Steps, name: str, request: EvaluationRequest) -> Evaluation:
        if name.startswith("acol"):
            raise LayerError("Layer 'head.fuse' is no map of input '0': choose another layer.")
        return measure(self, name, request)

    monkeypatch.setattr(Steps, "evaluate", evaluate)
    (found,) = reproduce(ReproduceRequest(("table2",), tmp_path, data, budget="1")).tables
    assert {row.trained for row in found.rows if row.ours} == {"GAP", "ADL"}
    assert f"ACoL, {LITE}: not measured: Layer 'head.fuse' is no map" in said(found, "networks")


def test_a_run_that_was_stopped_goes_on_where_it_was(data: Path, tmp_path: Path) -> None:
    whole = reproduce(ReproduceRequest(("table2",), tmp_path / "whole", data, budget="4")).tables
    request = ReproduceRequest(("table2",), tmp_path / "parts", data, budget="4")
    stops = [("gap-", "training", 2), ("adl-", "storing features", 3), ("acol-", "measuring", 1)]
    done: list[Watch] = []
    for _, stage, at in stops:
        done.append(Watch(stage, at))
        if stage == "storing features" and done[:-1]:
            done[-1].stop = f"adl-{LITE}-4: {stage}"
        if stage == "measuring":
            done[-1].stop = f"acol-{LITE}-4/measured: {stage}"
        with pytest.raises(Cancelled):
            reproduce(request, progress=done[-1])
    last = Watch()
    parts = reproduce(request, progress=last).tables
    assert [one.rows for one in parts] == [one.rows for one in whole]
    assert [one.margins for one in parts] == [one.margins for one in whole]
    # What was finished before a stop was never done again.
    assert f"table2, gap-{LITE}-4: training" in done[1].done
    assert not [stage for watch in (done[2], last) for stage in watch.of("training") if "gap-" in stage]
    assert not [stage for stage in last.of("training") if "gap-" in stage or "adl-" in stage or "acol-" in stage]
    assert not [stage for stage in last.of("measuring") if "gap-" in stage or "adl-" in stage]


def test_table_3_trains_both_losses_and_leaves_out_what_is_not_there(data: Path, tmp_path: Path) -> None:
    request = ReproduceRequest(("table3",), tmp_path, data, budget="1")
    (found,) = reproduce(request).tables
    results = json.loads((tmp_path / "table3" / f"cub-npair-{LITE}-1" / "measured" / "results.json").read_text())
    ours = one(found, "L2-CAF, class-oblivious", LITE, trained="CUB, n-pair").numbers
    assert ours["r1"].as_dict() == results["retrieval"]["r1"]
    assert ours["loc"].as_dict() == results["methods"]["l2caf"]["loc"]
    assert not [row for row in found.rows if row.ours and "CARS" in row.trained]
    assert results["part"] == "unseen"
    theirs = paper("table3_retrieval", "L2-CAF", "ResNet-50", loss="n-pair")
    for called, kind in (("CUB", "cub"), ("CARS", "cars")):
        shown = one(found, "L2-CAF, class-oblivious", "ResNet-50", trained=f"{called}, n-pair").numbers
        assert shown["nmi"].value == pytest.approx(100 * theirs[f"{kind}_nmi"])
        assert (shown["r1"].value, shown["loc"].value) == (theirs[f"{kind}_r1"], theirs[f"{kind}_loc"])
    what = {"trained": "CARS, n-pair", "margins": True}
    margin = one(found, "L2-CAF, class-oblivious − Grad-CAM", "ResNet-50", **what)
    assert margin.numbers["loc"].value == theirs["cars_margin"]
    assert "Stanford Cars was not found" in said(found, "data")
    assert "1 of 5,000 iterations" in said(found, "training")
    watch = Watch()
    assert reproduce(request, progress=watch).tables == (found,)
    assert not watch.of("training")
    assert not watch.of("measuring")


def test_all_tables_are_on_one_page(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--data", str(data), "--budget", "1", "--rounds", "1", "--network", LITE, "--out", str(tmp_path / "out")]
    assert run(["reproduce", "timing", *words]) == 0
    capsys.readouterr()
    assert run(["reproduce", "sanity", "table1", *words]) == 0
    printed = capsys.readouterr().out
    assert "in the paper: GoogLeNet" in printed
    assert "not as in the paper, data: 3 of 50,000" in printed
    page = (tmp_path / "out" / "report.html").read_text()
    for key in ("table1", "timing", "sanity"):  # also the one of the run before
        assert TABLES[key].title in page
    assert TABLES["table2"].title not in page
    for link in re.findall(r"href='([^']+)'", page):
        assert (tmp_path / "out" / link).is_file(), link
    document = json.loads((tmp_path / "out" / "results.json").read_text())
    assert list(document["tables"]) == ["table1", "timing", "sanity"]
    for stored in document["tables"].values():
        assert Reproduced.from_dict(stored).as_dict() == stored
    timed = Reproduced.from_dict(document["tables"]["timing"])
    assert one(timed, "L2-CAF, vanilla descent", "VGG").numbers["seconds"].value == 2.525328803
    assert one(timed, "L2-CAF, fast descent", LITE).numbers["seconds"].value > 0
    checked = Reproduced.from_dict(document["tables"]["sanity"])
    assert {row.words for row in checked.rows} <= {"passes", "partly", "fails"}
    assert len(checked.rows) == 3


def test_what_is_missing_gets_one_sentence(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["--out", str(tmp_path / "out")]
    for words, sentence in (
        (["table1"], "--data: Table 1 needs ImageNet (known by localization.txt), and no folder of data was given"),
        (["table2", "--data", str(data / "imagenet")], "--data: Table 2 needs CUB-200-2011"),
        (["table4"], "TABLE: There is no table 'table4': the nearest"),
        (["table1", "--data", str(tmp_path / "no")], "does not exist"),
        (["table1", "--data", str(data), "--weights", "a.pth"], "--weights: A file of weights is for one network"),
        (
            ["table2", "--data", str(data), "--weights", "a.pth", "-n", "timm:resnet50"],
            "--weights: A file of weights is for a network that is measured as it is, and table2 trains its own",
        ),
        (["table2", "--data", str(data), "--budget", "soon"], "--budget: 'soon' is no budget"),
        (["table1", "--data", str(data), "--limit", "0"], "--limit: A limit of 0 images"),
    ):
        assert run(["reproduce", *words, *out]) == 2
        assert sentence in " ".join(capsys.readouterr().err.split())


def test_of_all_tables_those_without_data_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nothing").mkdir()
    made: list[str] = []

    def empty(steps: Any) -> Reproduced:
        made.append(steps.table)
        return Reproduced(steps.table, steps.table, "", (), ())

    monkeypatch.setattr("l2caf.tasks.reproduce_checks.timing", empty)
    monkeypatch.setattr("l2caf.tasks.reproduce_checks.sanity", empty)
    result = reproduce(ReproduceRequest(("all",), tmp_path / "out", tmp_path / "nothing"))
    assert made == ["timing", "sanity"]
    assert [words.partition(" needs")[0] for words in result.left_out] == ["Table 1", "Table 2", "Table 3"]


def test_a_training_whose_data_or_network_is_gone_is_not_taken_for_done(data: Path, tmp_path: Path) -> None:
    request = ReproduceRequest(("table2",), tmp_path, data, budget="1")
    reproduce(request)
    (tmp_path / "table2" / f"gap-{LITE}-1" / "localiser.safetensors").unlink()
    watch = Watch()
    reproduce(request, progress=watch)
    assert [stage for stage in watch.of("storing features") if "gap-" in stage]
    assert not [stage for stage in watch.of("storing features") if "adl-" in stage]


def test_data_sets_are_found_by_their_files(tmp_path: Path) -> None:
    made_datasets.wsol(tmp_path / "a" / "ILSVRC")
    made_datasets.cub(tmp_path / "CUB_200_2011")
    made_datasets.cub(tmp_path / "z" / "another")
    made_datasets.cars(tmp_path / "a" / "b")
    made_datasets.cars(tmp_path / "a" / "b" / "deeper")
    assert find(tmp_path) == {
        "cub": tmp_path / "CUB_200_2011", "imagenet": tmp_path / "a" / "ILSVRC", "cars": tmp_path / "a" / "b",
    }  # fmt: skip
    for kind, folder in find(tmp_path).items():
        assert len(datasets.read(kind, folder)) == 3
    assert find(tmp_path / "CUB_200_2011") == {"cub": tmp_path / "CUB_200_2011"}
    made_datasets.imagenet_xml(tmp_path / "xml")
    assert find(tmp_path / "xml") == {"imagenet": tmp_path / "xml"}
    with pytest.raises(InputError, match="does not exist"):
        find(tmp_path / "nowhere")


def test_rows_stand_together_by_what_they_measure() -> None:
    rows = [
        Row("cam", "a", {}, trained="gap"),
        Row("ours", "a", {}, trained="gap"),
        Row("cam", "a", {}, trained="adl"),
        Row("cam", "VGG", {}, trained="gap", ours=False),
    ]
    assert [(row.trained, row.method, row.network) for row in ordered(rows)] == [
        ("gap", "cam", "a"), ("gap", "cam", "VGG"), ("gap", "ours", "a"), ("adl", "cam", "a"),
    ]  # fmt: skip
    assert words_of(Number(0.0412, 0.04, 0.05), "s") == "0.0412 s (0.0400 to 0.0500)"
    assert words_of(Number(7.04), "times") == "7.0×"
    assert words_of(Number(44.43), "%") == "44.43"
