"""Table 3 of the paper: networks trained to retrieve birds and cars, and where they look."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..datasets import LAYOUTS
from ..evaluation.published import PaperRetrieval, retrieval_rows
from ..evaluation.reproduction import Measure, Number, Reproduced, Row, less, margin
from ..evaluation.retrieval import BASELINE, DEFAULT_METHODS, RetrievalResult
from ..methods.table import METHODS
from .evaluate import EvaluationRequest
from .reproduce_steps import Steps, TrainedNetwork, names_of

BACKBONES = {"timm:resnet50": "ResNet-50"}
LOSSES = {"triplet": "triplet", "npair": "n-pair"}
METHOD = {"L2-CAF": "l2caf", "Grad-CAM": "gradcam", "Grad-CAM-abs": "gradcam-abs"}
DATA = {"cub": "CUB", "cars": "CARS"}
TRAINING = {"cub": 5_864, "cars": 8_054}  # pictures of the first half of the classes
UNSEEN = {"cub": 5_924, "cars": 8_131}  # and of the second
ITERATIONS = 5_000
MEASURES = ("r1", "nmi", "loc")
TITLES = {"r1": "R@1", "nmi": "NMI", "loc": "LOC"}


def table3(steps: Steps) -> Reproduced:
    """Triplet and N-pair networks on both data sets: Grad-CAM and Grad-CAM-abs beside L2-CAF."""
    from ..networks.embedding import load_backbone

    measures = [Measure(f"{kind}_{key}", f"{DATA[kind]}: {TITLES[key]}") for kind in DATA for key in MEASURES]
    rows: dict[tuple[str, str, str], dict[str, Number]] = {}
    margins: dict[tuple[str, str, str], dict[str, Number]] = {}
    backbones = steps.networks(BACKBONES, load_backbone)
    steps.note("networks", "GoogLeNet: it is no backbone that is trained here.")
    for kind in DATA:
        if kind not in steps.found:
            steps.note("data", f"{LAYOUTS[kind].title} was not found, so its columns have the paper's numbers alone.")
            continue
        for backbone in backbones:
            for loss, called in LOSSES.items():
                result = _measured(steps, kind, backbone, loss)
                whole = {key: Number.of(result.retrieval[key]) for key in ("r1", "nmi")}
                for name, scores in result.comparison.methods.items():
                    own = {**whole, "loc": Number.of(scores.measures["loc"])}
                    line = rows.setdefault((name, backbone, called), {})
                    line |= {f"{kind}_{key}": number for key, number in own.items()}
                    if name != BASELINE:
                        line = margins.setdefault((name, backbone, called), {})
                        line |= margin(result.comparison.differences, name, BASELINE, {"loc": f"{kind}_loc"})
    steps.note("method", "Filters are solved for exactly; the paper descends until its loss rests.")
    paper = [(kind, one) for kind in DATA for one in retrieval_rows(kind)]
    note = (
        "Per cent of pictures of classes that training never saw, with 95 % intervals; centre crop, boxes at 20 % of"
        " the maximum. LOC counts a picture whose nearest neighbour has its class and whose box has IoU > 0.5."
    )
    return steps.done(
        measures,
        [*_ours(rows), *_theirs(paper, lambda one: {key: getattr(one, key) for key in MEASURES})],
        [*_ours(margins, BASELINE), *_theirs(paper, lambda one: {"loc": one.margin}, BASELINE)],
        note,
    )


def _measured(steps: Steps, kind: str, backbone: str, loss: str) -> RetrievalResult:
    """Train one network, and measure it on the classes that it has not seen."""
    from ..training.retrieval.recipe import RetrievalRecipe
    from ..training.wsol.budget import Budget

    budget = Budget.parse(steps.budget)
    iterations = min(ITERATIONS, budget.iterations or ITERATIONS)
    recipe = RetrievalRecipe(backbone=backbone, loss=loss, iterations=iterations, views=steps.views)
    name = names_of(kind, loss, backbone, steps.budget)
    trained = steps.train(name, recipe, kind, minutes=budget.minutes)
    _say_what_was_less(steps, f"{DATA[kind]}, {LOSSES[loss]}, {backbone}", trained, kind)
    request = EvaluationRequest(
        kind,
        steps.found[kind],
        steps.folder,
        steps.choice(str(trained.checkpoint)),
        protocol="retrieval",
        methods=DEFAULT_METHODS,
    )
    result = steps.evaluate(f"{name}/measured", request).result
    assert isinstance(result, RetrievalResult)
    if result.comparison.images < UNSEEN[kind]:
        words = f"{DATA[kind]}: {result.comparison.images:,} of {UNSEEN[kind]:,} pictures of unseen classes"
        steps.note("data", f"{words}, of {result.classes} classes; R@1 is easier among fewer.")
    return result


def _say_what_was_less(steps: Steps, what: str, trained: TrainedNetwork, kind: str) -> None:
    if trained.pictures < TRAINING[kind]:
        steps.note("data", f"{DATA[kind]}: {trained.pictures:,} of {TRAINING[kind]:,} training pictures.")
    why = {"minutes": "the budget was up", "no better": "held-out R@1 rose no more"}
    if trained.iterations < ITERATIONS:
        because = why.get(trained.ended, "the budget has room for no more")
        steps.note("training", f"{what}: {trained.iterations:,} of {ITERATIONS:,} iterations, since {because}.")
    if trained.settings.get("cut"):
        steps.note("training", f"{what}: the backbone is frozen up to {trained.settings['cut']}.")


def _ours(rows: Mapping[tuple[str, str, str], Mapping[str, Number]], baseline: str = "") -> list[Row]:
    return [
        Row(_called(name, baseline), backbone, numbers, trained=trained)
        for (name, backbone, trained), numbers in rows.items()
    ]


def _theirs(
    paper: list[tuple[str, PaperRetrieval]],
    numbers_of: Callable[[PaperRetrieval], dict[str, float]],
    baseline: str = "",
) -> list[Row]:
    """The paper's rows, both data sets in one; of margins, without the baseline's own."""
    made: dict[tuple[str, str, str], dict[str, Number]] = {}
    for kind, one in paper:
        if METHOD[one.method] != baseline:
            line = made.setdefault((METHOD[one.method], one.backbone, one.loss), {})
            line |= {f"{kind}_{key}": Number(value) for key, value in numbers_of(one).items()}
    return [
        Row(_called(name, baseline), backbone, numbers, ours=False, trained=trained)
        for (name, backbone, trained), numbers in made.items()
    ]


def _called(name: str, baseline: str) -> str:
    return less(METHODS.title(name), METHODS.title(baseline)) if baseline else METHODS.title(name)
