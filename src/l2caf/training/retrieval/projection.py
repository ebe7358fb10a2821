"""The linear layer before training: principal axes of the backbone's features, or a random rotation."""

from __future__ import annotations

import torch
from torch import Tensor

from ...networks.embedding import Backbone, EmbeddingNetwork, load_backbone


def embedding_before_training(
    backbone: str | Backbone, dimension: int = 128, *, features: Tensor | None = None
) -> EmbeddingNetwork:
    """A retrieval network that has seen no labels.

    features   pooled features (N, C) of the training images: the linear layer becomes their PCA, so that the
               embedding keeps of what the backbone knows as much as fits; without them it is a random rotation
    """
    source = load_backbone(backbone) if isinstance(backbone, str) else backbone
    network = EmbeddingNetwork(
        source.trunk, channels=source.channels, dimension=dimension, channels_last=source.channels_last
    )
    weight, bias = random_projection(source.channels, dimension) if features is None else pca(features, dimension)
    with torch.no_grad():
        network.embed.weight.copy_(weight)
        network.embed.bias.copy_(bias)
    return network.eval()


def pca(
    features: Tensor, dimension: int, *, whiten: float = 0.0, centred: bool = True, length: float | None = None
) -> tuple[Tensor, Tensor]:
    """Weight (dimension, C) and bias (dimension,) of the projection on the principal axes of features (N, C).

    whiten    each axis is divided by its standard deviation to this power: 0 keeps distances, 1 makes all axes alike
    centred   whether the mean is taken off, by the bias
    length    mean squared length that the embeddings get; None keeps that of the features

    Axes beyond the rank of the features are random ones, orthogonal to the others.
    """
    values = features.double()
    mean = values.mean(dim=0)
    _, scales, axes = torch.linalg.svd(values - mean, full_matrices=False)
    rank = min(int((scales > 1e-6 * scales.max().clamp_min(1e-300)).sum()), dimension)
    weight, spread = axes[:rank], scales[:rank]
    if rank < dimension:
        rest = random_projection(values.shape[1], dimension)[0].double()[rank:]
        weight = torch.cat([weight, rest - rest @ weight.T @ weight])
        least = spread[-1:] if rank else torch.ones(1, dtype=values.dtype)
        spread = torch.cat([spread, least.expand(dimension - rank)])
    weight = weight * ((spread / spread[0]) ** -whiten)[:, None]
    bias = -(weight @ mean) if centred else torch.zeros(dimension, dtype=values.dtype)
    if length is not None:
        made = (values @ weight.T + bias).square().sum(dim=1).mean()
        scale = (length / made.clamp_min(1e-12)).sqrt()
        weight, bias = weight * scale, bias * scale
    return weight.to(features.dtype), bias.to(features.dtype)


def random_projection(channels: int, dimension: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Weight and bias of a random rotation into `dimension` numbers; the same every time."""
    draws = torch.randn(max(channels, dimension), channels, generator=torch.Generator().manual_seed(seed))
    weight = torch.linalg.qr(draws.T @ draws)[0][:dimension] if dimension <= channels else draws[:dimension]
    return weight, torch.zeros(dimension)
