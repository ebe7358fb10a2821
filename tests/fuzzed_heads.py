"""Random heads, solved by us and by brute force; `make fuzz` does so for 1,000 of them.

A seed gives a network: a convolution whose cells do not overlap (the layer), then a random head of poolings, norms,
gates and small perceptrons. The reference knows nothing of our solvers: it multiplies the layer's output by filters and
descends on the unit sphere with torch's own gradients from `STARTS` random filters, then lets SciPy finish the best.

How far a descent is from the best is measured in shares of the range between the loss of the uniform filter and the
best loss that anybody found: 0 is the best, 1 is no better than the uniform filter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from scipy.optimize import minimize
from torch import Tensor, nn

import l2caf
from l2caf.solution import Outcome, Solution

STARTS = 20
STEPS = 120  # of the reference's descent, from each start
WITHIN = 0.05  # of the range: what counts as the best
LOSS = 1e-3  # a loss that differs by this share from the one computed plainly is wrong
# A map is said to show nothing, falsely, where a filter does better than the uniform one by this share of how much
# better the best filter does than a random one: a head that normalises leaves some millionths.
FALSE = 1e-2
CHANNELS, CLASSES = 6, 5


# Heads


class Pool(nn.Module):
    """(B, C, n) to (B, D)."""

    kinds = ("mean", "max", "top-k", "variance", "bilinear", "GeM", "attention", "log-sum-exp", "flatten", "min-max")

    def __init__(self, kind: str, channels: int, positions: int) -> None:
        super().__init__()
        self.kind = kind
        self.query = nn.Linear(channels, 1)
        self.share = max(2, positions // 4)
        self.width = {"bilinear": channels * channels, "flatten": channels * positions, "min-max": 2 * channels}.get(
            kind, channels
        )

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "mean":
            return x.mean(dim=2)
        if self.kind == "max":
            return x.amax(dim=2)
        if self.kind == "top-k":
            return x.topk(self.share, dim=2).values.mean(dim=2)
        if self.kind == "variance":
            return x.var(dim=2)
        if self.kind == "bilinear":
            return (x @ x.mT / x.shape[2]).flatten(1)
        if self.kind == "GeM":
            return x.clamp_min(1e-4).pow(3).mean(dim=2).pow(1 / 3)
        if self.kind == "attention":
            return (x * (2 * self.query(x.mT).mT).softmax(dim=2)).sum(dim=2)
        if self.kind == "log-sum-exp":
            return x.logsumexp(dim=2)
        if self.kind == "min-max":
            return torch.cat([x.amax(dim=2), x.amin(dim=2)], dim=1)
        return x.flatten(1)


class Square(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.square()


class Gate(nn.Module):
    """sigmoid(a x) b x."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.gate, self.value = nn.Linear(width, out), nn.Linear(width, out)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(2 * self.gate(x)) * self.value(x)


class Product(nn.Module):
    """(a x) (b x)."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(width, out), nn.Linear(width, out)

    def forward(self, x: Tensor) -> Tensor:
        return self.one(x) * self.other(x)


class Unit(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(x, dim=1)


ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "leaky": lambda: nn.LeakyReLU(0.2),
}


class Head(nn.Module):
    """What comes before the pooling, one or two poolings, and what comes after them."""

    def __init__(self, draw: np.random.Generator, channels: int, grid: tuple[int, ...]) -> None:
        super().__init__()
        positions = int(np.prod(grid))
        self.grid = grid
        before = str(draw.choice(["", "", "", "relu", "norm", "mixed", "squared", "gelu"]))
        self.before: nn.Module = {
            "": nn.Identity,
            "relu": nn.ReLU,
            "norm": lambda: nn.GroupNorm(2, channels),
            "mixed": lambda: nn.Sequential(
                nn.Conv1d(channels, channels, 1), nn.ReLU(), nn.Conv1d(channels, channels, 1)
            ),
            "squared": Square,
            "gelu": nn.GELU,
        }[before]()
        kinds = [str(kind) for kind in draw.choice(Pool.kinds, size=int(draw.choice([1, 1, 2])), replace=False)]
        self.pools = nn.ModuleList(Pool(kind, channels, positions) for kind in kinds)
        width = sum(pool.width for pool in self.pools)
        after = str(
            draw.choice(["linear", "linear", "mlp", "mlp", "deep", "gate", "product", "squared", "norm", "unit"])
        )
        act = str(draw.choice(list(ACTIVATIONS)))
        hidden = int(draw.choice([4, 8, 16]))
        make = ACTIVATIONS[act]
        self.after: nn.Module = {
            "linear": lambda: nn.Linear(width, CLASSES),
            "mlp": lambda: nn.Sequential(nn.Linear(width, hidden), make(), nn.Linear(hidden, CLASSES)),
            "deep": lambda: nn.Sequential(
                nn.Linear(width, hidden), make(), nn.Linear(hidden, hidden), make(), nn.Linear(hidden, CLASSES)
            ),
            "gate": lambda: nn.Sequential(Gate(width, hidden), nn.Linear(hidden, CLASSES)),
            "product": lambda: nn.Sequential(Product(width, hidden), nn.Linear(hidden, CLASSES)),
            "squared": lambda: nn.Sequential(nn.Linear(width, hidden), Square(), nn.Linear(hidden, CLASSES)),
            "norm": lambda: nn.Sequential(nn.LayerNorm(width), nn.Linear(width, CLASSES)),
            "unit": lambda: nn.Sequential(nn.Linear(width, CLASSES), Unit()),
        }[after]()
        shown = f"{after} {act}" if after in ("mlp", "deep") else after
        self.words = " > ".join(filter(None, (before, "+".join(kinds), shown)))
        self.kinds = kinds

    def forward(self, x: Tensor) -> Tensor:
        x = self.before(x.flatten(2))
        found: Tensor = self.after(torch.cat([pool(x) for pool in self.pools], dim=1))
        return found


class Network(nn.Module):
    """The layer and a head."""

    def __init__(self, draw: np.random.Generator, grid: tuple[int, ...]) -> None:
        super().__init__()
        conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[len(grid) - 1]
        self.map = conv(2, CHANNELS, 2, stride=2)
        self.rectified = bool(draw.random() < 0.5)
        self.rectifier = nn.ReLU()  # before the layer's own output, so that the map is as after most trunks
        self.layer = nn.Identity()
        self.head = Head(draw, CHANNELS, grid)

    def forward(self, x: Tensor) -> Tensor:
        x = self.map(x)
        x = self.rectifier(x) if self.rectified else x
        found: Tensor = self.head(self.layer(x))
        return found


# One seed


class Case:
    """A network, a batch for it and a question, all of one seed."""

    def __init__(self, seed: int) -> None:
        draw = np.random.default_rng(seed)
        self.seed = seed
        grids = [(7,), (12,), (3, 3), (4, 4), (4, 5), (7, 7), (2, 3, 3), (2, 2, 4)]
        self.grid: tuple[int, ...] = grids[int(draw.integers(len(grids)))]
        self.batch = int(draw.choice([1, 2]))
        gain = float(draw.choice([1.0, 2.0, 4.0]))
        self.question = str(draw.choice(["oblivious", "oblivious", "class", "class", "published"]))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network = Network(draw, self.grid).eval().requires_grad_(False)
            for parameter in self.network.parameters():
                parameter *= gain if parameter.ndim > 1 else 1.0
            self.pictures = torch.randn(self.batch, 2, *(2 * cells for cells in self.grid))
        self.chosen = int(draw.integers(CLASSES))
        self._untouched: dict[str, Tensor] = {}

    @property
    def words(self) -> str:
        size = "x".join(map(str, self.grid))
        return f"seed {self.seed}: {self.network.head.words}, {self.question}, {size}"

    @property
    def positions(self) -> int:
        return int(np.prod(self.grid))

    def objective(self) -> l2caf.ClassOblivious | l2caf.ClassSpecific:
        if self.question == "oblivious":
            return l2caf.ClassOblivious()
        return l2caf.ClassSpecific(self.chosen, published=self.question == "published")

    def solve(self, solver: l2caf.Auto | l2caf.Riemannian | None = None) -> Solution:
        heatmap = l2caf.explain(
            self.network, self.pictures, objective=self.objective(), layer="layer", solver=solver or l2caf.Auto()
        )
        assert heatmap.solution is not None
        return heatmap.solution

    @cached_property
    def features(self) -> Tensor:
        x = self.network.map(self.pictures)
        return self.network.rectifier(x) if self.network.rectified else x

    def untouched(self, endpoint: str) -> Tensor:
        """What the endpoint gives with nothing filtered, (B, m)."""
        if endpoint not in self._untouched:
            self._untouched[endpoint] = self._value(self.features, endpoint)
        return self._untouched[endpoint]

    def losses(self, filters: Tensor, endpoint: str) -> Tensor:
        """The losses (B, S) of S filters for each sample, (B, S, n), by multiplying the map with them."""
        number = filters.shape[1]
        features = self.features.repeat_interleave(number, dim=0)
        after = self._value(features * filters.reshape(-1, 1, *self.grid).to(features), endpoint).double()
        if self.question == "oblivious":
            target = self.untouched(endpoint).repeat_interleave(number, dim=0)
            return (after - target.double()).square().sum(dim=1).reshape(-1, number)
        if self.question == "class":
            after = after - after.mean(dim=1, keepdim=True)
        return (after.sum(dim=1) - 2 * after[:, self.chosen]).reshape(-1, number)

    def _value(self, features: Tensor, endpoint: str) -> Tensor:
        if endpoint == "output":
            found: Tensor = self.network.head(features)
            return found
        kept: list[Tensor] = []
        if endpoint == "mean of layer":
            return features.flatten(2).mean(dim=2)
        if endpoint.startswith("input of "):
            module = self.network.get_submodule(endpoint.removeprefix("input of "))
            hook = module.register_forward_pre_hook(lambda module, args: kept.append(args[0]))
        else:
            module = self.network.get_submodule(endpoint)
            hook = module.register_forward_hook(lambda module, args, out: kept.append(out))
        try:
            self.network.head(features)
        finally:
            hook.remove()
        return kept[-1].flatten(1)


# Brute force


def best_of_starts(case: Case, endpoint: str, steps: int = STEPS) -> np.ndarray:
    """The lowest losses on the unit sphere from `STARTS` random filters, one per sample."""
    generator = torch.Generator().manual_seed(case.seed)
    points = torch.randn(case.batch, STARTS, case.positions, generator=generator, dtype=torch.float64)
    points[:, ::4] = points[:, ::4].abs()
    sparse = torch.rand(points[:, 1::4].shape, generator=generator) < 0.3
    points[:, 1::4] = points[:, 1::4] * sparse + 0.01 * points[:, 1::4]
    points = F.normalize(points, dim=2)
    mean, size = torch.zeros_like(points), torch.zeros_like(points[..., :1])
    best, kept = torch.full(points.shape[:2], torch.inf, dtype=torch.float64), points
    for step in range(1, steps + 1):  # steps of a falling length along a running mean of slopes, each start for itself
        leaf = points.clone().requires_grad_()
        loss = case.losses(F.normalize(leaf, dim=2), endpoint)
        (slope,) = torch.autograd.grad(loss.sum(), leaf)
        better = loss.detach() < best
        best, kept = torch.where(better, loss.detach(), best), torch.where(better[..., None], points, kept)
        slope = slope.nan_to_num(0.0, 0.0, 0.0)
        mean, size = 0.9 * mean + 0.1 * slope, 0.95 * size + 0.05 * slope.square().sum(dim=2, keepdim=True)
        move = mean / (1 - 0.9**step) / ((size / (1 - 0.95**step)).sqrt() + 1e-12)
        points = F.normalize(points - 0.4 * (1 - step / (steps + 1)) ** 1.5 * move, dim=2)
    return np.array([_finished(case, endpoint, sample, best[sample], kept[sample]) for sample in range(case.batch)])


def _finished(case: Case, endpoint: str, sample: int, best: Tensor, kept: Tensor) -> float:
    """Let SciPy go on from the best start of one sample."""

    def plain(point: np.ndarray) -> tuple[float, np.ndarray]:
        leaf = torch.from_numpy(point).expand(case.batch, 1, -1).clone().requires_grad_()
        loss = case.losses(F.normalize(leaf, dim=2), endpoint)[sample, 0]
        (slope,) = torch.autograd.grad(loss, leaf)
        return float(loss.detach()), slope[sample, 0].nan_to_num(0.0, 0.0, 0.0).numpy()

    start = kept[int(best.argmin())].numpy()
    found = minimize(plain, start, jac=True, method="L-BFGS-B", options={"maxiter": 60})
    return min(float(best.min()), float(found.fun))


# Judgement


@dataclass(frozen=True)
class Judged:
    """One sample of one head: what we gave, what brute force found, and what is wrong with ours."""

    case: str
    kinds: tuple[str, ...]
    outcome: Outcome
    descended: bool
    evaluations: int
    loss: float
    best: float
    even: float
    gap: float  # 0 is the best that anybody found, 1 is no better than the uniform filter
    fault: str = ""

    def __str__(self) -> str:
        return (
            f"{self.case}: {self.outcome}, {self.evaluations} evaluations, loss {self.loss:.6g}, best {self.best:.6g}, "
            f"uniform {self.even:.6g}, gap {self.gap:.3f} {self.fault}"
        )


def judge(seed: int, solver: l2caf.Auto | l2caf.Riemannian | None = None, *, steps: int = STEPS) -> list[Judged]:
    """Solve one seed and compare, sample by sample."""
    case = Case(seed)
    solution = case.solve(solver)
    # Samples of one batch may be solved up to different endpoints.
    measured = {one: _measured(case, solution, one, steps) for one in solution.endpoint.split(" and ")}
    found = []
    for sample in range(case.batch):
        again, even, typical, best = measured[solution.of_sample(sample).endpoint][sample]
        loss = float(solution.loss[sample])
        outcome = solution.outcomes(sample)[0]
        scale = max(abs(even), abs(best), 1e-12)
        lowest = min(best, again, even)
        distance = again - lowest
        # Below a millionth of the loss there is rounding alone.
        gap = 0.0 if distance <= 1e-6 * scale else distance / max(even - lowest, 1e-6 * scale)
        fault = ""
        if outcome is Outcome.NON_FINITE:
            fault = "not finite"
        elif abs(float(solution.filter[sample].norm()) - 1) > LOSS:
            fault = "not on the unit sphere"
        elif abs(again - loss) > LOSS * abs(again) + 1e-5 * scale:
            fault = f"wrong loss: the filter gives {again:.6g}"
        elif outcome is Outcome.EXACT and again - best > 1e-4 * max(even - best, 0) + 1e-6 * scale:
            fault = "exact, and beaten"
        elif outcome.shows_nothing and even - best > FALSE * max(even, typical) - FALSE * best:
            fault = f"falsely {outcome}"
        descended = int(solution.evaluations[sample]) > 0
        found.append(
            Judged(
                f"{case.words}, sample {sample}", tuple(case.network.head.kinds), outcome, descended,
                int(solution.evaluations[sample]), loss, best, even, gap, fault,
            )
        )  # fmt: skip
    return found


def _measured(case: Case, solution: Solution, endpoint: str, steps: int) -> list[tuple[float, float, float, float]]:
    """The losses of each sample at an endpoint: its own filter's, the uniform, a usual and the best of the starts."""
    own = solution.filter.reshape(case.batch, 1, -1)
    random = torch.randn(case.batch, 50, case.positions, generator=torch.Generator().manual_seed(case.seed))
    with torch.no_grad():
        again = case.losses(own, endpoint)[:, 0].tolist()
        uniform = case.losses(torch.full_like(own, case.positions**-0.5), endpoint)[:, 0].tolist()
        usual = case.losses(F.normalize(random, dim=2), endpoint).median(dim=1).values.tolist()
    return list(zip(again, uniform, usual, best_of_starts(case, endpoint, steps).tolist(), strict=True))
