"""Is the exact solution what gradient descent converges to, only sooner?"""

from __future__ import annotations

import torch

from l2caf import Exact, GradientDescent, UnitL2
from l2caf.heads.recorded import RecordedHead
from l2caf.methods.attention_filter import pose
from l2caf.objectives.classes import ClassSpecific
from l2caf.objectives.output import ClassOblivious
from l2caf.problem import Way
from l2caf.recording.replay import Replay

from .row import Row
from .subjects import batch, lite


def rows() -> list[Row]:
    head = RecordedHead(Replay(lite(), batch()))
    found = []
    for objective in (ClassOblivious(), ClassSpecific()):
        problem = pose(head, UnitL2(), objective)[0]
        exact = Exact().search(problem)
        descent = GradientDescent(steps=4000, tolerance=0.0, adam=True, learning_rate=0.05).search(problem)
        exact_filters, descent_filters = exact.weights[0].double(), descent.weights[0].double()
        cosine = torch.nn.functional.cosine_similarity(exact_filters, descent_filters).min().item()
        # Both losses are evaluated the same way, by replaying the network, so that rounding is the same too.
        with torch.no_grad():
            at_exact = problem.value(exact.weights.float(), way=Way.REPLAY)[0].double()
            at_descent = problem.value(descent.weights.float(), way=Way.REPLAY)[0].double()
        above = ((at_exact - at_descent) / at_descent.abs()).max().item()
        name = type(objective).__name__
        found.append(
            Row(
                f"{name}: Exact against GradientDescent run to convergence, {len(at_exact)} photographs",
                f"cosine {cosine:.6f}, loss above by {above:.1e}",
                "cosine ≥ 0.9999, loss not above by 1e-6",
                cosine >= 0.9999 and above <= 1e-6,
                {"cosine": cosine, "loss_above": above},
            )
        )
    return found
