"""Do the maps lie where they should, and does a head that feels no scale still get an honest one?"""

from __future__ import annotations

import numpy
import skimage.data
import torch
from PIL import Image
from torch import Tensor

from l2caf import ClassOblivious, ClassSpecific, explain
from l2caf.networks.catalogue import load
from l2caf.networks.imports import import_timm

from .row import Row
from .subjects import batch

CAT, CUP = 285, 967  # Egyptian cat, espresso


def rows() -> list[Row]:
    return [*_two_objects(), *_no_scale()]


def _two_objects() -> list[Row]:
    model = load()
    halves = [Image.fromarray(picture()).resize((224, 224)) for picture in (skimage.data.chelsea, skimage.data.coffee)]
    both = Image.fromarray(numpy.concatenate([numpy.asarray(half) for half in halves], axis=1))
    mean, std = 0.498, 0.502
    tensor = (torch.from_numpy(numpy.array(both)).permute(2, 0, 1)[None] / 255 - mean) / std
    found = []
    for published in (False, True):
        objective = ClassSpecific(classes=[CAT, CUP], published=published)
        shares = _shares(explain(model.network, tensor, objective=objective).maps[0])
        form = "as published" if published else "centred"
        found.append(
            Row(
                f"cat and cup side by side, {form}: share of each map's energy on its own half",
                f"cat {shares[0]:.2f}, cup {shares[1]:.2f}",
                "" if published else "≥ 0.80 both",
                None if published else min(shares) >= 0.8,
                {"cat": shares[0], "cup": shares[1]},
            )
        )
    return found


def _shares(maps: Tensor) -> tuple[float, float]:
    energy = maps.square()
    middle = maps.shape[-1] // 2
    cat = energy[0, :, :middle].sum() / energy[0].sum()
    cup = energy[1, :, middle:].sum() / energy[1].sum()
    return cat.item(), cup.item()


def _no_scale() -> list[Row]:
    found = []
    timm = import_timm()
    for name in ("convnext_tiny", "vit_tiny_patch16_224", "swin_tiny_patch4_window7_224"):
        torch.manual_seed(0)
        network = timm.create_model(name).eval()
        heatmap = explain(network, batch(2), objective=ClassOblivious())
        filters = heatmap.solution.filter.flatten(1)
        spread = ((filters.amax(1) - filters.amin(1)) / filters.abs().amax(1)).min().item()
        said = sorted({str(outcome) for outcome in heatmap.solution.outcome})
        found.append(
            Row(
                f"{name}: class-oblivious, kept at {heatmap.solution.endpoint}",
                f"{', '.join(said)}; weights vary by {100 * spread:.0f} % of the largest",
                "never silently flat",
                spread > 1e-3 or all(outcome.shows_nothing for outcome in heatmap.solution.outcome),
                {"spread": spread, "endpoint": heatmap.solution.endpoint},
            )
        )
    return found
