"""How long until the first thing can be said?"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from .row import Row

_IMPORT = """
import sys, time
began = time.perf_counter()
import l2caf
print(time.perf_counter() - began, "torch" in sys.modules)
"""


def rows() -> list[Row]:
    runs = [
        subprocess.run([sys.executable, "-c", _IMPORT], capture_output=True, text=True, check=True).stdout.split()
        for _ in range(7)
    ]
    seconds = statistics.median(float(run[0]) for run in runs)
    with_torch = any(run[1] == "True" for run in runs)
    helps = []
    for _ in range(7):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "l2caf", "--help"], capture_output=True, check=True)
        helps.append(time.perf_counter() - began)
    helped = statistics.median(helps)
    loaded = "with torch" if with_torch else "without torch"
    return [
        Row(
            "import l2caf",
            f"{seconds:.3f} s, {loaded}",
            "< 0.3 s, without torch",
            seconds < 0.3 and not with_torch,
        ),
        Row("l2caf --help", f"{helped:.2f} s", "< 1 s", helped < 1),
    ]
