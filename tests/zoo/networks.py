"""All networks of the zoo."""

from __future__ import annotations

from . import odd_inputs, odd_positions, timm_zoo, torchvision_zoo, trained_zoo, transformers_zoo
from .entry import Network

NETWORKS: tuple[Network, ...] = (
    *timm_zoo.NETWORKS,
    *torchvision_zoo.NETWORKS,
    *transformers_zoo.NETWORKS,
    *odd_inputs.NETWORKS,
    *odd_positions.NETWORKS,
    *trained_zoo.NETWORKS,
)


def named(name: str) -> Network:
    """The network of a name."""
    return next(network for network in NETWORKS if network.name == name)
