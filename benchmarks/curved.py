"""How few evaluations does the descent need where the head is not affine?"""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import torch
from torch import Tensor, nn

from l2caf import ClassOblivious, ClassSpecific, GradientDescent, Riemannian, UnitL2
from l2caf.heads.recorded import RecordedHead
from l2caf.methods.attention_filter import pose
from l2caf.objectives.objective import Objective
from l2caf.problem import Problem
from l2caf.recording.replay import Replay

from .row import Row
from .subjects import Recurrent, batch, torchvision_network

CEILING = {ClassOblivious: 60, ClassSpecific: 150}
GAP = {ClassOblivious: 0.1, ClassSpecific: 1.0}


def rows() -> list[Row]:
    found = []
    for name, network, images, layer in _networks():
        head = RecordedHead(Replay(network, images, layer=layer))
        frontier = f", frontier {head.name_of(head.frontier[1].cut)}" if head.frontier else ""
        for objective in (ClassOblivious(), ClassSpecific(3)):
            problem = pose(head, UnitL2(), objective)[0]
            found.append(_row(f"{name} (cut at {head.layer}{frontier})", problem, objective))
    return found


def _networks() -> Iterator[tuple[str, nn.Module, Tensor, str | None]]:
    images = batch(2)
    yield "VGG-16", torchvision_network("vgg16"), images, None
    yield "MobileNetV3", torchvision_network("mobilenet_v3_large"), images, None
    yield "ResNet-50 one block early", torchvision_network("resnet50"), images, "layer4.1"
    yield (
        "LSTM head",
        Recurrent().eval(),
        torch.stack([images, images.flip(0), images.roll(1, 0)], dim=1),
        None,
    )


def _row(name: str, problem: Problem, objective: Objective) -> Row:
    ours = Riemannian().search(problem)
    # Descent runs over the same verified affine map where there is one: the same function, many times sooner.
    value = Problem.value
    with mock.patch.object(Problem, "value", lambda self, weights, *, way=None: value(self, weights)):
        plain, adam = (
            reference.search(problem).losses.amin(dim=0)  # type: ignore[union-attr]
            for reference in (
                GradientDescent(tolerance=0.0),
                GradientDescent(tolerance=0.0, adam=True, learning_rate=0.05),
            )
        )
    best = torch.minimum(plain, adam)
    above = (100 * (ours.loss - best) / best.abs()).max().item()
    above_plain = (100 * (ours.loss - plain) / plain.abs()).max().item()
    most = int(ours.evaluations.max())
    gap, ceiling = GAP[type(objective)], CEILING[type(objective)]
    return Row(
        f"{name}, {type(objective).__name__}",
        f"{above:+.3f} % of the best of 1,000 steps of SGD and of Adam ({above_plain:+.3f} % of SGD's alone), "
        f"{most} evaluations at most",
        f"≤ +{gap:g} %, ≤ {ceiling}",
        above <= gap and most <= ceiling,
        {"above_percent": above, "above_sgd_percent": above_plain, "evaluations": ours.evaluations.tolist()},
    )
