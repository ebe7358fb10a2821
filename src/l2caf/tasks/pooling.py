"""How much a network's own pooling counts each slot of time, apart from what a filter finds there."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from ..heads.head import Head

NOTABLE = 0.05  # less than the largest share by more than this is told


def pooling_note(head: Head, frames: int) -> str | None:
    """One sentence where some frames count less than others; None where all count the same, or nobody can tell."""
    shares = slot_shares(head)
    if shares is None:
        return None
    edges = [
        (round(slot * frames / len(shares)), round((slot + 1) * frames / len(shares))) for slot in range(len(shares))
    ]
    less = [
        f"{start + 1} to {stop} count {share:.2g} times as much"
        for (start, stop), share in zip(edges, shares, strict=True)
        if share < 1 - NOTABLE
    ]
    if not less:
        return None
    return f"The network's own pooling counts some frames less than the others, whatever they show: {', '.join(less)}."


def slot_shares(head: Head) -> list[float] | None:
    """The share of each slot of time beside the largest; None where the map has no time, or the head is not affine.

    Were all positions alike, only the pooling could tell them apart: every one gets the mean of all. Then
    FT(1 on one slot, 0 elsewhere) - FT(0) is what that slot adds, and its length the slot's share. Of a head that is
    not affine in the filter the shares would not add up.
    """
    import torch

    layout = head.layout
    if len(layout.grid) != 3 or layout.frames is not None or not head.is_affine:
        return None
    with torch.no_grad():
        alike = _all_alike(head)
        filters = torch.zeros(layout.grid[0] + 1, *layout.grid, dtype=alike.dtype, device=alike.device)
        for slot in range(layout.grid[0]):
            filters[slot + 1, slot] = 1
        empty, *added = (
            head.rerun(layout.weigh(alike, one.flatten().expand(head.batch, -1))).float() for one in filters
        )
        shares = [float((output - empty).norm()) for output in added]
    return [share / max(shares) for share in shares] if max(shares) > 0 else None


def _all_alike(head: Head) -> Tensor:
    """The layer's output with the mean of all positions at every one; what has no position stays."""
    layout, features = head.layout, head.features
    mean = head.columns.mean(dim=2).to(features)  # (B, C)
    if layout.kind == "channels_first":
        return mean.reshape(*mean.shape, *[1] * (features.ndim - 2)).expand_as(features).clone()
    if layout.kind == "channels_last":
        return mean.reshape(len(mean), *[1] * (features.ndim - 2), -1).expand_as(features).clone()
    made = features.clone()
    made[:, layout.prefix : features.shape[1] - layout.suffix] = mean[:, None]
    return made
