"""Do descents find the best filter of random heads, and are losses, `exact` and empty maps true? `make fuzz` asks.

    PYTHONPATH=tests python -m benchmarks.fuzz --seeds 1000

The heads and the brute force that judges them are in `tests/fuzzed_heads.py`, of which a sample runs in `make test`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator

import torch

from fuzzed_heads import STARTS, WITHIN, Judged, Pool, judge


def table(rows: list[Judged]) -> Iterator[str]:
    """What became of them, line by line."""
    counted = Counter(row.outcome for row in rows).most_common()
    yield f"{len(rows)} maps: " + ", ".join(f"{number} {outcome}" for outcome, number in counted)
    yield f"faults (a wrong loss, an `exact` that is beaten, a map that is falsely empty): {sum(map(is_fault, rows))}"
    searched = [row for row in rows if is_descent(row)]
    if not searched:
        return
    near = [row for row in searched if row.gap <= WITHIN]
    yield (
        f"descents: {len(searched)}, of which {len(near)} ({100 * len(near) / len(searched):.1f} %) are within "
        f"{100 * WITHIN:.0f} % of the best of {STARTS} starts (of the range from the uniform filter to the best)"
    )
    counts = sorted(row.evaluations for row in searched)
    yield f"evaluations: median {counts[len(counts) // 2]}, 95 % {counts[int(0.95 * len(counts))]}, most {counts[-1]}"
    yield "| pooling | descents | within 5 % | median gap of the others |"
    yield "|---|---|---|---|"
    for kind in Pool.kinds:
        own = [row for row in searched if kind in row.kinds]
        far = sorted(row.gap for row in own if row.gap > WITHIN)
        if own:
            middle = f"{far[len(far) // 2]:.2f}" if far else ""
            yield f"| {kind} | {len(own)} | {100 * (1 - len(far) / len(own)):.1f} % | {middle} |"


def is_fault(row: Judged) -> bool:
    return bool(row.fault)


def is_descent(row: Judged) -> bool:
    return row.descended and not row.outcome.shows_nothing


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--verbose", action="store_true", help="name every descent that is not within 5 %%")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    began = time.perf_counter()
    rows: list[Judged] = []
    for seed in range(asked.first, asked.first + asked.seeds):
        for row in judge(seed):
            rows.append(row)
            if row.fault or (asked.verbose and is_descent(row) and row.gap > WITHIN):
                print(row, flush=True)
    print(f"{asked.seeds} heads in {time.perf_counter() - began:.0f} s")
    for line in table(rows):
        print(line)
    searched = [row for row in rows if is_descent(row)]
    near = sum(row.gap <= WITHIN for row in searched)
    return int(any(map(is_fault, rows)) or near < 0.95 * len(searched))


if __name__ == "__main__":
    sys.exit(main())
