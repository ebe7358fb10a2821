"""A validation pass with an `AttentionWatch`, against the same pass without: CPU time, batch by batch in turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import l2caf

BATCHES, ROUNDS = 6, 5


def measure(network: nn.Module, inputs: torch.Tensor, objective: Any) -> float:
    """The median over rounds of how many times as long a pass takes."""
    watch = l2caf.AttentionWatch(network, objective=objective, show=8)

    def validate() -> None:
        with torch.inference_mode():
            for _ in range(BATCHES):
                network(inputs)

    def watched() -> None:
        with watch.epoch():
            validate()

    watched()  # the first pass looks at the network, as in the first epoch
    return statistics.median(_taken(watched) / _taken(validate) for _ in range(ROUNDS))


def _taken(work: Callable[[], None]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    torch.set_num_threads(1)
    network = l2caf.load("tf_efficientnet_lite0").network
    inputs = torch.rand(16, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    for name, objective in (("class-oblivious", l2caf.ClassOblivious()), ("prediction", l2caf.Prediction())):
        print(f"{name}: {measure(network, inputs, objective):.3f} of the pass without")


if __name__ == "__main__":
    main()
