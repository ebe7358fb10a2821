"""Networks without trained weights: random ones where no others can be had, zeros filled, batch norms calibrated."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from ..errors import CatalogueError, L2cafError, NetworkError, first_line
from ..recording.borrow import borrowed
from ..recording.inputs import Select
from ..recording.layers import Layer, usable_layers
from .catalogue import ALIASES, DEFAULT, load
from .model import Model

CALIBRATING = 32  # images that batch norms are measured on, at most


def layers_of(name: str, *, output: Select = None) -> tuple[list[Layer], Layer]:
    """The layers that hold a map, in the order in which they finish, and the one that is taken by default."""
    # A network of the user's own decides for itself about weights; all others would have to be downloaded.
    model = load(name, pretrained=ALIASES.get(name, name) == DEFAULT)
    if name != DEFAULT:
        _fill_zeros(model.network)
    return layers_in(model, output=output)


def layers_in(model: Model, *, output: Select = None) -> tuple[list[Layer], Layer]:
    """The same of a network that is loaded."""
    noise = np.random.default_rng(0).integers(0, 256, (256, 256, 3), dtype=np.uint8)
    inputs = model.batch([model.preprocess(Image.fromarray(noise))])
    try:
        found = usable_layers(model.network, inputs, output=output)
    except L2cafError:
        raise
    except Exception as error:  # any network may fail in any way
        raise NetworkError(
            f"{model.name} failed on an input of {tuple(inputs.shape)} ({first_line(error)})."
        ) from error
    return found, model.run(inputs, output=output).head.layer


def trained_or_random(name: str, image: Image.Image) -> Model:
    """Load a network with its trained weights, or with random ones where these cannot be had.

    Random networks have their batch norms measured on the image, so that signals reach the last layer: a dead map
    would make descent stop at once.
    """
    try:
        return load(name)
    except CatalogueError:
        model = load(name, pretrained=False)
    measure_statistics(model.network, model.network.modules(), model.batch([model.prepare(image).input]))
    return model


def measure_statistics(network: nn.Module, modules: Iterable[nn.Module], inputs: Tensor) -> None:
    """Measure, in one run, the statistics of those modules that are batch norms; all else stays as it is.

    The images run together with their mirror images, so that there is a spread where there is one image only.
    """
    norms: list[Any] = [module for module in modules if isinstance(module, _NormBase) and module.track_running_stats]
    if not norms:
        return
    some = inputs[:CALIBRATING]
    before = [(norm.momentum, norm.training) for norm in norms]
    with borrowed(network), torch.no_grad():
        try:
            for norm in norms:
                norm.reset_running_stats()
                norm.momentum = None  # a plain mean, not a moving one
                norm.training = True
            network(torch.cat([some, some.flip(-1)]))
        finally:
            for norm, (momentum, training) in zip(norms, before, strict=True):
                norm.momentum, norm.training = momentum, training


def _fill_zeros(network: nn.Module) -> None:
    """Fill weights that start at zero: a branch multiplied by them would seem to reach nothing."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if not name.endswith("bias") and parameter.numel() and not bool(parameter.any()):
                parameter.copy_(torch.rand(parameter.shape, generator=generator))
