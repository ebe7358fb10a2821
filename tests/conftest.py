"""What every test stands on: a quiet, steady torch."""

from __future__ import annotations

import os

# Read once, when torch loads its threads: idle ones must sleep, or small machines measure only contention.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# Figures are drawn to memory, never to a screen.
os.environ.setdefault("MPLBACKEND", "Agg")

import torch

torch.set_num_threads(2)
