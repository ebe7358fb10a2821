"""What every test stands on: a quiet, steady torch, and child processes that see the same code as the tests."""

from __future__ import annotations

import os
from pathlib import Path

# Read once, when torch loads its threads: idle ones must sleep, or small machines measure only contention. One thread
# each, for the tests run in two processes side by side; what a test starts inherits it.
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
os.environ["OMP_NUM_THREADS"] = "1"
# Figures are drawn to memory, never to a screen.
os.environ.setdefault("MPLBACKEND", "Agg")

import hypothesis
import torch

import l2caf

torch.set_num_threads(1)
# A busy machine is no fault of the code: neither one slow example nor slowly drawn ones are.
hypothesis.settings.register_profile("steady", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("steady")
_source = str(Path(l2caf.__file__).parents[1])
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [_source, os.environ.get("PYTHONPATH")]))
