"""The part of a retrieval network that is trained, and its weights averaged over time and with those of the start."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ..networks.embedding import EmbeddingNetwork
from .cutting import Cut

State = dict[str, Tensor]


class Moving(nn.Module):
    """From features at the cut to embeddings; its parameters are the network's own.

    It stays in eval mode: the batches are small and of few classes, and statistics taken from them would be worse
    than those that the backbone brings.
    """

    def __init__(self, network: EmbeddingNetwork, cut: Cut) -> None:
        super().__init__()
        self.upper = cut.upper
        self.pool = network.pool
        self.embed = network.embed
        self.eval()

    def pooled(self, features: Tensor) -> Tensor:
        return self.pool(self.upper(features))

    def forward(self, features: Tensor) -> Tensor:
        return self.embed(self.pooled(features))


def weights_of(module: nn.Module) -> State:
    """A copy of the parameters, on the processor. Buffers do not move."""
    return {name: value.detach().cpu().clone() for name, value in module.named_parameters()}


def put(weights: Mapping[str, Tensor], module: nn.Module) -> None:
    """Set the parameters."""
    with torch.no_grad():
        for name, value in module.named_parameters():
            value.copy_(weights[name])


class Averages:
    """A running mean of the weights, and the same drawn back towards where they started.

    What a backbone knew of other classes is lost little by little as its weights leave their start. Half-way between
    start and goal a network keeps nearly all of the old and has most of the new (Wortsman et al., CVPR 2022).

    decay   of the running mean, an iteration; smaller at first, so that the start does not linger by accident
    keep    share of the start in what is shipped: 0 is the running mean itself, 1 would be the start
    """

    def __init__(self, start: State, *, decay: float, keep: float) -> None:
        self.start = start
        self.mean = {name: value.clone() for name, value in start.items()}
        self.decay = decay
        self.keep = keep

    def add(self, module: nn.Module, iteration: int) -> None:
        """Take in the weights after an iteration."""
        rate = 1 - min(self.decay, (1 + iteration) / (10 + iteration))
        for name, value in module.named_parameters():
            self.mean[name].lerp_(value.detach().to(self.mean[name].device), rate)

    def shipped(self) -> State:
        """keep · start + (1 − keep) · mean."""
        return {name: torch.lerp(value, self.start[name], self.keep) for name, value in self.mean.items()}


def all_finite(weights: Mapping[str, Tensor]) -> bool:
    """Whether there is no NaN and no infinity among them."""
    return all(bool(value.isfinite().all()) for value in weights.values())
