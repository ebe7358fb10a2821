"""A sample of `make interrupts`: Ctrl-C at any instruction, and the network is given back."""

from __future__ import annotations

import os
import random
import signal
import threading

import pytest

import networks_for_tests as nets
from interrupted import CASES, Trial, chosen, interruptible
from l2caf.recording import borrow, interrupts
from l2caf.recording.borrow import borrowed, forwards_replaced
from networks_for_tests import seeded

EACH = 10


@pytest.mark.parametrize("name", CASES)
def test_at_any_instruction(name: str) -> None:
    generator = random.Random(name)
    trial = Trial(CASES[name])
    for place in range(EACH):
        trial.at(chosen(trial, generator, restoring=place % 2 == 0))


def test_what_is_entered_and_never_left_is_given_back_when_it_is_dropped() -> None:
    network = seeded(nets.pooled).train()
    outer, inner = borrowed(network), forwards_replaced({network[0]: lambda x: x})
    outer.__enter__()
    inner.__enter__()
    del inner
    assert "forward" not in network[0].__dict__
    assert not network.training
    del outer
    assert network.training
    assert not borrow._loans
    assert interrupts._holders == 0


def test_who_waits_for_a_network_can_be_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interrupt comes while the main thread waits: it must not wait for the other one to end."""
    network = seeded(nets.pooled)
    held, may_end = threading.Event(), threading.Event()

    def hold() -> None:
        with borrowed(network):
            held.set()
            may_end.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert held.wait(30)
        wait = borrow.wait_for

        def waits(lock: threading.Lock) -> None:
            # Sent now, it is pending when the wait begins, or arrives while it goes on.
            threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGINT)).start()
            wait(lock)

        monkeypatch.setattr(borrow, "wait_for", waits)
        with interruptible(), pytest.raises(KeyboardInterrupt), borrowed(network):
            pass
        assert not may_end.is_set()
    finally:
        may_end.set()
        thread.join()
    assert not borrow._loans
    assert interrupts._holders == 0
