"""What makes pictures of a class alike: the triplet loss and the N-pair loss, as pytorch-metric-learning has them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from ...errors import ExtraError, InputError

if TYPE_CHECKING:
    from torch import Tensor

MARGIN = 0.2


class EmbeddingLoss(ABC):
    """From raw embeddings (B, d) and labels (B,) to one number.

    normalized   whether the loss, and then retrieval, looks at the embeddings on the unit sphere
    length       mean squared length that embeddings should have at the start
    each         pictures of a class in a batch
    rates        learning rates that suit it, of the linear layer and of the trunk
    keep         share of the start that suits it in the weights that are shipped
    """

    name: str
    normalized: bool
    length: float
    each: int
    rates: tuple[float, float]
    keep: float

    @abstractmethod
    def __call__(self, embeddings: Tensor, labels: Tensor) -> Tensor: ...


class SemiHardTriplet(EmbeddingLoss):
    """Mean of max(0, |a − p| − |a − n| + margin) over the semi-hard triplets, on the unit sphere.

    Semi-hard: the negative is farther from the anchor than the positive, but by less than the margin. A batch
    without any costs nothing and teaches nothing.
    """

    name = "triplet"
    normalized = True
    length = 1.0
    each = 4
    rates = (3e-4, 1e-4)
    keep = 0.6

    def __init__(self, *, margin: float = MARGIN) -> None:
        library = metric_learning()
        self.distance = library.distances.LpDistance(normalize_embeddings=True, p=2, power=1)
        self.miner = library.miners.TripletMarginMiner(
            margin=margin, type_of_triplets="semihard", distance=self.distance
        )
        self.loss = library.losses.TripletMarginLoss(margin=margin, distance=self.distance)

    def __call__(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return self.loss(embeddings, labels, self.miner(embeddings, labels))


class NPair(EmbeddingLoss):
    """Mean over the classes of −log softmax_j(a_i · p_j) at j = i, on raw embeddings.

    One pair (a_i, p_i) a class and batch. Raw embeddings would grow without end, since length alone lowers the loss
    of a pair that is right; `weight` times their mean squared length is added to hold them.
    """

    name = "npair"
    normalized = False
    length = 5.0  # the softmax over classes is then neither flat nor sure of itself
    each = 2
    rates = (1e-3, 3e-4)
    keep = 0.5

    def __init__(self, *, weight: float = 0.0) -> None:
        library = metric_learning()
        self.loss = library.losses.NPairsLoss(
            distance=library.distances.DotProductSimilarity(normalize_embeddings=False),
            embedding_regularizer=library.regularizers.LpRegularizer(p=2, power=2) if weight else None,
            embedding_reg_weight=weight,
        )

    def __call__(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return self.loss(embeddings, labels)


LOSSES: dict[str, type[SemiHardTriplet] | type[NPair]] = {"triplet": SemiHardTriplet, "npair": NPair}


def loss_by_name(name: str) -> EmbeddingLoss:
    """The loss that a person names."""
    if name not in LOSSES:
        raise InputError(f"There is no loss {name!r}: take {' or '.join(LOSSES)}.", field="loss")
    return LOSSES[name]()


def metric_learning() -> Any:
    """The library of losses and miners, which is an extra."""
    try:
        import pytorch_metric_learning.distances
        import pytorch_metric_learning.losses
        import pytorch_metric_learning.miners
        import pytorch_metric_learning.regularizers
    except ImportError as error:
        raise ExtraError("Training needs pytorch-metric-learning: pip install pytorch-metric-learning.") from error
    return pytorch_metric_learning
