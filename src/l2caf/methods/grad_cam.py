"""`GradCAM` and `GradCAMAbs`: the map weighed, channel by channel, with the mean gradient of a score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..heads.gradient import gradient_of
from ..heads.head import Head
from ..numerics import rows
from ..objectives.classes import ClassSpecific
from .method import Maps, Method


@dataclass(frozen=True)
class GradCAM(Method):
    """M = ReLU(sum_k alpha_k A_k), alpha_k = mean over positions of dy / dA_k.

    y is a class score, or with `embedding=True` the sum over the whole output, the baseline for networks that give
    an embedding. Classes are given as to `ClassSpecific`.
    """

    classes: int | Sequence[int] | None = None
    top: int | None = None
    each: Sequence[int] | Tensor | None = None
    embedding: bool = False

    def formula(self, head: Head) -> Maps:
        return _grad_cam(head, self.classes, self.top, self.each, embedding=self.embedding, keeps_sign=True)


@dataclass(frozen=True)
class GradCAMAbs(Method):
    """M = |sum_k alpha_k A_k|: Grad-CAM with the magnitude in place of the positive part."""

    classes: int | Sequence[int] | None = None
    top: int | None = None
    each: Sequence[int] | Tensor | None = None
    embedding: bool = False

    def formula(self, head: Head) -> Maps:
        return _grad_cam(head, self.classes, self.top, self.each, embedding=self.embedding, keeps_sign=False)


def _grad_cam(
    head: Head,
    classes: int | Sequence[int] | None,
    top: int | None,
    each: Sequence[int] | Tensor | None,
    *,
    embedding: bool,
    keeps_sign: bool,
) -> Maps:
    layout = head.layout
    with torch.enable_grad():
        leaf = head.features.detach().clone().requires_grad_()
        output = head.rerun(leaf.clone())  # what follows may write into it
        if embedding:
            chosen, scores, several = None, [rows(output).sum(dim=1)], False
        else:
            asked = ClassSpecific(classes, top, each)
            chosen, several = asked.choose(output.detach()), asked.several
            scores = [output.gather(1, column.unsqueeze(1)).squeeze(1) for column in chosen.T]
        gradients = [gradient_of(score.sum(), leaf, again=True) for score in scores]
    columns = layout.columns(leaf.detach())
    maps = [(layout.columns(gradient).mean(dim=2, keepdim=True) * columns).sum(dim=1) for gradient in gradients]
    stack = torch.stack(maps, dim=1).unflatten(2, layout.shape).float()
    return Maps(stack if several else stack[:, 0], keeps_sign=keeps_sign, classes=chosen, several=several)
