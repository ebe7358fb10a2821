"""A filter of one's own: one rectangle of free size and place, with soft edges.

python examples/extend/filter.py
"""

from typing import Any

import torch
from torch import Tensor

import l2caf
from l2caf import Filter
from l2caf.tasks.samples import two_objects

SOFT = 0.5  # cells over which an edge fades


class Rectangle(Filter):
    """f_yx = s(y - top) s(bottom - y) s(x - left) s(right - x), scaled to unit L2 norm.

    Four numbers per sample: where the rectangle begins and ends, from -1 to 1 along each axis. It is for pictures.
    """

    def weights(self, parameters: Tensor, grid: tuple[int, ...]) -> Tensor:
        sides = []
        for axis, cells in enumerate(grid):
            place = torch.linspace(-1, 1, cells, device=parameters.device)
            begin, end = parameters[:, 2 * axis, None], parameters[:, 2 * axis + 1, None]
            sharp = cells / SOFT / 2
            sides.append(torch.sigmoid((place - begin) * sharp) * torch.sigmoid((end - place) * sharp))
        weights = (sides[0][:, :, None] * sides[1][:, None, :]).flatten(1)
        return weights / weights.norm(dim=1, keepdim=True).clamp_min(1e-12)

    def start(self, batch: int, grid: tuple[int, ...], generator: Any = None) -> Tensor:
        begun = torch.tensor([[-0.8, 0.8, -0.8, 0.8]]).repeat(batch, 1)  # nearly everything
        return begun if generator is None else begun + 0.2 * torch.randn(batch, 4, generator=generator)


def main() -> l2caf.Heatmap:
    model = l2caf.load("tf_efficientnet_lite0").whole()
    cup = model.class_index("espresso")
    heatmap = model.explain(two_objects(224), objective=l2caf.ClassSpecific(cup), filter=Rectangle())
    left, right = heatmap.maps[0].chunk(2, dim=1)  # the cup is on the right
    print(f"{heatmap.outcome[0]}: {float(right.sum() / (left.sum() + right.sum())):.0%} of the rectangle on the cup")
    assert right.sum() > 4 * left.sum()
    return heatmap


if __name__ == "__main__":
    main()
