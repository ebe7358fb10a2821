"""`GradCAM` and `GradCAMAbs`: the map weighed, channel by channel, with the mean gradient of a score."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..heads.gradient import gradient_of
from ..heads.head import Head
from ..numerics import rows
from ..objectives.classes import ClassChoice, scores_of
from .method import Maps, Method


@dataclass(frozen=True, kw_only=True)
class GradCAM(ClassChoice, Method):
    """M = ReLU(sum_k alpha_k A_k), alpha_k = mean over positions of dy / dA_k.

    y is a class score, or with `embedding=True` the sum over the whole output, the baseline for networks that give
    an embedding. Classes are given as to `ClassSpecific`.

    >>> network = torch.nn.Sequential(
    ...     torch.nn.Conv2d(3, 8, 4, stride=4), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    ... )
    >>> GradCAM(top=2)(network, torch.rand(1, 3, 32, 32))
    Heatmap(1 sample of 32×32, 2 maps each, layer '0', GradCAM, formula)
    """

    embedding: bool = False

    def formula(self, head: Head) -> Maps:
        return _grad_cam(head, None if self.embedding else self, keeps_sign=True)


@dataclass(frozen=True, kw_only=True)
class GradCAMAbs(ClassChoice, Method):
    """M = |sum_k alpha_k A_k|: Grad-CAM with the magnitude in place of the positive part.

    >>> network = torch.nn.Sequential(
    ...     torch.nn.Conv2d(3, 8, 4, stride=4), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    ... )
    >>> bool((GradCAMAbs(3)(network, torch.rand(1, 3, 32, 32)).maps >= 0).all())
    True
    """

    embedding: bool = False

    def formula(self, head: Head) -> Maps:
        return _grad_cam(head, None if self.embedding else self, keeps_sign=False)


def _grad_cam(head: Head, asked: ClassChoice | None, *, keeps_sign: bool) -> Maps:
    layout = head.layout
    with torch.enable_grad():
        leaf = head.features.detach().clone().requires_grad_()
        output = head.rerun(leaf.clone())  # what follows may write into it
        if asked is None:
            chosen, scores, several = None, [rows(output).sum(dim=1)], False
        else:
            chosen, several = asked.choose(output.detach()), asked.several
            scores = [scores_of(output).gather(1, column.unsqueeze(1)).squeeze(1) for column in chosen.T]
        gradients = [gradient_of(score.sum(), leaf, again=True) for score in scores]
    columns = layout.columns(leaf.detach())
    maps = [(layout.columns(gradient).mean(dim=2, keepdim=True) * columns).sum(dim=1) for gradient in gradients]
    stack = torch.stack(maps, dim=1).unflatten(2, layout.shape).float()
    return Maps(stack if several else stack[:, 0], keeps_sign=keeps_sign, classes=chosen, several=several)
