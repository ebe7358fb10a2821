"""The layers of a network by name, without its weights."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image
from torch import nn

from ..errors import L2cafError, NetworkError
from ..networks.catalogue import DEFAULT, load
from ..recording.inputs import Select
from ..recording.layers import Layer, usable_layers
from ..recording.replay import Replay
from .subject import said


def layers_of(name: str, *, select: Select = None) -> tuple[list[Layer], Layer]:
    """The layers that hold a map, in the order in which they finish, and the one that is taken by default."""
    # A network of the user's own decides for itself about weights; all others would have to be downloaded.
    entry = load(name, pretrained=name == DEFAULT)
    if name != DEFAULT:
        _wake(entry.network)
    noise = np.random.default_rng(0).integers(0, 256, (256, 256, 3), dtype=np.uint8)
    inputs = entry.preprocess(Image.fromarray(noise)).unsqueeze(0)
    try:
        return usable_layers(entry.network, inputs, select=select), Replay(entry.network, inputs, select=select).layer
    except L2cafError:
        raise
    except Exception as error:  # any network may fail in any way
        raise NetworkError(f"{name} failed on an input of {tuple(inputs.shape)} ({said(error)}).") from error


def _wake(network: nn.Module) -> None:
    """Fill weights that start at nought: a branch multiplied by them would seem to reach nothing."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if not name.endswith("bias") and parameter.numel() and not bool(parameter.any()):
                parameter.copy_(torch.rand(parameter.shape, generator=generator))
