"""`python -m zoo [--only PATTERN] [--out FILE]`: judge the networks and write the table of what each gets."""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from pathlib import Path

import torch

from .judge import judge
from .networks import NETWORKS
from .table import is_kept, table


def main() -> int:
    parser = argparse.ArgumentParser(prog="zoo")
    parser.add_argument("--only", default="", help="a pattern that the names must contain")
    parser.add_argument("--out", type=Path, default=Path("docs/zoo.md"), help="where the table goes")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # what third parties say while they build a network
    rows = []
    for network in NETWORKS:
        if re.search(given.only, network.name):
            rows.append(judge(network))
            row = rows[-1]
            sys.stderr.write(f"{row.verdict:24} {network.name:44} {row.layer} {row.grid} {row.outcome} {row.note}\n")
    given.out.write_text(table(rows), encoding="utf-8")
    return 0 if is_kept(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
