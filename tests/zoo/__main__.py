"""`python -m zoo [--only PATTERN] [--out FILE]`: judge the networks and write the table of what each gets.

Run the same command again to resume a run that was cut; `--only` judges its networks again and keeps the others.
"""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from pathlib import Path

import torch

from .judge import judge
from .kept import append, load
from .networks import NETWORKS
from .table import is_kept, table


def main() -> int:
    parser = argparse.ArgumentParser(prog="zoo")
    parser.add_argument("--only", help="judge those whose name or source matches this pattern, again if need be")
    parser.add_argument("--out", type=Path, default=Path("docs/zoo.md"), help="where the table goes")
    parser.add_argument("--kept", type=Path, default=Path("build/zoo.jsonl"), help="where the rows go as they come")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # what third parties say while they build a network
    rows = load(given.kept)
    for network in NETWORKS:
        if re.search(given.only, f"{network.source}:{network.name}") if given.only else network.name not in rows:
            row = rows[network.name] = judge(network)
            append(given.kept, row)
            sys.stderr.write(f"{row.verdict:24} {network.name:44} {row.layer} {row.grid} {row.outcome} {row.note}\n")
    ordered = [rows[network.name] for network in NETWORKS if network.name in rows]
    given.out.write_text(table(ordered), encoding="utf-8")
    return 0 if is_kept(ordered) else 1


if __name__ == "__main__":
    sys.exit(main())
