"""Explanations that are interrupted at any instant, to see whether the network is given back.

    python tests/interrupted.py 2000 [seed]  # as `make interrupts`; a fourth of them while the network is given back

Three of four interrupts are raised at one instruction of the explaining: a first run under `sys.settrace` counts the
instructions of all that matters (our own code, context managers, torch's modules and modes of gradients), a second one
is sent SIGINT by itself at one of them. So an interrupt is repeatable and depends on no clock. The rest come from
another thread after a random while, as they do in life.
"""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

import l2caf
import networks_for_tests as nets
from l2caf.methods.method import Method
from l2caf.recording import borrow, interrupts
from methods_for_tests import METHODS
from networks_for_tests import pixels, seeded
from state_for_tests import assert_same, state_of, worn

PATIENCE = 300.0  # seconds for one interrupt, which takes a fraction of one
HOME = str(Path(l2caf.__file__).parent)
# Where Python enters and leaves things, and calls modules.
TRACED = ("contextlib.py", "grad_mode.py", "_contextlib.py", "torch/nn/modules/module.py", "threading.py", "signal.py")
RESTORING = {borrow.borrowed.__exit__.__code__, borrow.forwards_replaced.__exit__.__code__}


class Attention(nn.Module):
    """An encoder with the fused kernel, on patches."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 8, stride=8)
        self.encoder = nn.TransformerEncoderLayer(8, 2, dim_feedforward=8, batch_first=True)
        self.scores = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.scores(self.encoder(self.patches(x).flatten(2).mT).mean(1))


def half_trained() -> nn.Module:
    """In the middle of its life, and one module of it is called by way of something else."""
    network = worn(nets.curved)
    network[1].__dict__["_compiled_call_impl"] = network[1]._call_impl
    return network


@dataclass
class Case:
    """A network that is explained: for the first time, or again."""

    make: Callable[[], nn.Module]
    method: Method
    again: bool = False

    def network(self) -> nn.Module:
        network = self.make()
        if self.again:
            self.explain(network)
        return network

    def explain(self, network: nn.Module) -> Tensor:
        return self.method(network, pixels(1)).weights


CASES = {
    "first": Case(lambda: worn(nets.pooled), METHODS["AttentionFilter"]),
    "again": Case(lambda: worn(nets.pooled), METHODS["AttentionFilter"], again=True),
    "descent": Case(half_trained, METHODS["AttentionFilter"]),
    "gradient": Case(lambda: seeded(nets.pooled).train(), METHODS["GradCAM"]),
    "checkpointed": Case(lambda: seeded(lambda: nets.Checkpointed(reentrant=False)), METHODS["GradCAM"]),
    "attention": Case(lambda: seeded(Attention).train(), METHODS["GradCAM"]),
}


class Instructions:
    """Counts instructions, notes which of them give a network back, and interrupts at one of them."""

    def __init__(self, at: int = 0) -> None:
        self.at = at
        self.count = 0
        self.restoring: list[int] = []

    def trace(self, frame: FrameType, event: str, arg: object) -> Any:
        name = frame.f_code.co_filename
        if not (name.startswith(HOME) or name.endswith(TRACED)):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self.step

    def step(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "opcode":
            self.count += 1
            if self.at == 0:
                if _gives_back(frame):
                    self.restoring.append(self.count)
            elif self.count == self.at:
                sys.settrace(None)
                signal.raise_signal(signal.SIGINT)
        return self.step


def _gives_back(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code not in RESTORING:
        frame = frame.f_back
    return frame is not None


def traced(work: Callable[[], object], instructions: Instructions) -> None:
    before = sys.gettrace()
    sys.settrace(instructions.trace)
    try:
        work()
    finally:
        sys.settrace(before)


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise interrupts as Python does, also where the process was started in the background, where they are ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Trial:
    """One case, interrupted again and again; each time the network has to be as it was, and can be explained."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.expected = case.explain(case.make())
        instructions = Instructions()
        network = case.network()
        began = time.perf_counter()
        case.explain(network)
        self.seconds = time.perf_counter() - began
        network = case.network()
        traced(lambda: case.explain(network), instructions)
        self.count, self.restoring = instructions.count, instructions.restoring

    def at(self, instruction: int) -> bool:
        """Interrupt at an instruction."""
        return self._interrupted(lambda work: traced(work, Instructions(instruction)), must=True)

    def after(self, seconds: float) -> bool:
        """Interrupt after a while, from another thread; tell whether it came in time."""

        def interrupted(work: Callable[[], object]) -> None:
            thread = threading.Thread(target=_interrupt_main, args=(seconds,))
            try:
                thread.start()
                work()
            finally:
                thread.join()
                time.sleep(0)  # let it arrive here, if it has not yet

        return self._interrupted(interrupted, must=False)

    def _interrupted(self, interrupted: Callable[[Callable[[], object]], None], *, must: bool) -> bool:
        network = self.case.network()
        before = state_of(network)
        came = False
        with interruptible():
            try:
                interrupted(lambda: self.case.explain(network))
            except KeyboardInterrupt:
                came = True
                assert_same(state_of(network), before)  # while the interrupt, with all its frames, is still there
            assert came or not must, "the interrupt was lost"
            assert_same(state_of(network), before)
            assert not borrow._loans
            assert not borrow._in_use
            assert interrupts._holders == 0
            assert not interrupts._arrived
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
            torch.testing.assert_close(self.case.explain(network), self.expected, rtol=0, atol=1e-5)
        return came


def _interrupt_main(seconds: float) -> None:
    time.sleep(seconds)
    os.kill(os.getpid(), signal.SIGINT)


def chosen(trial: Trial, generator: random.Random, *, restoring: bool) -> int:
    return generator.choice(trial.restoring) if restoring else generator.randint(1, trial.count)


def main(number: int, seed: int = 0) -> int:
    """Interrupt so many times, and return how many of them did damage."""
    generator = random.Random(seed)
    trials = {name: Trial(case) for name, case in CASES.items()}
    counts, damaged = Counter[str](), list[str]()
    for place in range(number):
        faulthandler.dump_traceback_later(PATIENCE, exit=True)  # a lock that is left behind is damage too
        name = list(CASES)[place % len(CASES)]
        trial, kind = trials[name], ("restoring", "anywhere", "anywhere", "in time")[place // len(CASES) % 4]
        instant = generator.uniform(0, 1.1 * trial.seconds)
        if kind != "in time":
            instant = chosen(trial, generator, restoring=kind == "restoring")
        try:
            came = trial.after(instant) if kind == "in time" else trial.at(int(instant))
            counts[kind if came else "too late"] += 1
        except Exception as error:  # noqa: BLE001 - whatever it is, it is damage
            damaged.append(f"{name}, {kind} {instant}: {error!r}")
    report = [
        f"{name}: {one.count} instructions, {len(one.restoring)} of them give back" for name, one in trials.items()
    ]
    print(*report, dict(counts), *damaged, f"{len(damaged)} of {number} did damage", sep="\n")  # noqa: T201
    return len(damaged)


if __name__ == "__main__":
    raise SystemExit(main(*map(int, sys.argv[1:])) > 0)
