"""An objective of one's own: what speaks for class a rather than for class b?

python examples/extend/objective.py
"""

from dataclasses import dataclass

import torch
from torch import Tensor

import l2caf
from l2caf import Linear, Losses, Objective
from l2caf.tasks.samples import two_objects


@dataclass(frozen=True)
class Rather(Objective):
    """min FT_b - FT_a. The loss is linear, and says so: behind an affine head it is solved in closed form."""

    a: int
    b: int

    def losses(self, output: Tensor) -> Losses:
        direction = torch.zeros_like(output)
        direction[:, self.a], direction[:, self.b] = -1, 1
        return Losses((Linear(direction),))


def main() -> l2caf.Heatmap:
    model = l2caf.load("tf_efficientnet_lite0").whole()
    cat, cup = model.class_index("tiger cat"), model.class_index("espresso")
    heatmap = model.explain(two_objects(224), objective=Rather(cat, cup))
    left, right = heatmap.signed[0].chunk(2, dim=1)  # the cat is on the left
    print(f"{heatmap.outcome[0]}: {float(left.mean()):+.2f} on the cat, {float(right.mean()):+.2f} on the cup")
    assert left.mean() > 0 > right.mean()
    return heatmap


if __name__ == "__main__":
    main()
