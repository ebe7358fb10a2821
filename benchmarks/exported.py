"""How near are the maps of an exported file to the library's, and what do they cost in ONNX Runtime?"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

import l2caf

from .row import Row

# A folder of photographs to compare on: the installed ones are few.
PHOTOGRAPHS = Path(os.environ.get("L2CAF_PHOTOGRAPHS", "/work/shared/data/imagenet-val/val"))
KINDS = {"class": "the best 5 classes", "output": "class-oblivious", "prediction": "prediction"}
BARS = {("class", 1): 1.02, ("class", 16): 1.02, ("output", 1): 1.12, ("output", 16): 1.05}
ROUNDS = {1: 60, 16: 9}
ERROR, ALIKE = 1e-4, 0.95


def rows() -> list[Row]:
    shown = PHOTOGRAPHS if PHOTOGRAPHS.is_dir() else None
    model = l2caf.load()
    found = []
    with tempfile.TemporaryDirectory() as folder:
        made = l2caf.export(model, Path(folder, "all.onnx"), photographs=shown)
        for kind, one in made.check.maps.items():
            what = f"largest error, {KINDS[kind]}, {one.maps} maps of {made.check.photographs} photographs"
            found.append(Row(what, f"{one.error:.1e}", f"≤ {ERROR:.0e}", one.error <= ERROR and not one.not_converged))
        files = {kind: _part(made.path, {kind}) for kind in KINDS}
        files |= {"all": _part(made.path, set(KINDS)), "none": _part(made.path, set())}
        for batch, rounds in ROUNDS.items():
            found += _costs(files, batch, rounds)
        if shown is not None:
            small = l2caf.export(model, Path(folder, "int8.onnx"), photographs=shown, precision="int8")
            for kind, one in small.check.maps.items():
                measured = f"{one.correlation:.3f}, least {one.least_correlation:.3f}"
                what = f"int8, {KINDS[kind]}: rank correlation with the library's maps"
                found.append(Row(what, measured, f"≥ {ALIKE} in the mean", one.correlation >= ALIKE))
            found.append(Row("int8: the same best class", f"{small.check.same_best:.0%}"))
    return found


def _part(path: Path, kinds: set[str]) -> bytes:
    """The file with some of its maps alone, and what leads to these: ONNX Runtime computes all that is there."""
    stored = onnx.load(path)
    graph = stored.graph
    wanted = {"output"}.union(*(l2caf.exported.MAPS[kind] for kind in kinds))
    outputs = [one for one in graph.output if one.name in wanted]
    nodes = []
    for node in reversed(graph.node):
        if wanted & set(node.output):
            wanted |= set(node.input)
            nodes.insert(0, node)
    held = [one for one in graph.initializer if one.name in wanted]
    for own, kept in ((graph.output, outputs), (graph.node, nodes), (graph.initializer, held)):
        kept = [type(one).FromString(one.SerializeToString()) for one in kept]
        del own[:]
        own.extend(kept)
    return bytes(stored.SerializeToString())


def _session(stored: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(stored, options, providers=["CPUExecutionProvider"])


def _costs(files: dict[str, bytes], batch: int, rounds: int) -> list[Row]:
    """CPU time with maps over that without, in turn, one thread each: the ratio of medians."""
    sessions = {name: _session(stored) for name, stored in files.items()}
    images = np.random.default_rng(0).standard_normal((batch, 3, 224, 224), np.float32)
    times: dict[str, list[float]] = {name: [] for name in sessions}
    for number in range(rounds + 2):
        for name in list(sessions)[:: 1 if number % 2 else -1]:
            began = time.thread_time()
            sessions[name].run(None, {"images": images})
            if number >= 2:
                times[name].append(time.thread_time() - began)
    alone = statistics.median(times["none"])
    found = []
    for name in (*KINDS, "all"):
        ratio, bar = statistics.median(times[name]) / alone, BARS.get((name, batch))
        what = f"ONNX Runtime with maps ÷ without, batch {batch}, {KINDS.get(name, 'all three')}"
        met = None if bar is None else ratio <= bar
        found.append(Row(what, f"{ratio:.3f}", "" if bar is None else f"≤ {bar}", met, {"milliseconds": alone * 1000}))
    return found
