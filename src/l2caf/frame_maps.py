"""The maps of a clip frame by frame: a heatmap with an axis of time, brought to the frames that the network saw."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from .drawings import map_of
from .errors import InputError
from .preprocessing import Crop
from .rendering.drawn import Heat
from .solution import chosen_samples

if TYPE_CHECKING:
    from PIL.Image import Image

    from .heatmap import Heatmap


def frames_in(heatmap: Heatmap) -> int | None:
    """How many frames the network saw of a clip; None of what is no clip."""
    if "frame" in heatmap.axes:
        return int(heatmap.weights.shape[heatmap.axes.index("frame")])
    return heatmap.size[0] if len(heatmap.size) == 3 else None


def has_filters_of_their_own(heatmap: Heatmap) -> bool:
    """Whether each frame has a filter that was found while the others were off."""
    return "frame" in heatmap.axes and bool(heatmap.solution.frames)


def filters_in_time(heatmap: Heatmap, index: int, frames: int) -> Tensor:
    """One sample's filters with their sign, for each frame on the layer's grid: (maps, frames, rows, columns)."""
    return _in_time(heatmap, _weights(heatmap, index), frames)


def grids_in_time(heatmap: Heatmap, index: int, frames: int, *, signed: bool) -> Tensor:
    """The same as they are shown: the largest magnitude of each filter is 1, be it one for all frames or one each."""
    weights = _weights(heatmap, index)
    shown = weights if signed else weights.clamp_min(0) if heatmap.keeps_sign else weights.abs()
    grids = _in_time(heatmap, shown, frames)
    axes = (2, 3) if has_filters_of_their_own(heatmap) else (1, 2, 3)
    return grids / grids.abs().amax(dim=axes, keepdim=True).clamp_min(torch.finfo(grids.dtype).tiny)


def maps_in_time(heatmap: Heatmap, index: int, frames: int, *, signed: bool) -> Tensor:
    """The same at the size of the input: (maps, frames, height, width)."""
    maps = (heatmap.signed if signed else heatmap.maps)[index].detach().float().cpu()
    maps = maps if "map" in heatmap.axes else maps[None]
    return maps if frames_in(heatmap) is not None else maps[:, None].expand(-1, frames, -1, -1)


def heats_in_time(heatmap: Heatmap, index: int, which: int, *, signed: bool, crop: Crop | None) -> list[Heat]:
    """One map of one clip, frame by frame, with all that is needed to draw it."""
    frames = frames_in(heatmap) or 1
    grids = grids_in_time(heatmap, index, frames, signed=signed)[which].numpy()
    fine = maps_in_time(heatmap, index, frames, signed=signed)[which].numpy()
    return [Heat(grid, map_, signed, crop) for grid, map_ in zip(grids, fine, strict=True)]


def shares_in_time(heatmap: Heatmap, index: int, frames: int) -> Tensor:
    """How much each frame weighs beside an even share of all of them, (maps, frames): 1 is even.

    >>> from l2caf import Heatmap
    >>> clip = Heatmap(torch.tensor([[[[1.0]], [[2.0]]]]), (4, 8, 8), "layer", "method")
    >>> [round(weight, 2) for weight in shares_in_time(clip, 0, 4)[0].tolist()]
    [0.4, 0.7, 1.3, 1.6]
    """
    if frames_in(heatmap) is None:
        return torch.ones(len(_weights(heatmap, index)), frames)
    return heatmap.frame_weights[index].detach().cpu().reshape(-1, frames) * frames


def _weights(heatmap: Heatmap, index: int) -> Tensor:
    """(maps, *grid), the grid with slots of time where there are any; without, (maps, 1, rows, columns)."""
    weights = heatmap.weights[index].detach().float().cpu()
    weights = weights if "map" in heatmap.axes else weights[None]
    return weights if frames_in(heatmap) is not None else weights[:, None]


def _in_time(heatmap: Heatmap, weights: Tensor, frames: int) -> Tensor:
    if weights.shape[1] == frames:
        return weights
    if weights.shape[1] == 1:  # of a map without an axis of time, or of a layer with one slot of it
        return weights.expand(-1, frames, -1, -1)
    return interpolate(weights[None], size=(frames, *weights.shape[2:]), mode="trilinear")[0]


def save_in_time(
    heatmap: Heatmap,
    path: Path,
    frames: Any,
    index: int | None,
    which: int | None,
    *,
    signed: bool,
    preprocess: Any,
    **style: Any,
) -> Path:
    """Write a film, or a strip, of one map of one clip."""
    from .preprocessing import crop_of
    from .rendering.clip import save_clip
    from .transforms import readable

    count = frames_in(heatmap)
    if count is None:
        raise InputError(f"A map with the axes {', '.join(heatmap.axes[1:])} does not move: save it as .png or .npy.")
    if index is None and len(heatmap) > 1:
        raise InputError(f"There are {len(heatmap)} clips, and a film is of one: choose it with index=.")
    (chosen,) = chosen_samples([index or 0], len(heatmap))
    map_of(heatmap, chosen, which, signed=signed)  # says what is wrong with `which`

    def heats(picture: Image | None) -> list[Heat]:
        known = None if heatmap.crops is None else heatmap.crops[chosen]
        crop = known if preprocess is None or picture is None else crop_of(readable(preprocess), picture)
        return heats_in_time(heatmap, chosen, which or 0, signed=signed, crop=crop)

    return save_clip(path, frames, heats, count=count, signed=signed, **style)
