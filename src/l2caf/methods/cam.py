"""`CAM`: how much each position adds to a class score."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..errors import MethodError
from ..heads.head import Head
from ..objectives.classes import ClassChoice, scores_of
from .method import Maps, Method


@dataclass(frozen=True)
class CAM(ClassChoice, Method):
    """M_c(x) = sum_k w_ck A_k(x), for a head that averages the positions and is linear after that.

    The weights are not read off a module: M_c is the gradient of the class score in the filter, times the number of
    positions, which is the same thing wherever the head is affine. The map shown is the positive part. Classes are
    given as to `ClassSpecific`.

    >>> network = torch.nn.Sequential(
    ...     torch.nn.Conv2d(3, 8, 4, stride=4), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    ... )
    >>> CAM(3)(network, torch.rand(1, 3, 32, 32))
    Heatmap(1 sample of 32×32, layer '0', CAM, formula)
    """

    def formula(self, head: Head) -> Maps:
        # An output that no filter moves is affine too; its map is empty.
        if not head.is_affine and bool(head.moved().any()):
            raise MethodError(
                "CAM needs a head that averages the map and is linear after that, and this one is not: "
                "use GradCAM or AttentionFilter."
            )
        scores = scores_of(head.output.detach())
        chosen = self.choose(scores)
        hot = torch.nn.functional.one_hot(chosen.T, scores.shape[1]).to(scores)
        contributions = (head.gradients(hot) * head.positions).transpose(0, 1)
        maps = contributions.unflatten(2, head.layout.shape)
        return Maps(maps if self.several else maps[:, 0], keeps_sign=True, classes=chosen, several=self.several)
