"""Tables 1 and 2 of the paper: localisation on networks as they are, and on networks that are fine-tuned for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import MethodError, NetworkError
from ..evaluation.localization import LocalizationResult
from ..evaluation.published import fine_tuned_rows, localisation_rows, localisation_table
from ..evaluation.reproduction import Measure, Number, Reproduced, Row, less, margin, paper_margins
from ..evaluation.scores import MEASURES
from ..methods.table import METHODS
from .difference import DifferenceRequest, compare_runs
from .evaluate import EvaluationRequest
from .reproduce_steps import Steps, names_of

if TYPE_CHECKING:
    from ..evaluation.scores import ScoreComparison

STANDARD = {
    "torchvision:googlenet": "GoogLeNet",
    "timm:resnetv2_50": "ResNetV2-50",
    "torchvision:densenet161": "DenseNet-161",
}
FINE_TUNED = {"vgg16-gap": "VGG-GAP", "resnet50-se": "ResNet50-SE"}
TUNINGS = {"gap": "GAP", "adl": "ADL", "acol": "ACoL"}
FUSED = "head.fuse"  # of ACoL, where both classifiers' maps are one; before it nothing is affine
ONLY = {"resnet50-se": ("adl",)}  # by which recipes the paper trains a network, where not by all
VALIDATION, TRAINING, TESTING = 50_000, 5_994, 5_794  # pictures: of ImageNet's validation, of CUB to train and to test
OURS = ("l2caf-published", "l2caf-class", "l2caf")
# What the paper's names of methods are here: its L2-CAF asks about a class, by the objective as it is published.
METHOD = {"L2-CAF": "l2caf-published", "Grad-CAM": "gradcam", "CAM": "cam", "Fuse 2 CAMs": "cam"}
DESCENT = "Filters are solved for, exactly where the head is affine; the paper descends until its loss rests."


def table1(steps: Steps) -> Reproduced:
    """Networks that classify ImageNet, as they are: Grad-CAM beside L2-CAF."""
    from ..networks.catalogue import load

    measures = (
        Measure("cls_top1", "classification top-1"),
        Measure("cls_top5", "classification top-5"),
        Measure("loc_top1", MEASURES["loc_top1"]),
        Measure("loc_top5", MEASURES["loc_top5"]),
    )
    located = {"loc_top1": "loc_top1", "loc_top5": "loc_top5"}
    rows: list[Row] = []
    margins: list[Row] = []
    measured = 0
    for network in steps.networks(STANDARD, load):
        request = EvaluationRequest(
            "imagenet",
            steps.found["imagenet"],
            steps.folder,
            steps.choice(network),
            methods=(*OURS, "gradcam"),
            classes="labels",
        )
        result, _ = _localised(steps, names_of(network), request)
        measured = result.comparison.images
        classified = {f"cls_{key}": Number.of(score) for key, score in result.classification.items()}
        rows += _rows(result.comparison, located, network=network, beside=classified)
        margins += _margins(result.comparison, "gradcam", located, network=network)
    paper = [
        Row(
            METHODS.title(METHOD[one.method]),
            one.backbone,
            {key.key: Number(getattr(one, key.key)) for key in measures},
            ours=False,
        )
        for one in localisation_rows(localisation_table("imagenet"))
    ]
    if measured < VALIDATION:
        steps.note("data", f"{measured:,} of {VALIDATION:,} validation images.")
    steps.note("method", DESCENT)
    margins += paper_margins(paper, [_pair("l2caf-published", "gradcam")], list(located))
    note = (
        f"Per cent of {measured:,} images, with 95 % intervals; centre crop, boxes at 20 % of the maximum, IoU ≥ 0.5."
        " The paper's L2-CAF is the form as published; the class-oblivious map is told no class."
    )
    return steps.done(measures, rows + paper, margins, note)


def table2(steps: Steps) -> Reproduced:
    """Networks fine-tuned by GAP, ADL and ACoL on CUB: CAM beside L2-CAF."""
    from ..networks.localiser import localiser_backbone
    from ..training.wsol.recipe import WsolRecipe

    measures = (
        Measure("cub_cls", "classification"),
        Measure("cub_loc", MEASURES["loc_top1"]),
        Measure("cub_gt", MEASURES["gt_known"]),
    )
    located = {"loc_top1": "cub_loc", "gt_known": "cub_gt"}
    rows: list[Row] = []
    margins: list[Row] = []
    measured = 0
    for backbone in steps.networks(FINE_TUNED, localiser_backbone):
        runs: dict[str, Path] = {}
        for recipe in ONLY.get(backbone, tuple(TUNINGS)):
            name = names_of(recipe, backbone, steps.budget)
            settings = WsolRecipe(recipe=recipe, backbone=backbone, budget=steps.budget, views=steps.views)
            trained = steps.train(name, settings, "cub")
            for sentence in trained.cut:
                steps.note("training", f"{sentence}.", of=f"{TUNINGS[recipe]}, {backbone}")
            if trained.pictures < TRAINING:
                steps.note("data", f"{trained.pictures:,} of {TRAINING:,} training pictures.")
            request = EvaluationRequest(
                "cub",
                steps.found["cub"],
                steps.folder,
                steps.choice(str(trained.checkpoint), layer=FUSED if recipe == "acol" else None),
                methods=(*OURS, "cam"),
                classes="labels",
                view="squash",
            )
            try:
                result, runs[recipe] = _localised(steps, f"{name}/measured", request)
            except (MethodError, NetworkError) as error:  # a network that has learnt little may have no map to measure
                steps.note("networks", f"not measured: {error}", of=f"{TUNINGS[recipe]}, {backbone}")
                continue
            measured = result.comparison.images
            classified = {"cub_cls": Number.of(result.classification["top1"])}
            about = {"network": backbone, "trained": TUNINGS[recipe]}
            rows += _rows(result.comparison, located, beside=classified, **about)
            margins += _margins(result.comparison, "cam", located, **about)
        margins += _between(runs, backbone, located)
    paper = [
        Row(
            METHODS.title(METHOD[one.method]),
            one.backbone,
            {"cub_cls": Number(one.cub_cls), "cub_loc": Number(one.cub_loc)},
            ours=False,
            trained=one.tuning,
            words="fused maps, quoted" if one.quoted else "",
        )
        for one in fine_tuned_rows()
    ]
    if measured < TESTING:
        steps.note("data", f"{measured:,} of {TESTING:,} test pictures.")
    steps.note("data", "The columns of ImageNet are missing: they need networks fine-tuned on its training pictures.")
    steps.note("method", DESCENT)
    margins += paper_margins(paper, [_pair("l2caf-published", "cam")], ["cub_loc"])
    note = (
        f"Per cent of {measured:,} test pictures, with 95 % intervals; the whole picture squashed, boxes at 20 % of the"
        " maximum, IoU ≥ 0.5. The paper's L2-CAF is the form as published; its"
        " row of ACoL is quoted from ACoL's own paper, and GT-known is not in it."
    )
    return steps.done(measures, rows + paper, margins, note)


def _localised(steps: Steps, name: str, request: EvaluationRequest) -> tuple[LocalizationResult, Path]:
    """What was measured, and the folder that it is in."""
    evaluation = steps.evaluate(name, request)
    assert isinstance(evaluation.result, LocalizationResult)
    return evaluation.result, evaluation.report.parent


def _rows(
    compared: ScoreComparison,
    located: Mapping[str, str],
    *,
    network: str,
    beside: Mapping[str, Number],
    trained: str = "",
) -> Iterator[Row]:
    """One for each method; what is the same for all of them stands beside its own numbers."""
    for name, scores in compared.methods.items():
        own = {key: Number.of(scores.measures[measure]) for measure, key in located.items()}
        yield Row(METHODS.title(name), network, {**beside, **own}, trained=trained)


def _margins(
    compared: ScoreComparison, baseline: str, located: Mapping[str, str], *, network: str, trained: str = ""
) -> Iterator[Row]:
    for name in OURS:
        numbers = margin(compared.differences, name, baseline, located)
        yield Row(less(*_pair(name, baseline)), network, numbers, trained=trained)


def _between(runs: Mapping[str, Path], backbone: str, located: Mapping[str, str]) -> Iterator[Row]:
    """ADL and ACoL less plain GAP, map by map, on the same pictures."""
    for recipe, method in product(("adl", "acol"), ("cam", "l2caf-published")):
        if recipe not in runs or "gap" not in runs:
            continue
        found = compare_runs(DifferenceRequest(runs[recipe], runs["gap"])).differences
        numbers = {located[one.measure]: Number.of(one.points) for one in found
                   if one.ours_method == method and one.measure in located}  # fmt: skip
        yield Row(METHODS.title(method), backbone, numbers, trained=less(TUNINGS[recipe], TUNINGS["gap"]))


def _pair(first: str, second: str) -> tuple[str, str]:
    return METHODS.title(first), METHODS.title(second)
