"""How long one map takes on this machine: the paper's timing figure, with the exact solution beside it.

Everything is timed on one image, round after round side by side, and the median counts. Descent is the
exception: a full run of its fast form can take a minute, so it is done once to learn how many steps it needs,
and again in every round only if it is quick. The vanilla form runs the whole network in each of those same
steps; it is timed for a few, and the rest is extrapolated, since steps are alike; it is marked.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError, MethodError
from ..explanation import explain
from ..methods.grad_cam import GradCAM
from ..networks.model import Model
from ..objectives.prediction import Prediction
from ..progress import Progress, part, silent
from ..solvers.gradient_descent import GradientDescent
from .published import paper_times

NETWORKS = (
    "tf_efficientnet_lite0",
    "torchvision:resnet50",
    "torchvision:googlenet",
    "torchvision:densenet161",
    "torchvision:vgg16",
)
TIMED = {
    "forward": "the network alone",
    "gradcam": "Grad-CAM",
    "l2caf": "L2-CAF, solved",
    "prediction": "L2-CAF, prediction",
    "fast": "L2-CAF, fast descent",
    "vanilla": "L2-CAF, vanilla descent",
}
"""What is timed, quickest first: the last two are the paper's own procedure."""
ROUNDS = 5
EXTRA = 2  # what is told beside the rounds: one descent to its end, and a round to warm up
UNEVEN = 1.5  # times the first quartile is where the third says that the rounds differ much
QUICK = 2.0  # seconds: a descent that takes longer is not run in every round
SHORT, LONG = 1, 4  # steps of the vanilla form that are really taken: their difference is the cost of a step
_PAPER_NAMES = {"densenet161": "DenseNet-161", "vgg16": "VGG", "googlenet": "GoogLeNet"}


@dataclass(frozen=True)
class Timing:
    """Seconds a frame on one network, by what was timed.

    quartiles     of the rounds, where there were several
    steps         of descent, until its own test of convergence was met
    rounds        how often each was timed
    extrapolated  what was timed for a few steps only
    solver        how the filter was found where it was solved, and why that way
    paper         the paper's figures for this network, on a machine that it does not name
    """

    network: str
    weights: str
    layer: str
    seconds: dict[str, float]
    rounds: dict[str, int]
    steps: int
    extrapolated: tuple[str, ...]
    solver: str
    reason: str
    paper: dict[str, float]
    refused: dict[str, str]
    quartiles: dict[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What speaks against these numbers, in words."""
        found = []
        alone = self.seconds["forward"]
        impossible = [TIMED[name] for name, value in self.seconds.items() if value < alone]
        if impossible:
            found.append(
                f"{', '.join(impossible)} measured faster than the network alone, which runs in each of them: the"
                " machine was doing something else, so give more rounds and let it rest"
            )
        uneven = [TIMED[name] for name, (low, high) in self.quartiles.items() if high > UNEVEN * low]
        if uneven:
            found.append(
                f"the rounds of {', '.join(uneven)} differ much (see the quartiles): give more rounds, and let the"
                " machine rest"
            )
        return tuple(found)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "warnings": list(self.warnings)}


def time_network(model: Model, image: Tensor, *, rounds: int = ROUNDS, progress: Progress = silent) -> Timing:
    """Time every way to a class-oblivious map, that of the prediction and Grad-CAM on one image (1, 3, H, W).

    `progress` is told of every round and of what comes before them, rounds + EXTRA times in all.
    """
    if rounds < 1:
        raise InputError(f"{rounds} rounds measure nothing: give 1 or more.", field="rounds")
    network = model.network
    if len(image) != 1:
        raise InputError(f"Seconds per frame are measured on one image, and these are {len(image)}: give one.")
    heatmap = explain(network, image)
    solution = heatmap.solved
    candidates, refused = _candidates(network, image, has_classes=not model.embedding)
    fast, steps = _once(network, image)
    if fast <= QUICK:
        candidates["fast"] = lambda: explain(network, image, solver=GradientDescent()).maps
    stage, total = f"timing {model.name}", rounds + EXTRA
    progress(stage, 1, total)
    times = side_by_side(candidates, rounds=rounds, warm_up=1, stage=stage, progress=part(progress, 1, total))
    seconds = {name: times.seconds(name) for name in candidates if name in TIMED}
    seconds.setdefault("fast", fast)
    counts = dict.fromkeys(seconds, rounds) | ({} if fast <= QUICK else {"fast": 1})
    if "vanilla" not in refused:
        seconds["vanilla"], counts["vanilla"] = _extrapolated(times, steps), rounds
    return Timing(
        network=model.name,
        weights=model.weights,
        layer=heatmap.layer,
        seconds={name: seconds[name] for name in TIMED if name in seconds},
        rounds=counts,
        steps=steps,
        extrapolated=("vanilla",) if "vanilla" in seconds else (),
        solver=solution.solver,
        reason=solution.reason,
        paper=paper_seconds(model.name),
        refused=refused,
        quartiles={name: times.quartiles(name) for name in TIMED if name in candidates and rounds > 1},
    )


def paper_seconds(network: str) -> dict[str, float]:
    """The paper's figures for a network by its catalogue name; empty where it has none.

    >>> paper_seconds("torchvision:googlenet")["gradcam"]
    0.04375116825
    """
    return paper_times().get(_PAPER_NAMES.get(network.rpartition(":")[2], ""), {})


def _candidates(
    network: nn.Module, image: Tensor, *, has_classes: bool
) -> tuple[dict[str, Callable[[], Any]], dict[str, str]]:
    def forward() -> Any:
        with torch.inference_mode():
            return network(image)

    candidates: dict[str, Callable[[], Any]] = {
        "forward": forward,
        "l2caf": lambda: explain(network, image).maps,
        "gradcam": lambda: GradCAM()(network, image).maps,
    }
    if has_classes:
        candidates["prediction"] = lambda: explain(network, image, objective=Prediction()).maps
    refused = {}
    vanilla = {f"vanilla {steps}": _vanilla(network, image, steps) for steps in (SHORT, LONG)}
    tried = {name: candidates[name] for name in ("prediction", "gradcam") if name in candidates}
    for name, run in (*tried.items(), ("vanilla", vanilla[f"vanilla {SHORT}"])):
        try:
            run()
        except MethodError as error:  # for one, a scale-invariant head has no vanilla form
            refused[name] = str(error)
            candidates.pop(name, None)
    if "vanilla" not in refused:
        candidates |= vanilla
    return candidates, refused


def _vanilla(network: nn.Module, image: Tensor, steps: int) -> Callable[[], Any]:
    return lambda: explain(network, image, solver=GradientDescent(vanilla=True, steps=steps)).maps


def _once(network: nn.Module, image: Tensor) -> tuple[float, int]:
    """Run the fast form to its end: seconds and steps."""
    began = time.perf_counter()
    solution = explain(network, image, solver=GradientDescent()).solved
    return time.perf_counter() - began, int(solution.steps[0])


def _extrapolated(times: Times, steps: int) -> float:
    few, more = times.seconds(f"vanilla {SHORT}"), times.seconds(f"vanilla {LONG}")
    return few + (steps - SHORT) * max(0.0, more - few) / (LONG - SHORT)


@dataclass(frozen=True)
class Times:
    """Seconds per round of each candidate, round by round."""

    rounds: Mapping[str, list[float]]

    def seconds(self, one: str) -> float:
        """The median over the rounds."""
        return statistics.median(self.rounds[one])

    def quartiles(self, one: str) -> tuple[float, float]:
        """The first and the third, over two rounds or more."""
        low, _, high = statistics.quantiles(self.rounds[one], n=4, method="inclusive")
        return low, high

    def milliseconds(self, one: str) -> float:
        return 1000 * self.seconds(one)

    def ratio(self, one: str, other: str) -> float:
        """The median over the rounds of one's time over the other's."""
        return statistics.median(self._ratios(one, other))

    def spread(self, one: str, other: str) -> str:
        """The quartiles of that ratio."""
        low, high = self.between(one, other)
        return f"{low:.2f}-{high:.2f}"

    def between(self, one: str, other: str) -> tuple[float, float]:
        """The first and the third quartile of that ratio."""
        low, _, high = statistics.quantiles(self._ratios(one, other), n=4)
        return low, high

    def _ratios(self, one: str, other: str) -> list[float]:
        return [a / b for a, b in zip(self.rounds[one], self.rounds[other], strict=True)]


def side_by_side(
    candidates: Mapping[str, Callable[[], Any]],
    *,
    rounds: int = 9,
    warm_up: int = 2,
    clock: Callable[[], float] | None = None,
    stage: str = "timing",
    progress: Progress = silent,
) -> Times:
    """Time the candidates in turn, round after round; `progress` is told of every round.

    `clock` is the time on the wall by default; `time.thread_time` leaves out what other work on the machine takes.

    >>> sorted(side_by_side({"nothing": int, "something": dict}, rounds=3).rounds)
    ['nothing', 'something']
    """
    clock = clock or time.perf_counter
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(warm_up + rounds):
        for name, run in candidates.items():
            began = clock()
            run()
            if number >= warm_up:
                times[name].append(clock() - began)
        progress(stage, number + 1, warm_up + rounds)
    return Times(times)
