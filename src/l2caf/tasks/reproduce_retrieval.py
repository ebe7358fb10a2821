"""Table 3 of the paper: networks trained to retrieve birds and cars, and where they look."""

from __future__ import annotations

from itertools import product

from ..datasets import LAYOUTS
from ..evaluation.published import retrieval_rows
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
MEASURES = {"r1": "R@1", "nmi": "NMI", "loc": "LOC"}


def table3(steps: Steps) -> Reproduced:
    """Triplet and N-pair networks on both data sets: Grad-CAM and Grad-CAM-abs beside L2-CAF."""
    from ..networks.embedding import load_backbone

    rows: list[Row] = []
    margins: list[Row] = []
    backbones = steps.networks(BACKBONES, load_backbone)
    steps.note("networks", "GoogLeNet: it is no backbone that is trained here.")
    for kind, called in DATA.items():
        if kind not in steps.found:
            steps.note("data", f"{LAYOUTS[kind].title} was not found, so that its rows are the paper's alone.")
        for backbone, loss in product(backbones if kind in steps.found else (), LOSSES):
            result = _measured(steps, kind, backbone, loss)
            whole = {key: Number.of(result.retrieval[key]) for key in ("r1", "nmi")}
            trained = f"{called}, {LOSSES[loss]}"
            for name, scores in result.comparison.methods.items():
                numbers = {**whole, "loc": Number.of(scores.measures["loc"])}
                rows.append(Row(METHODS.title(name), backbone, numbers, trained=trained))
                if name != BASELINE:
                    less_it = margin(result.comparison.differences, name, BASELINE, {"loc": "loc"})
                    margins.append(Row(_less_baseline(name), backbone, less_it, trained=trained))
        for one in retrieval_rows(kind):
            name, theirs = METHOD[one.method], f"{called}, {one.loss}"
            numbers = {key: Number(getattr(one, key)) for key in MEASURES}
            rows.append(Row(METHODS.title(name), one.backbone, numbers, ours=False, trained=theirs))
            if name != BASELINE:
                points = {"loc": Number(one.margin)}
                margins.append(Row(_less_baseline(name), one.backbone, points, ours=False, trained=theirs))
    steps.note("method", "Filters are solved for exactly; the paper descends until its loss rests.")
    note = (
        "Per cent of pictures of classes that training never saw, with 95 % intervals; centre crop, boxes at 20 % of"
        " the maximum. LOC counts a picture whose nearest neighbour has its class and whose box has IoU > 0.5."
    )
    return steps.done([Measure(key, title) for key, title in MEASURES.items()], rows, margins, note)


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
        steps.note("training", f"{trained.iterations:,} of {ITERATIONS:,} iterations, since {because}.", of=what)
    if trained.settings.get("cut"):
        steps.note("training", f"the backbone is frozen up to {trained.settings['cut']}.", of=what)
    if steps.views:
        steps.note("training", f"{steps.views} stored views of each picture take the place of cut-outs drawn anew.")
    steps.note("training", "Learning rates, the start and the running mean of the weights are ours.")


def _less_baseline(name: str) -> str:
    return less(METHODS.title(name), METHODS.title(BASELINE))
