"""The layers of a network where a filter can sit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..progress import Progress, silent

if TYPE_CHECKING:
    from ..networks.model import Model
    from ..recording.layers import Layer


@dataclass(frozen=True)
class LayersRequest:
    """A network by its name, and which part of its answer has to depend on the filter: a key or an index."""

    network: str
    select: str | int | None = None


@dataclass(frozen=True)
class LayersResult:
    """The layers in the order in which they finish, and the one that is taken by default."""

    network: str
    layers: tuple[Layer, ...]
    default: Layer

    def as_dict(self) -> dict[str, Any]:
        return {
            "network": self.network,
            "default": self.default.name,
            "layers": [
                {
                    "name": one.name,
                    "type": one.kind,
                    "shape": list(one.shape),
                    "layout": one.layout.kind,
                    "grid": list(one.layout.grid),
                    "prefix": one.layout.prefix,
                    "suffix": one.layout.suffix,
                    "order": one.layout.order and list(one.layout.order),
                    "positions": str(one.verdict),
                    "agreement": round(one.agreement, 3),
                    "call": one.call,
                    "calls": one.calls,
                    "reaches_output": one.reaches,
                    "default": one == self.default,
                }
                for one in self.layers
            ],
        }


def list_layers(request: LayersRequest, *, progress: Progress = silent) -> LayersResult:
    """Run the network once, untrained, and list the layers that hold a map."""
    progress(f"looking through {request.network}", 0, None)

    from ..networks.untrained import layers_of

    found, default = layers_of(request.network, output=request.select)
    return LayersResult(request.network, tuple(found), default)


def layers_in(model: Model) -> LayersResult:
    """The same of a network that is loaded."""
    from ..networks.untrained import layers_in as found_in

    found, default = found_in(model)
    return LayersResult(model.name, tuple(found), default)
