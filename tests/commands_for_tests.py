"""What tests of the command line share: its tiny network, and how a command is run."""

from __future__ import annotations

from collections.abc import Callable

# Exit code, stdout, stderr.
Run = Callable[..., tuple[int, str, str]]

NETS = """
import torch
from torch import nn

def tiny():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 5, stride=16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(4, 3))
"""
TINY = ("--network", "nets.py:tiny", "--classifier")
