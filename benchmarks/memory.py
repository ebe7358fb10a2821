"""How much memory does a map take, and does a thousand of them take more?"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from .row import Row

_PEAK = """
import torch
from benchmarks.subjects import batch, lite, torchvision_network
from benchmarks.memory import now_and_peak, reset_peak
torch.set_num_threads(2)
network = {network}
images = batch(16)
import l2caf
l2caf.explain(network, images[:1]).maps  # loads what loads at first use, on a small batch
before = now_and_peak()[0]
reset_peak()
{action}
print(now_and_peak()[1] - before)
"""
_FORWARD = "with torch.inference_mode(): network(images)"
_EXPLAIN = "l2caf.explain(network, images).maps"


def rows() -> list[Row]:
    return [*_peaks(), *_thousand()]


def now_and_peak() -> tuple[int, int]:
    """Return what the process holds and the most that it held, in kilobytes."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]), int(fields["VmHWM"].split()[0])


def reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _peaks() -> list[Row]:
    found = []
    for name, network in (("EfficientNet-Lite0", "lite()"), ("ResNet-50", "torchvision_network('resnet50')")):
        forward, explained = (
            sorted(_in_its_own_process(_PEAK.format(network=network, action=action)) for _ in range(3))[1]
            for action in (_FORWARD, _EXPLAIN)
        )
        ratio = explained / forward
        found.append(
            Row(
                f"{name}, batch 16: peak memory of class-oblivious ÷ forward",
                f"{ratio:.2f} ({explained // 1024} and {forward // 1024} MB)",
                "≤ 1.50",
                ratio <= 1.5,
                {"ratio": ratio, "forward_kb": forward, "explain_kb": explained},
            )
        )
    return found


def _in_its_own_process(script: str) -> int:
    environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE", "MALLOC_TRIM_THRESHOLD_": "65536"}
    run = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    return int(run.stdout.strip().splitlines()[-1])


def _thousand() -> list[Row]:
    import torch

    from l2caf import explain

    from .subjects import torchvision_network

    network = torchvision_network("resnet18")
    images = torch.rand(1, 3, 64, 64)
    held = []
    for number in range(1000):
        explain(network, images).maps  # noqa: B018
        if number in (49, 999):
            held.append(now_and_peak()[0])
    hooks = sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in network.modules())
    left = hooks + sum("forward" in vars(module) for module in network.modules())
    growth = (held[1] - held[0]) / 1024
    return [
        Row(
            "1,000 explains in one process: growth after the first 50, hooks left",
            f"{growth:+.1f} MB, {left} hooks",
            "none",
            growth < 2 and left == 0,
            {"growth_mb": growth, "hooks": left},
        )
    ]
