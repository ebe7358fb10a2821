"""`Prediction`: which positions keep what the network says, with no class named.

With z the scores, T the temperature and p = softmax(z / T), the prediction of the filtered output z_f is p_f, and what
is made small is the divergence KL(p, p_f). To second order it is half the squared length of z - z_f in the metric of
the prediction,

    KL(p, p_f) = 1/2 (z - z_f)^T M (z - z_f),    M = (diag(p) - p p^T) / T^2,

so that an affine head has a closed form (`solvers/exact.py`): the sphere's least squares with S J in place of J, for
any S with S^T S = M / 2. Scores count by how much they compete: of a thousand, a few matter to softmax.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from ..errors import InputError
from ..numerics import rows
from ..softmax_metric import LEAST, MetricArrays, softmax_metric
from .classes import scores_of
from .objective import LeastSquares, Loss, Losses, Metric, Objective

Kind = Literal["softmax", "sigmoid"]

SUMS_TO_ONE = 1e-4  # how nearly probabilities do; in half precision, to some units of its rounding


@dataclass(frozen=True)
class Prediction(Objective):
    """min KL(p, p_f), p = softmax(NT / T), p_f = softmax(FT(f) / T): which positions keep what the network says.

    Where the head is affine, the divergence to second order, in closed form; elsewhere descent on the divergence
    itself. A higher `temperature` weighs more of the classes that compete; at 1, of a confident network, only the
    best class and the runner-up count. Rows of non-negative numbers that sum to 1 are probabilities already.

    With `kind="sigmoid"` every score is a yes or no of its own, and the metric is diag(p (1 - p)); rows of two or more
    numbers from 0 to 1 are probabilities already. One score is such an answer under either kind.

    Not for embeddings: the uniform filter keeps their direction already, so `ClassOblivious` is the question to ask.

    >>> loss = Prediction().losses(torch.tensor([[3.0, 1.0, 0.0]])).losses[0]
    >>> float(loss(torch.tensor([[3.0, 1.0, 0.0]]))), float(loss(torch.tensor([[4.0, 2.0, 1.0]])))
    (0.0, 0.0)
    """

    temperature: float = 2.0
    kind: Kind = "softmax"

    needs_scale = True
    only_of_output = True

    def __post_init__(self) -> None:
        number = isinstance(self.temperature, (int, float)) and not isinstance(self.temperature, bool)
        if not number or not (0 < self.temperature < math.inf):
            raise InputError(
                f"The temperature is {self.temperature!r}: give a number above 0, such as 2.", field="temperature"
            )
        if self.kind not in ("softmax", "sigmoid"):
            raise InputError(f"The kind is {self.kind!r}: give softmax or sigmoid.", field="kind")

    def losses(self, output: Tensor) -> Losses:
        scores = scores_of(output)
        kind: Kind = self.kind if scores.shape[1] > 1 else "sigmoid"
        are_probabilities = _are_probabilities(scores, kind)
        logits = _logits(scores, are_probabilities)
        second_order = None
        if not bool(are_probabilities.any()):  # else the head ends in a softmax, and is no affine map
            metric = (_softmax_metric if kind == "softmax" else _sigmoid_metric)(logits, self.temperature)
            second_order = LeastSquares(output, metric)
        return Losses((Divergence(kind, self.temperature, logits, are_probabilities, second_order),))

    def repeated(self, times: int) -> Prediction:
        return self


@dataclass(frozen=True)
class Divergence(Loss):
    """KL(p, p_f), one number per sample: in nats, and summed over the answers where there are several.

    `logits` are the untouched scores, (B, m); `are_probabilities` tells for which samples the network's own are none.
    """

    kind: Kind
    temperature: float
    logits: Tensor
    are_probabilities: Tensor
    approximation: Loss | None = field(default=None)

    def __call__(self, output: Tensor) -> Tensor:
        logits = _logits(rows(output), self.are_probabilities.to(output.device)) / self.temperature
        kept = self.logits.to(logits) / self.temperature
        if self.kind == "softmax":
            log_p, log_q = kept.log_softmax(dim=1), logits.log_softmax(dim=1)
            return (log_p.exp() * (log_p - log_q)).sum(dim=1)
        log = torch.nn.functional.logsigmoid
        return sum(  # type: ignore[return-value]
            (log(sign * kept).exp() * (log(sign * kept) - log(sign * logits))).sum(dim=1) for sign in (1, -1)
        )


def _are_probabilities(scores: Tensor, kind: Kind) -> Tensor:
    """For which samples the scores are probabilities already: (B,)."""
    none = torch.zeros(len(scores), dtype=torch.bool, device=scores.device)
    # A logit from 0 to 1 looks the same; and of many scores, nearly always one is negative.
    if scores.shape[1] == 1 or bool((scores.amin(dim=1) < 0).all()):
        return none
    if kind == "sigmoid":
        return ((scores >= 0) & (scores <= 1)).all(dim=1)
    slack = max(SUMS_TO_ONE, 4 * torch.finfo(scores.dtype).eps)
    return (scores >= 0).all(dim=1) & ((scores.double().sum(dim=1) - 1).abs() <= slack)


def _logits(scores: Tensor, are_probabilities: Tensor) -> Tensor:
    """Scores in double precision, whose softmax (or sigmoid) is the prediction."""
    scores = scores.double()
    if not bool(are_probabilities.any()):
        return scores
    return torch.where(are_probabilities.unsqueeze(1), scores.clamp_min(1e-300).log(), scores)


def _softmax_metric(logits: Tensor, temperature: float) -> Metric:
    # Arrays, since of a thousand numbers a dozen operations on tensors cost more than the numbers.
    made = softmax_metric(logits.cpu().numpy(), temperature)
    sizes, mean, reach = (torch.from_numpy(one).to(logits.device) for one in made)
    return SoftmaxMetric(sizes, mean, reach, made)


@dataclass(frozen=True)
class SoftmaxMetric(Metric):
    """S v = a (v - sum(u v)) with `sizes` a and a mean's weights `mean` u, both (B, m); `reach` is (B,)."""

    sizes: Tensor
    mean: Tensor
    reach: Tensor  # |w| is at most 2, and the shares sum to 1
    arrays: MetricArrays | None = None

    def push(self, values: Tensor) -> Tensor:
        values = values.double()
        middle = torch.linalg.vecdot(_beside(self.mean, values), values).unsqueeze(-1)
        return _beside(self.sizes, values) * (values - middle)

    def pull(self, directions: Tensor) -> Tensor:
        pulled = _beside(self.sizes, directions) * directions.double()
        return pulled - pulled.sum(dim=-1, keepdim=True) * _beside(self.mean, directions)

    def only(self, samples: Tensor) -> Metric:
        chosen = samples.cpu().numpy()
        arrays = None if self.arrays is None else MetricArrays(*(one[chosen] for one in self.arrays))
        return SoftmaxMetric(self.sizes[samples], self.mean[samples], self.reach[samples], arrays)


def _sigmoid_metric(logits: Tensor, temperature: float) -> Metric:
    """||S v||^2 = sum p (1 - p) v^2 / (2 T^2)."""
    scaled = logits.nan_to_num(0.0, 0.0, 0.0) / temperature
    log = torch.nn.functional.logsigmoid(scaled) + torch.nn.functional.logsigmoid(-scaled)
    most = log.amax(dim=1, keepdim=True)
    size = (most.exp() / (2 * temperature**2)).clamp_min(LEAST).sqrt()
    return SigmoidMetric(size * ((log - most) / 2).exp())


@dataclass(frozen=True)
class SigmoidMetric(Metric):
    """S v = s v, for `sizes` s of (B, m)."""

    sizes: Tensor

    @property
    def reach(self) -> Tensor:  # type: ignore[override]
        return self.sizes.norm(dim=1)

    def push(self, values: Tensor) -> Tensor:
        return _beside(self.sizes, values) * values.double()

    def pull(self, directions: Tensor) -> Tensor:
        return self.push(directions)

    def only(self, samples: Tensor) -> Metric:
        return SigmoidMetric(self.sizes[samples])


def _beside(own: Tensor, values: Tensor) -> Tensor:
    """What belongs to each sample, (B, m), in the shape of (B, m) or (B, n, m) values."""
    return own if values.ndim == 2 else own.unsqueeze(1)
