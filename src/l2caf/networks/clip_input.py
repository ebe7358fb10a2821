"""How a network takes clips, where nobody said: tried out, and never read off a name."""

from __future__ import annotations

from dataclasses import replace

import torch
from PIL import Image

from ..clips import ClipInput
from ..errors import NetworkError, first_line
from .model import Model

# Networks of a fixed length are made for one of these; none is 3, which could be taken for the colours.
LENGTHS = (16, 8, 32, 64, 4)


def with_clip_input(model: Model, frame: Image.Image, *, frames: int | None = None) -> Model:
    """The model with `clip` filled in: what it says of itself, else what it was found to take.

    A network that takes a single picture is left for single pictures. What was found out is in `assumed`.

    frame    of the clip at hand, to try it with
    frames   how many it shall be given at once
    """
    if model.clip is not None:
        return model
    picture = torch.as_tensor(model.ready(frame).input)
    if _refusal(model, picture[None]) is None:
        return model
    refusals = []
    for length in LENGTHS if frames is None else (frames,):
        clip = picture[None].repeat(length, 1, 1, 1)[None]  # (1, T, C, H, W)
        for channels_first in (True, False):
            refusals.append(_refusal(model, clip.transpose(1, 2) if channels_first else clip))
            if refusals[-1] is None:
                order = "(B, C, T, H, W)" if channels_first else "(B, T, C, H, W)"
                found = ClipInput(length, channels_first, spread=not channels_first)
                words = (
                    f"the network takes clips as {order}, {length} frames at once; tell it another number, or give a"
                )
                words += " Model with clip=ClipInput(…)"
                return replace(model, clip=found, assumed={**model.assumed, "clip": words})
    tried = f"{frames} frames" if frames is not None else f"clips of {', '.join(map(str, LENGTHS))} frames"
    raise NetworkError(
        f"{model.name} takes neither single pictures nor {tried}, as (B, C, T, H, W) or (B, T, C, H, W): say how many"
        " frames it takes, or give an l2caf.Model with clip=ClipInput(…). To the last of these it said:"
        f" {refusals[-1]}",
        field="frames",
    )


def _refusal(model: Model, inputs: torch.Tensor) -> str | None:
    """What a network says to an input that it does not take; None where it takes it."""
    try:
        with torch.no_grad():
            model.network(model.batch(inputs.contiguous()))
    except Exception as error:  # noqa: BLE001 - a network may refuse an input in any way
        return first_line(error)
    return None
