"""Run the measurements and write `results.json` and the tables of `docs/benchmarks.md`."""

from __future__ import annotations

import os

os.environ["OMP_WAIT_POLICY"] = "PASSIVE"  # before torch: a waiting thread must not take the other's core

import importlib
import json
import platform
import sys
import time
from pathlib import Path

import torch

from .row import Row

QUESTIONS = (
    "startup",
    "exactness",
    "meaning",
    "curved",
    "memory",
    "evaluation",
    "retrieval",
    "video",
    "footage",
    "dense",
    "features",
    "page",
    "exported",
    "speed",
)
HERE = Path(__file__).parent


def main(asked: list[str]) -> None:
    torch.set_num_threads(2)
    path = HERE / "results.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    for question in asked or QUESTIONS:
        began = time.perf_counter()
        module = importlib.import_module(f"benchmarks.{question}")
        rows: list[Row] = module.rows()
        results[question] = {
            "asks": module.__doc__,
            "machine": _machine(),
            "rows": [row.as_json() for row in rows],
        }
        path.write_text(json.dumps(results, indent=1) + "\n")
        for row in rows:
            print(f"{_mark(row.met):6} {row.what}: {row.measured}  {row.bar}", flush=True)
        print(f"       ({question}: {time.perf_counter() - began:.0f} s)", flush=True)
    (HERE.parent / "docs" / "benchmarks.md").write_text(_page(results))


def _machine() -> str:
    threads, python = torch.get_num_threads(), platform.python_version()
    return f"{platform.machine()}, {threads} threads, torch {torch.__version__}, Python {python}"


def _mark(met: bool | None) -> str:
    return {True: "met", False: "MISSED", None: "shown"}[met]


def _page(results: dict[str, dict[str, object]]) -> str:
    lines = [
        "# Measured",
        "",
        "Written by `make bench`; `benchmarks/README.md` says how. Ratios are medians, with their quartiles.",
        "",
    ]
    for question in QUESTIONS:
        if question not in results:
            continue
        section = results[question]
        lines += [
            f"## {str(section['asks']).strip()}",
            "",
            "| what | measured | bar | |",
            "|---|---|---|---|",
        ]
        for row in section["rows"]:  # type: ignore[attr-defined]
            mark = {True: "met", False: "**missed**", None: ""}[row["met"]]
            lines.append(f"| {row['what']} | {row['measured']} | {row['bar']} | {mark} |")
        lines += ["", f"_{section['machine']}_", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    main(sys.argv[1:])
