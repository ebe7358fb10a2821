"""A solver of one's own: projected gradient descent with shrinking steps.

python examples/extend/solver.py
"""

from dataclasses import dataclass

import torch

import l2caf
from l2caf import Found, Outcome, Problem, Solver
from l2caf.tasks.samples import sample


@dataclass(frozen=True)
class Projected(Solver):
    """f <- normalise(f - step_k gradient). A solver sees the problem, K maps for B samples, and nothing of the network.

    What was found is judged by whoever called it: samples that are not finite, flat maps, the layout of the grid.
    """

    steps: int = 100
    step: float = 0.3

    def search(self, problem: Problem) -> Found:
        weights = torch.ones(problem.maps, problem.batch, problem.positions, device=problem.device)
        weights = weights / weights.norm(dim=2, keepdim=True)
        for number in range(self.steps):
            weights.requires_grad_()
            with torch.enable_grad():
                (slope,) = torch.autograd.grad(problem.value(weights).sum(), weights)
            step = self.step / (1 + number / 5)
            weights = weights.detach() - step * slope / slope.norm(dim=2, keepdim=True).clamp_min(1e-12)
            weights = weights / weights.norm(dim=2, keepdim=True)
        loss = problem.value(weights).detach()
        count = torch.full(loss.shape, self.steps)
        return Found(weights, loss, count, count, [[Outcome.STEP_LIMIT] * problem.batch for _ in range(problem.maps)])


def main() -> tuple[l2caf.Heatmap, l2caf.Heatmap]:
    model = l2caf.load("tf_efficientnet_lite0")
    ours, exact = (model.explain(sample("cat"), solver=solver) for solver in (Projected(), l2caf.Exact()))
    above = float(ours.solution.loss[0] / exact.solution.loss[0]) - 1
    print(f"{ours.outcome[0]}: the loss is {above:.4%} above the optimum")
    assert 0 <= above + 1e-6 < 1e-3
    return ours, exact


if __name__ == "__main__":
    main()
