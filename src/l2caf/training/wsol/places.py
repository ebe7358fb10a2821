"""Where ADL sits: behind modules of one's choice, or behind the ends of the stages that are trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...networks.adl import THRESHOLD, AttentionMean, put_adl
from ...networks.embedding import Backbone
from ...networks.erasing import ErasingHead
from ...networks.localiser import RESNET, VGG, MeanHead
from ..freezing import Cut, stages

if TYPE_CHECKING:
    from .recipe import WsolRecipe

AUTO = "auto"
END = ""  # the whole trunk
PUBLISHED = {VGG: ("16", "23", "29")}  # behind the third and fourth pooling, and behind the last convolution
THRESHOLDS = {RESNET: 0.9}
LAST = 2  # stages at the end that count where nothing is published


def put_layers(
    recipe: WsolRecipe, backbone: Backbone, cut: Cut, head: MeanHead | ErasingHead, probe: Tensor
) -> list[str]:
    """Put ADL into the part that is trained, and say in sentences which published places are not in it."""
    if recipe.adl_at == AUTO:
        wanted = PUBLISHED.get(backbone.name) or _ends(backbone, probe)
        places = [name for name in wanted if name in dict(cut.upper.named_modules()) and not _is_gone(cut, name)]
    else:
        wanted = places = [name.strip() for name in recipe.adl_at.split(",")]
    rate, given, channels = recipe.drop_rate, recipe.drop_threshold, 3 if backbone.channels_last else 1
    threshold = THRESHOLDS.get(backbone.name, THRESHOLD) if given is None else given
    behind = [*(places or [END])]
    if END in behind and isinstance(head, MeanHead) and head.is_linear:  # the mean comes next, and takes the weights
        behind.remove(END)
        head.pool = AttentionMean(head.pool, rate, threshold, channels=channels)
    put_adl(cut.upper, behind, rate=rate, threshold=threshold, channels=channels)
    frozen = [name for name in wanted if name not in places]
    return [f"ADL is not behind {', '.join(frozen)}, which is frozen"] if frozen else []


def _ends(backbone: Backbone, probe: Tensor) -> list[str]:
    """The ends of the last stages, and of the trunk where more follows them."""
    found = stages(backbone.trunk, probe)[-LAST:]
    with torch.no_grad():
        shape = backbone.trunk(probe).shape
    seen: list[torch.Size] = []
    if found:
        hook = backbone.trunk.get_submodule(found[-1]).register_forward_hook(lambda *call: seen.append(call[2].shape))
        with torch.no_grad():
            backbone.trunk(probe)
        hook.remove()
    return [*found, *([END] if not seen or seen[-1] != shape else [])]


def _is_gone(cut: Cut, name: str) -> bool:
    """Whether the cut put something that does nothing in the place of a module."""
    return type(cut.upper.get_submodule(name)) is not type(cut.trunk.get_submodule(name)) and bool(name)
